//! Order of pods waiting for managed cards, and devices withheld from later ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_cluster::gang::GangId;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

/// Sort key of a waiting pod or gang: the least goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    priority: Reverse<i32>,
    /// Creation time of its newest pod.
    complete: Option<Timestamp>,
    /// Key of one of its pods, as a tie-breaker.
    pod: Key,
}

impl Order {
    /// The order of a pod or gang. A gang counts as complete with its newest pod. A gang has the lowest priority of its pods:
    /// otherwise one pod of high priority would bring all others forward.
    pub fn of<'p>(pods: impl Iterator<Item = &'p Pod>) -> Self {
        let mut order = Order { priority: Reverse(i32::MAX), complete: None, pod: Key::default() };
        for pod in pods {
            order.priority = Reverse(order.priority.0.min(pod.priority()));
            order.complete = order.complete.max(pod.metadata.creation_timestamp.clone());
            order.pod = order.pod.max(pod.key());
        }
        order
    }

    pub fn priority(&self) -> i32 {
        self.priority.0
    }
}

/// Devices withheld for earlier waiters from later ones.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// First waiter for each pool with a strict queue, and its order.
    heads: BTreeMap<String, (Order, Who)>,
    /// Nodes reserved for gangs after a long wait.
    reserved: BTreeMap<String, Reserved>,
    /// Pools with nodes reserved for a gang: only the first gang of each pool reserves.
    reserving: BTreeMap<String, Who>,
    /// Places of gangs among all waiters at the last full pass, and the number of these waiters.
    places: BTreeMap<GangId, usize>,
    waiting: usize,
}

/// A node reserved for a gang.
#[derive(Debug)]
struct Reserved {
    who: Who,
    priority: i32,
    /// When all nodes of the gang are expected to be free, if known.
    until: Option<Time>,
    /// Set during its gang's turn: dropped at the end of the turn unless renewed.
    is_old: bool,
}

/// A waiting pod outside gangs, or a waiting gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Pod(Key),
    Gang(GangId),
}

