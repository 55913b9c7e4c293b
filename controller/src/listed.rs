//! The kinds listed so far, and the kinds on whose listing decisions wait.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tessera_cluster::Kind;

use crate::watches::KINDS;

/// Kinds defining gangs, protecting pods from eviction, and of Kueue. Some are served by aggregated or custom APIs that may be down for
/// hours. Meanwhile only pods of these workloads wait, nothing is preempted, and no check of Kueue is answered.
const NOT_FOR_ALL: [Kind; 8] = [
    Kind::Job,
    Kind::JobSet,
    Kind::LeaderWorkerSet,
    Kind::PodGroup,
    Kind::DisruptionBudget,
    Kind::Workload,
    Kind::AdmissionCheck,
    Kind::ResourceFlavor,
];

/// Progress of listing.
#[derive(Debug)]
pub struct Listed {
    missing: BTreeSet<Kind>,
    /// How long to wait for [`NOT_FOR_ALL`], after all others are listed.
    patience: Duration,
    /// When all others were listed.
    since: Option<Instant>,
}

impl Listed {
    /// Starts with none of [`KINDS`] listed.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Listed { missing: KINDS.into(), patience, since: None }
    }

    /// Marks the kind as fully listed.
    pub fn complete(&mut self, kind: Kind) {
        self.missing.remove(&kind);
    }

    /// The kinds not fully listed.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<Kind> {
        &self.missing
    }

    /// The missing kinds on whose listing decisions wait at `now`.
    pub fn waited_for(&mut self, now: Instant) -> BTreeSet<Kind> {
        let all_need_one = self.missing.iter().any(|kind| !NOT_FOR_ALL.contains(kind));
        if all_need_one || now < *self.since.get_or_insert(now) + self.patience {
            return self.missing.clone();
        }
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn kinds_that_only_gangs_need_are_waited_for_a_while() {
        let now = Instant::now();
        let mut listed = Listed::new(PATIENCE);
        let late = [Kind::JobSet, Kind::Node];
        KINDS.iter().filter(|kind| !late.contains(kind)).for_each(|kind| listed.complete(*kind));
        assert_eq!(listed.waited_for(now + 9 * PATIENCE), late.into(), "nodes concern everybody");
        listed.complete(Kind::Node);
        let now = now + 10 * PATIENCE;
        assert_eq!(listed.waited_for(now), [Kind::JobSet].into());
        assert_eq!(listed.waited_for(now + PATIENCE), [].into());
        assert_eq!(*listed.missing(), [Kind::JobSet].into());
        listed.complete(Kind::JobSet);
        assert_eq!((listed.waited_for(now), listed.missing().len()), ([].into(), 0));
    }

    #[test]
    fn when_all_are_listed_nothing_is_waited_for() {
        let mut listed = Listed::new(PATIENCE);
        KINDS.iter().for_each(|kind| listed.complete(*kind));
        assert_eq!(listed.waited_for(Instant::now()), [].into());
    }
}
