//! Makes allocated claims real on this node, and undoes them.
//!
//! ```text
//! kubelet ─> preparer ─> tasks, one per claim (survives a dropped call; a retry joins it)
//!                          └> retries ─> attempt
//!                               1 claim lock      one attempt per claim, also across two instances    attempt/locks.rs
//!                               2 claim           from the API: uid, allocation, our results          claim.rs, allocation.rs
//!                               3 card locks      in a fixed order; never one for the whole node      attempt/locks.rs
//!                               4 needs           cards are there and as published, with partitions   need.rs
//!                               5 conflict?       against every other record of the journal           conflict.rs
//!                               6 plan            compare the cards with the needs                    changes/plan.rs
//!                               7 journal intents synced before anything is touched                   record.rs
//!                               8 hardware        mode, partitions, shares: all cards side by side    changes/cards.rs, make.rs
//!                               9 CDI spec        input of the container runtime                      spec.rs
//!                              10 complete record                                                     record.rs
//! ```
//!
//! The plugin's own work has one file each: `recover` (at start), `repair` (lost devices of a claim), `sweep` (claims the kubelet
//! will never unprepare), `mps_watch` and `mps_settle` (MPS daemons). `device_status` reports permanent errors in the claim.
//!
//! The journal on disk is the truth. Nothing about other claims is kept in memory between two calls, because another instance of
//! the plugin may have changed the journal.

mod activity;
mod allocation;
mod attempt;
mod blocking;
mod call;
mod changes;
mod claim;
mod claim_events;
mod config;
mod conflict;
mod device_status;
mod driver_files;
mod error;
mod holder;
mod kubelet_checkpoint;
mod layout_hold;
mod metadata;
mod metrics;
mod mps_metrics;
mod mps_settle;
mod mps_watch;
mod need;
mod observer;
mod options;
mod own_time;
mod preparer;
mod record;
mod record_ids;
mod recover;
mod reference;
mod repair;
mod retries;
mod running_pods;
mod sharing;
mod spec;
mod sweep;
mod tasks;
mod unified_memory;
mod unprepare;
mod worker;

use tessera_dra_kubelet::{Answers, ClaimReference, PreparedDevice};

pub use activity::Activity;
pub use driver_files::DriverFilesState;
pub use error::PrepareError;
pub use metrics::PrepareMetrics;
pub use mps_metrics::MpsMetrics;
pub use observer::{HardwareWork, NoObserver, Operation, Phase, PrepareObserver};
pub use options::PrepareOptions;
pub use preparer::Preparer;
