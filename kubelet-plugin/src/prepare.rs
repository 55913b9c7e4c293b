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
mod config;
mod conflict;
mod error;
mod events;
mod files;
mod follow_mps;
mod forgotten;
mod hardware;
mod holder;
mod locks;
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

use std::collections::HashMap;
use std::fmt;

pub use error::PrepareError;
pub use observer::{HardwareWork, NoObserver, Operation, Phase, PrepareObserver};
pub use options::PrepareOptions;
pub use preparer::Preparer;

/// What the kubelet says of a claim (`dra.v1.Claim`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's `metadata.uid`.
    pub uid: String,
}

/// As messages name a claim: `namespace/name (uid)`.
impl fmt::Display for ClaimReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// One prepared device of a claim (`dra.v1.Device`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests it satisfies, without the subrequest's part (`req` of `req/sub`).
    pub request_names: Vec<String>,
    /// The pool it was published in.
    pub pool_name: String,
    /// Its name in that pool.
    pub device_name: String,
    /// Fully qualified CDI names that the container runtime injects.
    pub cdi_device_ids: Vec<String>,
    /// The allocated share, for devices that several claims may use.
    pub share_id: Option<String>,
}

/// The answer for each claim UID that was asked for.
pub type Answers<T, E> = HashMap<String, Result<T, E>>;
