//! Which kinds of objects were listed, and for which of the others decisions wait.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tessera_cluster::Kind;

use crate::watches::KINDS;

/// Kinds that say which pods are gangs, and whom nobody may evict. Some are served by others than the API server, or by nobody for hours:
/// meanwhile only pods of theirs wait, and nobody is preempted.
const NOT_FOR_ALL: [Kind; 5] =
    [Kind::Job, Kind::JobSet, Kind::LeaderWorkerSet, Kind::PodGroup, Kind::DisruptionBudget];

/// Which kinds were listed.
#[derive(Debug)]
pub struct Listed {
    missing: BTreeSet<Kind>,
    /// How long [`NOT_FOR_ALL`] are waited for, after all others.
    patience: Duration,
    /// When all others were listed.
    since: Option<Instant>,
}

impl Listed {
    /// None of [`KINDS`] was listed.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Listed { missing: KINDS.into(), patience, since: None }
    }

    /// All objects of the kind were seen.
    pub fn complete(&mut self, kind: Kind) {
        self.missing.remove(&kind);
    }

    /// The kinds of which not all objects were seen.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<Kind> {
        &self.missing
    }

    /// Those of them without which nothing is decided at `now`.
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
