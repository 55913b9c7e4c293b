//! One term of leadership, as needed by managed pools: nothing is allocated while an earlier leader's write may still arrive.
//!
//! A Lease fences nobody: a stalled leader may still send a write prepared long ago. A new leader therefore lists all claims and
//! writes its epoch on each claim without devices. Any write prepared earlier then carries an outdated resource version and is
//! refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tessera_placement::Time;

/// How long a claim is left alone in the refused version.
pub(crate) const TRY_AGAIN: Time = Time::from_secs(300);

/// One term of leadership.
#[derive(Debug)]
pub(crate) struct Term {
    /// Differs from the epoch of every other term.
    pub epoch: String,
    pub since: Time,
    /// Claims with this epoch, by uid.
    pub fenced: BTreeSet<String>,
    /// Set once all claims possibly known to earlier leaders are fenced, refused, allocated, or unrelated to managed cards.
    pub is_fenced: bool,
    /// Claims the API server refuses to change, by uid.
    pub refused: BTreeMap<String, Refused>,
    /// Number of writes settling uncertain allocations. Each write sets another annotation value, because a write without a
    /// change keeps the resource version.
    pub settled: u64,
    /// Whether claims with this spec, as JSON, ask for managed cards.
    pub asks: HashMap<String, bool>,
}

/// A claim the API server refuses to change.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// Error from the API server.
    pub why: String,
    /// The refused resource version.
    pub version: String,
    /// Earliest time of the next attempt.
    pub until: Time,
    /// The claim has no devices and the epoch of another term, so a late write may still allocate devices. In any version, the
    /// claim gets none in this term before its epoch is written.
    pub needs_fence: bool,
}

/// Lists of all claims requested from the API server.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Request time of the last answered list.
    pub fresh: Option<Time>,
    /// Whether a list is in flight.
    pub is_asked: bool,
    /// After a failed write to claims: earliest time of the next such write.
    pub not_before: Time,
}

impl Term {
    pub fn new(epoch: String, since: Time) -> Self {
        Term {
            epoch,
            since,
            fenced: BTreeSet::new(),
            is_fenced: false,
            refused: BTreeMap::new(),
            settled: 0,
            asks: HashMap::new(),
        }
    }
}

impl Term {
    /// Whether the annotation value belongs to this term.
    pub fn wrote(&self, value: Option<&String>) -> bool {
        let epoch = value.map(|value| value.split_once('#').map_or(value.as_str(), |(epoch, _)| epoch));
        epoch == Some(&self.epoch)
    }
}

impl Lists {
    /// Whether the known claims are as of `then` or later.
    pub fn are_as_of(&self, then: Time) -> bool {
        self.fresh.is_some_and(|fresh| fresh >= then)
    }
}
