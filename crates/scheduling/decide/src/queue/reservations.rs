//! Nodes reserved for gangs after a long wait.
//!
//! Every reservation ends: with the start of its gang, once its nodes are free and the gang still does not fit, or after a time.
//! Then others get the nodes, and the gang may reserve again after a growing pause.

use std::collections::{BTreeMap, BTreeSet};

use tessera_placement::Time;

use super::Asks;
use crate::backoff::Backoff;
use crate::group::GroupId;

/// Longest reservation of nodes without a known time to become free, from the last time a holder of their devices ended: a gang of
/// whole nodes waits for jobs of hours, and would wait again for those that took the freed devices meanwhile.
const STALLED: Time = Time::from_secs(24 * 3_600);

/// Time beyond the known one for nodes to become free.
const LATE: Time = Time::from_secs(30 * 60);

/// First and longest pause after a reservation of nodes that did not become free: others get time to use them.
const TOO_LONG: [Time; 2] = [Time::from_secs(4 * 3_600), Time::from_secs(48 * 3_600)];

/// Latest known time, from the begin of a reservation, for its nodes to become free.
const LATEST: Time = Time::from_secs(24 * 3_600);

/// Time for a gang to fit once all of its reserved nodes are free: pods may still be ending there.
const SETTLE: Time = Time::from_secs(60);

/// First and longest pause after a reservation of free nodes too small for its gang.
const NO_USE: [Time; 2] = [Time::from_secs(10 * 60), Time::from_secs(4 * 3_600)];

/// Backfill on nodes reserved without a known time: pods ending within this time may run there.
const BACKFILL: Time = Time::from_secs(10 * 60);

/// A node reserved for a gang.
#[derive(Debug)]
struct Reserved {
    who: GroupId,
    priority: i32,
    /// When all nodes of the gang are expected to be free, if known.
    until: Option<Time>,
    /// Set during its gang's turn: dropped at the end of the turn unless renewed.
    is_old: bool,
}

/// Nodes a gang asks to have reserved.
pub(crate) struct Kept {
    pub nodes: Vec<String>,
    /// The gang's priority.
    pub priority: i32,
    /// When all of them are expected to be free, if known.
    pub until: Option<Time>,
    /// Number of claims that hold their devices.
    pub holders: usize,
}

/// Outcome of a request for a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Reserved. To be judged again at this time.
    Reserved(Time),
    /// All nodes were free, and the gang did not fit. Nothing is reserved until the end of the pause.
    NoUse(Time),
    /// The nodes did not become free for long. Nothing is reserved until the end of the pause.
    TooLong(Time),
}

/// Progress of a gang's reservation.
#[derive(Debug, Clone, Copy)]
struct Progress {
    since: Time,
    free_since: Option<Time>,
    /// The fewest holders so far, and the time of the last change.
    holders: usize,
    freed: Time,
}

/// Reserved nodes, and pauses of gangs after reservations in vain.
#[derive(Debug)]
pub(crate) struct Reservations {
    nodes: BTreeMap<String, Reserved>,
    /// Pools with nodes reserved for a gang: only the first gang of each pool reserves.
    first: BTreeMap<String, GroupId>,
    progress: BTreeMap<GroupId, Progress>,
    no_use: Backoff<GroupId>,
    too_long: Backoff<GroupId>,
}

impl Default for Reservations {
    fn default() -> Self {
        Reservations {
            nodes: BTreeMap::new(),
            first: BTreeMap::new(),
            progress: BTreeMap::new(),
            no_use: Backoff::new(NO_USE[0], NO_USE[1]),
            too_long: Backoff::new(TOO_LONG[0], TOO_LONG[1]),
        }
    }
}

impl Reservations {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Begins a full pass over all waiters. Reservations last until the turn of their gang, or the end of its wait.
    pub fn begin_anew(&mut self, all: &[GroupId]) {
        self.first.clear();
        let left: BTreeSet<GroupId> = self.progress.keys().filter(|who| all.contains(who)).cloned().collect();
        self.nodes.retain(|_, reserved| left.contains(&reserved.who));
        self.progress.retain(|who, _| left.contains(who));
    }

