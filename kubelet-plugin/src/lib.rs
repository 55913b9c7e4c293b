//! The node part of Tessera.
//!
//! ```text
//! hardware ──> discovery ──> tessera_inventory ──> publish ──> ResourceSlices
//!     │                                              kubelet sockets
//!     └──────────────> prepare (journal, cdi) <───── kubelet ──────┘
//! ```
#![forbid(unsafe_code)]

pub mod cdi;
pub mod discovery;
pub mod driver_calls;
pub mod error_text;
pub mod hardware;
mod incoming;
pub mod journal;
pub mod kubelet;
pub mod layout;
pub mod metrics;
pub mod mps;
pub mod node_config;
pub mod node_events;
pub mod node_label;
pub mod open_files;
pub mod options;
pub mod prepare;
pub mod probe_command;
pub mod publish;
pub mod run;
