//! The controller: proposes a node for every GPU pod that opted in, writes the status of GPU
//! pools, and shows the fleet.
//!
//! ```text
//! watches ─> Observation ─> Decider ─> Intent ─> carry_out ─> API server
//!                              │                    │
//!                              ├─> status_writer    └─> what became of it ─> Decider
//!                              └─> fleet_page <─ usage <─ kubelet plugins
//! ```
//!
//! All replicas watch, so that a new leader knows everything at once. Only the leader decides and writes.
#![forbid(unsafe_code)]

pub mod active_checks;
pub mod carry_out;
pub mod claim_templates;
mod clock;
pub mod decide_loop;
pub mod extended_names;
mod failure_log;
pub mod fleet_page;
pub mod http;
mod listed;
pub mod metrics;
pub mod options;
pub mod pool_status;
mod quota_metrics;
pub mod quota_status;
pub mod run;
pub mod status_writer;
pub mod ungate;
pub mod usage;
mod waiting_notes;
pub mod watches;
