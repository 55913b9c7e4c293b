//! One term of leadership, as far as managed pools need it: before anything is allocated, no earlier leader's write may
//! still arrive.
//!
//! A Lease fences nobody: a leader that stood still may send a write that it prepared long ago. So a new one reads all claims
//! afresh and writes its epoch on each that has no devices; whatever was prepared before then meets another resource
//! version, and is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tessera_placement::Time;

/// One term.
#[derive(Debug)]
pub(crate) struct Term {
    /// Differs from that of every other term.
    pub epoch: String,
    pub since: Time,
    /// Claims that have it, by uid.
    pub fenced: BTreeSet<String>,
    /// Every claim without devices that an earlier leader may have known, and that may be ours, has it, or refuses it.
    pub is_fenced: bool,
    /// Claims that the API server refuses to change, by uid.
    pub refused: BTreeMap<String, Refused>,
    /// Number of writes by which uncertain allocations were settled: each makes the annotation another text, for a write that changes
    /// nothing leaves the version as it is.
    pub settled: u64,
    /// Whether claims of this form ask for managed cards.
    pub asks: HashMap<String, bool>,
}

/// A claim that the API server refuses to change.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// What the API server said.
    pub why: String,
    /// The version that was to be changed.
    pub version: String,
    /// Not tried again before then.
    pub until: Time,
    /// It has no devices and the epoch of another term, so that a late write may still give it some: in whatever version, it gets none from
    /// this term before the epoch is written.
    pub needs_fence: bool,
}

/// Lists of all claims that the API server was asked for.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// When the last one that was answered was asked for.
    pub fresh: Option<Time>,
    /// One is under way.
    pub is_asked: bool,
    /// After a write to claims that failed: no other before then.
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
    /// Whether the annotation's value is of this term.
    pub fn wrote(&self, value: Option<&String>) -> bool {
        let epoch = value.map(|value| value.split_once('#').map_or(value.as_str(), |(epoch, _)| epoch));
        epoch == Some(&self.epoch)
    }
}

impl Lists {
    /// Whether the claims are known as they were then, or later.
    pub fn are_as_of(&self, then: Time) -> bool {
        self.fresh.is_some_and(|fresh| fresh >= then)
    }
}