    /// Begins a turn.
    pub fn begin_turn(&mut self, who: &GroupId) {
        self.first.retain(|_, other| other != who);
        for reserved in self.nodes.values_mut().filter(|reserved| reserved.who == *who) {
            reserved.is_old = true;
        }
    }

    /// Ends a turn. Returns whether a node is no longer reserved.
    pub fn end_turn(&mut self, who: &GroupId) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, reserved| !(reserved.is_old && reserved.who == *who));
        if self.nodes.values().all(|reserved| reserved.who != *who) {
            self.progress.remove(who);
        }
        self.nodes.len() < before
    }

    /// The gang's pause, if any.
    pub fn paused(&self, who: &GroupId, now: Time) -> Option<Judged> {
        let no_use = self.no_use.until(who, now).map(Judged::NoUse);
        no_use.or_else(|| self.too_long.until(who, now).map(Judged::TooLong))
    }

    /// Whether others pass the gang: free nodes reserved for it were of no use.
    pub fn is_passed(&self, who: &GroupId, now: Time) -> bool {
        self.no_use.is_paused(who, now)
    }

    /// Whether no earlier waiter reserves nodes of any of these pools.
    pub fn is_first(&self, pools: &BTreeSet<String>, who: &GroupId) -> bool {
        pools.iter().all(|pool| self.first.get(pool).is_none_or(|first| first == who))
    }

    /// Reserves nodes of these pools for a gang without room, unless its reservation ends now.
    pub fn reserve(&mut self, who: &GroupId, pools: &BTreeSet<String>, kept: Kept, now: Time) -> Judged {
        let begun = Progress { since: now, free_since: None, holders: kept.holders, freed: now };
        let progress = self.progress.entry(who.clone()).or_insert(begun);
        progress.free_since = (kept.holders == 0).then(|| progress.free_since.unwrap_or(now));
        if kept.holders < progress.holders {
            (progress.holders, progress.freed) = (kept.holders, now);
        }
        let Progress { since, free_since, freed, .. } = *progress;
        let useless = free_since.map(|since| since + SETTLE);
        if useless.is_some_and(|end| end <= now) {
            return Judged::NoUse(self.no_use.fail(who.clone(), now));
        }
        let end = match kept.until {
            Some(until) => until.clamp(since, since + LATEST) + LATE,
            None => freed + STALLED,
        };
        if end <= now {
            return Judged::TooLong(self.too_long.fail(who.clone(), now));
        }
        self.first.extend(pools.iter().map(|pool| (pool.clone(), who.clone())));
        for node in kept.nodes {
            let (priority, until) = (kept.priority, kept.until);
            self.nodes.insert(node, Reserved { who: who.clone(), priority, until, is_old: false });
        }
        Judged::Reserved(useless.map_or(end, |useless| useless.min(end)))
    }

    /// Whether the node is reserved for another waiter, and not available for this request meanwhile.
    pub fn keep(&self, node: &str, asks: &Asks) -> bool {
        let Some(reserved) = self.nodes.get(node) else { return false };
        let is_behind = reserved.who != asks.who && asks.order.priority() <= reserved.priority;
        let end = reserved.until.unwrap_or(asks.now + BACKFILL);
        is_behind && asks.ends.is_none_or(|ends| ends > end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::asks;
    use super::*;

    const fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    fn kept(until: Option<u64>, are_free: bool) -> Kept {
        let holders = if are_free { 0 } else { 9 };
        Kept { nodes: vec!["n".to_owned()], priority: 1, until: until.map(Time::from_secs), holders }
    }

    fn pools() -> BTreeSet<String> {
        BTreeSet::from(["main".to_owned()])
    }

    #[test]
    fn what_is_reserved_is_for_higher_priorities_and_for_who_ends_in_time() {
        for (until, last) in [(Some(100), 100), (None, 600)] {
            let mut queue = Reservations::default();
            let head = asks(1, 10, None);
            queue.reserve(&head.who, &pools(), kept(until, false), Time::ZERO);
            assert!(queue.is_first(&pools(), &head.who) && !queue.is_first(&pools(), &asks(1, 11, None).who));
            assert!(queue.keep("n", &asks(1, 5, None)) && queue.keep("n", &asks(0, 5, Some(last + 1))));
            for other in [head, asks(0, 5, Some(last)), asks(2, 50, None)] {
                assert!(!queue.keep("n", &other), "{other:?}");
            }
            assert!(!queue.keep("other", &asks(1, 5, None)));
        }
    }

    /// One turn of the gang.
    fn turn(queue: &mut Reservations, kept: Kept, now: u64) -> Judged {
        let who = asks(1, 10, None).who;
        queue.begin_turn(&who);
        let judged = queue.reserve(&who, &pools(), kept, at(now));
        queue.end_turn(&who);
        judged
    }

    #[test]
    fn a_reservation_ends_soon_once_its_nodes_are_free() {
        let mut queue = Reservations::default();
        // Free nodes are free since ever.
        let who = asks(1, 10, None).who;
        assert_eq!(
            queue.reserve(&who, &pools(), kept(Some(0), true), at(9_000)),
            Judged::Reserved(at(9_060))
        );
        let mut queue = Reservations::default();
        assert_eq!(turn(&mut queue, kept(None, true), 0), Judged::Reserved(at(60)));
        // Taken again by a pod of higher priority.
        assert_eq!(turn(&mut queue, kept(None, false), 50), Judged::Reserved(at(86_400)));
        assert_eq!(turn(&mut queue, kept(Some(0), true), 70), Judged::Reserved(at(130)));
        assert_eq!(turn(&mut queue, kept(Some(0), true), 130), Judged::NoUse(at(730)));
        assert!(queue.is_empty() && queue.is_passed(&who, at(729)) && queue.paused(&who, at(730)).is_none());
        // The next pause is longer.
        turn(&mut queue, kept(None, true), 730);
        assert_eq!(turn(&mut queue, kept(None, true), 790), Judged::NoUse(at(790 + 1_200)));
    }

    #[test]
    fn a_reservation_ends_some_time_after_its_nodes_should_be_free() {
        let mut queue = Reservations::default();
        assert_eq!(turn(&mut queue, kept(Some(5_000), false), 0), Judged::Reserved(at(6_800)));
        assert_eq!(turn(&mut queue, kept(Some(900_000), false), 100), Judged::Reserved(at(86_400 + 1_800)));
        assert_eq!(turn(&mut queue, kept(None, false), 86_399), Judged::Reserved(at(86_400)));
        assert_eq!(turn(&mut queue, kept(None, false), 86_400), Judged::TooLong(at(86_400 + 14_400)));
        let who = asks(1, 10, None).who;
        assert!(queue.is_empty() && !queue.is_passed(&who, at(86_401)));
        assert_eq!(queue.paused(&who, at(86_400 + 14_399)), Some(Judged::TooLong(at(86_400 + 14_400))));
    }

    #[test]
    fn a_reservation_goes_on_while_holders_end() {
        let mut queue = Reservations::default();
        let with = |holders: usize| Kept { holders, ..kept(None, false) };
        assert_eq!(turn(&mut queue, with(3), 0), Judged::Reserved(at(86_400)));
        assert_eq!(turn(&mut queue, with(2), 14_000), Judged::Reserved(at(100_400)));
        // Taken by a pod of higher priority, and given back: nothing more than before.
        assert_eq!(turn(&mut queue, with(3), 15_000), Judged::Reserved(at(100_400)));
        assert_eq!(turn(&mut queue, with(2), 16_000), Judged::Reserved(at(100_400)));
        assert_eq!(turn(&mut queue, with(2), 100_400), Judged::TooLong(at(100_400 + 14_400)));
    }
}
