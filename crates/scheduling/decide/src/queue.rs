//! Order of pods waiting for managed cards, and devices withheld from later ones.

mod reservations;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_cluster::gang::GangId;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::group::GroupId;
use crate::teams::Place;

pub(crate) use reservations::{Judged, Kept, Reservations};

/// Sort key of a waiting pod or gang: the least goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    /// Place of its team when this was computed; `None`, before all teams, for an exempt group.
    team: Option<Place>,
    priority: Reverse<i32>,
    /// When it was complete first, as far as its pods show.
    complete: Option<Timestamp>,
    /// Key of one of its pods, as a tie-breaker.
    pod: Key,
    /// Since when it waits, if not since `complete`.
    waits_since: Option<Timestamp>,
}

impl Order {
    /// The order of a pod outside gangs.
    pub fn of(pod: &Pod) -> Self {
        Self::of_gang(std::iter::once(pod), 1, 0)
    }

    /// The order of a gang needing `min` pods that started with `formed` ([`crate::gangs::Gangs::formed`]). A gang has the lowest priority of its pods: otherwise one pod of high priority would
    /// bring all others forward. Its place is that of its first complete start: once some of its pods run, the creation of the oldest
    /// running pod, whatever was created anew since; before, and for the pods added to a whole gang, the creation of the last pod
    /// it needs.
    pub fn of_gang<'p>(pods: impl Iterator<Item = &'p Pod>, min: usize, formed: usize) -> Self {
        let mut order = Order {
            team: Some(Place::default()),
            priority: Reverse(i32::MAX),
            complete: None,
            pod: Key::default(),
            waits_since: None,
        };
        let (mut waiting, mut running, mut lost) = (Vec::new(), Vec::new(), None);
        for pod in pods {
            order.priority = Reverse(order.priority.0.min(pod.priority()));
            order.pod = order.pod.max(pod.key());
            let created = pod.metadata.creation_timestamp.clone();
            if pod.metadata.deletion_timestamp.is_some() || pod.phase() == Some("Failed") {
                lost = lost.max(created);
            } else if pod.node_name().is_some() {
                running.push(created);
            } else {
                waiting.push(created);
            }
        }
        waiting.sort_unstable();
        // Whole as it started, it asks for added pods only: those have no older right than others.
        let is_growing = formed > 0 && running.len() >= formed.min(min) && !waiting.is_empty();
        let needed = if is_growing { min.saturating_sub(running.len()) } else { min };
        let last = needed.clamp(1, waiting.len().max(1)) - 1;
        let oldest = running.into_iter().min().filter(|_| !is_growing);
        let complete = oldest.or_else(|| waiting.into_iter().nth(last));
        order.complete = complete.unwrap_or(lost);
        order
    }

    /// The same, with the place of its team; `None` for an exempt group.
    pub fn of_team(self, team: Option<Place>) -> Self {
        Order { team, ..self }
    }

    /// The same, with the place of one that was complete at another time.
    pub fn with_place_of(self, time: Timestamp) -> Self {
        Order { waits_since: self.complete.clone(), complete: Some(time), ..self }
    }

    /// Whether it goes before all teams.
    pub fn is_exempt(&self) -> bool {
        self.team.is_none()
    }

    /// Compares without the places of teams.
    pub fn cmp_in_team(&self, other: &Self) -> Ordering {
        let Order { team: _, priority, complete, pod, waits_since: _ } = self;
        (priority, complete, pod).cmp(&(&other.priority, &other.complete, &other.pod))
    }

    /// When the pod or gang was complete first.
    pub fn since(&self) -> Time {
        let complete = self.waits_since.as_ref().or(self.complete.as_ref());
        let second = complete.and_then(|time| u64::try_from(time.0.as_second()).ok());
        second.map(Time::from_secs).unwrap_or_default()
    }

    pub fn priority(&self) -> i32 {
        self.priority.0
    }
}

/// Devices withheld for earlier waiters from later ones.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// First waiter for each pool with a strict queue, and its order.
    heads: BTreeMap<String, (Order, GroupId)>,
    /// Nodes reserved for gangs after a long wait.
    pub reservations: Reservations,
    /// Places of gangs among all waiters at the last full pass, and the number of these waiters.
    places: BTreeMap<GangId, usize>,
    waiting: usize,
}

/// A request for devices by a pod or gang, with the end of its run if started now, where known.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub who: GroupId,
    /// Changes when the gang gets another pod.
    pub order: Order,
    pub ends: Option<Time>,
    /// The present.
    pub now: Time,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.reservations.is_empty()
    }

    /// Begins a full pass over all waiters, in order. Reservations last until the turn of their gang, or the end of its wait.
    pub fn begin_anew(&mut self, all: &[GroupId]) {
        self.heads.clear();
        self.reservations.begin_anew(all);
        let gangs = all.iter().enumerate().filter_map(|(place, who)| match who {
            GroupId::Gang(gang) => Some((gang.clone(), place + 1)),
            GroupId::Pod(_) => None,
        });
        self.places = gangs.collect();
        self.waiting = all.len();
    }

    /// The gang's place, as text; `None` where the gang came after the last full pass, or waits alone.
    pub fn place(&self, gang: &GangId) -> Option<String> {
        let place = self.places.get(gang).filter(|_| self.waiting > 1)?;
        Some(format!("place {place} in the queue"))
    }

    /// Enters a waiter for cards of this pool, whose queue is strict.
    pub fn stand(&mut self, pool: &str, order: &Order, who: &GroupId) {
        let is_first = self.heads.get(pool).is_none_or(|(head, known)| order < head || known == who);
        if is_first {
            self.heads.insert(pool.to_owned(), (order.clone(), who.clone()));
        }
    }

    /// Whether the strict queue of each of these pools is headed by an earlier waiter.
    pub fn is_behind(&self, order: &Order, pools: &BTreeSet<String>) -> bool {
        pools.iter().all(|pool| self.heads.get(pool).is_some_and(|(head, _)| head < order))
    }

    /// Whether an earlier waiter withholds the node from this request. `pools`: pools of the node's cards.
    pub fn is_kept_from<'q>(&self, asks: &Asks, node: &str, pools: impl Iterator<Item = &'q str>) -> bool {
        if self.reservations.keep(node, asks) {
            return true;
        }
        let mut heads = pools.into_iter().filter_map(|pool| self.heads.get(pool));
        heads.any(|(head, who)| asks.order > *head && asks.who != *who)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn asks(priority: i32, second: i64, ends: Option<u64>) -> Asks {
        let complete = k8s_openapi::jiff::Timestamp::from_second(second).map(Timestamp).ok();
        let pod = Key::cluster(second.to_string());
        let order = Order {
            team: Some(Place::default()),
            priority: Reverse(priority),
            complete,
            pod: pod.clone(),
            waits_since: None,
        };
        Asks { who: GroupId::Pod(pod), order, ends: ends.map(Time::from_secs), now: Time::ZERO }
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
}
