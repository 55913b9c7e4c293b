//! Makes allocated claims real on this node, and undoes it.
//!
//! ```text
//! kubelet ─> Preparer ─> one task a claim (survives a dropped call; a retry joins it)
//!                          │ 1 claim lock      one worker a claim, also between two instances of the plugin
//!                          │ 2 claim           from the API: uid, allocation, our results
//!                          │ 3 card locks      in one order; never one for the whole node
//!                          │ 4 needs           the cards are there and the published ones, and have such partitions
//!                          │ 5 conflict?       against every other record of the journal
//!                          │ 6 plan            what is on the cards, and what is to be made
//!                          │ 7 journal intents synced before anything is touched
//!                          │ 8 hardware        mode, partitions: all cards side by side
//!                          │ 9 CDI spec        what the container runtime injects
//!                          └ 10 journal complete
//! ```
//!
//! The journal on disk is the truth: nothing about other claims is remembered between two calls, because another
//! instance of the plugin may have changed it.

mod allocation;
mod blocking;
mod call;
mod card_hold;
mod claim;
mod claim_events;
mod config;
mod conflict;
mod error;
mod files;
mod follow_mps;
mod forgotten;
mod hardware;
mod holder;
mod metrics;
mod mps_metrics;
mod need;
mod observer;
mod options;
mod own_time;
mod preparer;
mod realize;
mod recover;
mod reference;
mod repair;
mod settle;
mod sharing;
mod sweep;
mod unprepare;
mod waiting;
mod work;
mod worker;

use tessera_dra_kubelet::{Answers, ClaimReference, PreparedDevice};

pub use error::PrepareError;
pub use metrics::PrepareMetrics;
pub use mps_metrics::MpsMetrics;
pub use observer::{HardwareWork, NoObserver, Operation, Phase, PrepareObserver};
pub use options::PrepareOptions;
pub use preparer::Preparer;
