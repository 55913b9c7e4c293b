//! Makes allocated claims real on this node, and undoes them.
//!
//! ```text
//! kubelet ─> preparer ─> tasks, one per claim (survives a dropped call; a retry joins it)
//!                          └> retries ─> attempt
//!                               1 claim lock      one attempt per claim, also across two instances    attempt/locks.rs
//!                               2 claim           from the API: uid, allocation, our results          claim/api.rs, allocation.rs
//!                               3 card locks      in a fixed order; never one for the whole node      attempt/locks.rs
//!                               4 needs           cards are there and as published, with partitions   claim/need.rs
//!                               5 conflict?       against every other record of the journal           attempt/stale.rs
//!                               6 plan            compare the cards with the needs                    cards/changes/plan.rs
//!                               7 journal intents synced before anything is touched                   attempt/record.rs
//!                               8 hardware        mode, partitions, shares: all cards side by side    cards/changes/make.rs
//!                               9 CDI spec        input of the container runtime                      attempt/spec.rs
//!                              10 complete record                                                     attempt/record.rs
//! ```
//!
//! Five rooms, each using only those after it: `upkeep`, `attempt`, `cards`, `tell`, `claim`.
//!
//! The journal on disk is the truth. Nothing about other claims is kept in memory between two calls, because another instance of
//! the plugin may have changed the journal.

mod attempt;
mod blocking;
mod cards;
mod claim;
mod error;
mod observer;
mod options;
mod preparer;
mod tell;
mod upkeep;

pub use tessera_dra_kubelet::ClaimReference;
use tessera_dra_kubelet::{Answers, PreparedDevice};

pub use error::PrepareError;
pub use observer::{HardwareWork, NoObserver, Operation, Phase, PrepareObserver};
pub use options::{DriverFilesState, PrepareOptions};
pub use preparer::Preparer;
pub use tell::{Activity, MpsMetrics, PrepareMetrics, UsageCondition, UsageConditionKind};
