//! The node part of Tessera.
//!
//! ```text
//! hardware ──> discovery ──> tessera_inventory ──> publish ──> ResourceSlices
//!     │                                              kubelet sockets
//!     └──────────────> prepare (journal, cdi) <───── kubelet ──────┘
//! ```
#![forbid(unsafe_code)]

pub mod card_history;
pub mod cdi;
pub mod discovery;
pub mod driver;
pub mod gpu_pools;
pub mod layout;
pub mod nvidia_smi;
pub mod options;
pub mod prepare;
pub mod reset;
pub mod root_command;
pub mod run;
pub mod usage;
