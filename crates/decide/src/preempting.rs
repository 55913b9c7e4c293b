//! Preemptions under way.

use std::collections::BTreeMap;

use tessera_api::managed::Nomination;
use tessera_cluster::Key;
use tessera_cluster::gang::GangId;
use tessera_placement::Time;

use crate::intent::PodReference;

/// State of ongoing preemptions.
#[derive(Debug, Default)]
pub(crate) struct Preempting {
    /// Earliest time of the next plan, by gang.
    pub nominating: BTreeMap<GangId, Time>,
    /// Nominations not yet observed on their pods. They count at once, so no other plan picks the same victims.
    pub planned: BTreeMap<Key, Planned>,
    /// Pods whose nominations count as taken, each with the node.
    pub held_for: BTreeMap<Key, String>,
    /// Whether a nomination ceased to count as taken.
    pub has_freed: bool,
}

/// A nomination in flight.
#[derive(Debug)]
pub(crate) struct Planned {
    pub pod: PodReference,
    pub nomination: Nomination,
    /// Planned anew if not observed by then.
    pub until: Time,
}