/// A request for devices by a pod or gang, with the end of its run if started now, where known.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub who: Who,
    /// Changes when the gang gets another pod.
    pub order: Order,
    pub ends: Option<Time>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.reserved.is_empty()
    }

    /// Begins a full pass over all waiters, in order. Reservations last until the turn of their gang, or the end of its wait.
    pub fn begin_anew(&mut self, all: &[Who]) {
        self.heads.clear();
        self.reserving.clear();
        let known: BTreeSet<&Who> = self.reserved.values().map(|reserved| &reserved.who).collect();
        let left: BTreeSet<Who> = known.into_iter().filter(|who| all.contains(who)).cloned().collect();
        self.reserved.retain(|_, reserved| left.contains(&reserved.who));
        let gangs = all.iter().enumerate().filter_map(|(place, who)| match who {
            Who::Gang(gang) => Some((gang.clone(), place + 1)),
            Who::Pod(_) => None,
        });
        self.places = gangs.collect();
        self.waiting = all.len();
    }

    /// The gang's place, as text; `None` where the gang came after the last full pass, or waits alone.
    pub fn place(&self, gang: &GangId) -> Option<String> {
        let place = self.places.get(gang).filter(|_| self.waiting > 1)?;
        Some(format!("place {place} in the queue"))
    }

    /// Begins a turn.
    pub fn begin_turn(&mut self, who: &Who) {
        self.reserving.retain(|_, other| other != who);
        for reserved in self.reserved.values_mut().filter(|reserved| reserved.who == *who) {
            reserved.is_old = true;
        }
    }

    /// Ends a turn. Returns whether a node is no longer reserved.
    pub fn end_turn(&mut self, who: &Who) -> bool {
        let before = self.reserved.len();
        self.reserved.retain(|_, reserved| !(reserved.is_old && reserved.who == *who));
        self.reserved.len() < before
    }

    /// Enters a waiter for cards of this pool, whose queue is strict.
    pub fn stand(&mut self, pool: &str, order: &Order, who: &Who) {
        let is_first = self.heads.get(pool).is_none_or(|(head, known)| order < head || known == who);
        if is_first {
            self.heads.insert(pool.to_owned(), (order.clone(), who.clone()));
        }
    }

    /// Whether the strict queue of each of these pools is headed by an earlier waiter.
    pub fn is_behind(&self, order: &Order, pools: &BTreeSet<String>) -> bool {
        pools.iter().all(|pool| self.heads.get(pool).is_some_and(|(head, _)| head < order))
    }

    /// Whether no earlier waiter reserves nodes of any of these pools. If so, records `who` as reserving.
    pub fn begin_to_reserve(&mut self, pools: &BTreeSet<String>, who: &Who) -> bool {
        let is_first = pools.iter().all(|pool| self.reserving.get(pool).is_none_or(|first| first == who));
        if is_first {
            self.reserving.extend(pools.iter().map(|pool| (pool.clone(), who.clone())));
        }
        is_first
    }

    /// Reserves the node for a gang, until the gang's expected start.
    pub fn reserve(&mut self, node: String, who: Who, priority: i32, until: Option<Time>) {
        self.reserved.insert(node, Reserved { who, priority, until, is_old: false });
    }

    /// Whether an earlier waiter withholds the node from this request. `pools`: pools of the node's cards.
    pub fn is_kept_from<'q>(&self, asks: &Asks, node: &str, pools: impl Iterator<Item = &'q str>) -> bool {
        if let Some(reserved) = self.reserved.get(node) {
            let is_behind = reserved.who != asks.who && asks.order.priority() <= reserved.priority;
            let is_backfill = asks.ends.zip(reserved.until).is_some_and(|(ends, until)| ends <= until);
            if is_behind && !is_backfill {
                return true;
            }
        }
        let mut heads = pools.into_iter().filter_map(|pool| self.heads.get(pool));
        heads.any(|(head, who)| asks.order > *head && asks.who != *who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(priority: i32, second: i64, ends: Option<u64>) -> Asks {
        let complete = k8s_openapi::jiff::Timestamp::from_second(second).map(Timestamp).ok();
        let pod = Key::cluster(second.to_string());
        let order = Order { priority: Reverse(priority), complete, pod: pod.clone() };
        Asks { who: Who::Pod(pod), order, ends: ends.map(Time::from_secs) }
    }

    #[test]
    fn in_a_strict_queue_nobody_passes_the_first() {
        let mut queue = Queue::default();
        for second in [10, 20] {
            let asks = asks(0, second, None);
            queue.stand("main", &asks.order, &asks.who);
        }
        let is_kept = |asks: &Asks, pool| queue.is_kept_from(asks, "n", std::iter::once(pool));
        assert!(is_kept(&asks(0, 20, None), "main"));
        for other in [asks(0, 10, None), asks(0, 5, None), asks(1, 30, None)] {
            assert!(!is_kept(&other, "main"), "{other:?}");
        }
        assert!(!is_kept(&asks(0, 20, None), "other"));
        // The head itself, with a later pod.
        let later = Asks { who: asks(0, 10, None).who, ..asks(0, 40, None) };
        assert!(!is_kept(&later, "main"));
    }

    #[test]
    fn what_is_reserved_is_for_higher_priorities_and_for_who_ends_in_time() {
        let mut queue = Queue::default();
        let head = asks(1, 10, None);
        let pools = BTreeSet::from(["main".to_owned()]);
        assert!(queue.begin_to_reserve(&pools, &head.who));
        queue.reserve("n".to_owned(), head.who.clone(), 1, Some(Time::from_secs(100)));
        assert!(!queue.begin_to_reserve(&pools, &asks(1, 11, None).who));
        let is_kept = |asks: &Asks, node| queue.is_kept_from(asks, node, std::iter::empty());
        assert!(is_kept(&asks(1, 5, None), "n") && is_kept(&asks(0, 5, Some(101)), "n"));
        for other in [head, asks(0, 5, Some(100)), asks(2, 50, None)] {
            assert!(!is_kept(&other, "n"), "{other:?}");
        }
        assert!(!is_kept(&asks(1, 5, None), "other"));
    }
}
