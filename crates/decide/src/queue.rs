//! Who goes first of those that wait for managed cards, and what the others may not have meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_cluster::{Key, key};

use crate::Time;

/// The place of a pod or a gang among those that wait: the least goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    priority: Reverse<i32>,
    /// When it was complete.
    complete: Option<Timestamp>,
    /// One of its pods, so that no two are equal.
    pod: Key,
}

impl Order {
    /// The place of a pod, or of a gang, which was complete with its newest pod.
    pub fn of<'p>(pods: impl Iterator<Item = &'p Pod>) -> Self {
        let mut order = Order { priority: Reverse(i32::MIN), complete: None, pod: Key::default() };
        for pod in pods {
            order.priority = Reverse(order.priority.0.max(priority(pod)));
            order.complete = order.complete.max(pod.metadata.creation_timestamp.clone());
            order.pod = order.pod.max(key(&pod.metadata));
        }
        order
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.priority.0
    }
}

/// The pod's priority: 0 where admission wrote none.
pub(crate) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// What those in front keep from those behind.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Of each pool whose queue is strict, the first that waits, with what people call it.
    heads: BTreeMap<String, (Order, String)>,
    /// Nodes that are kept for gangs that have waited long.
    reserved: BTreeMap<String, Reserved>,
    /// Pools of which a gang keeps nodes: only the first of each does.
    reserving: BTreeSet<String>,
}

/// A node that is kept for a gang.
#[derive(Debug)]
struct Reserved {
    order: Order,
    gang: String,
    /// When all nodes of the gang are expected to be free, if that is known.
    until: Option<Time>,
}

/// Who asks, and until when it would run, if that is known.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub order: Order,
    pub ends: Option<Time>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.reserved.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Queue::default();
    }

    /// It waits for cards of this pool, whose queue is strict.
    pub fn stand(&mut self, pool: &str, order: &Order, name: &str) {
        let is_first = self.heads.get(pool).is_none_or(|(head, _)| order < head);
        if is_first {
            self.heads.insert(pool.to_owned(), (order.clone(), name.to_owned()));
        }
    }

    /// Whether nobody before it keeps nodes of any of these pools; it counts as the one that does from now on.
    pub fn begin_to_reserve(&mut self, pools: &BTreeSet<String>, order: &Order) -> bool {
        let is_own = self.reserved.values().any(|reserved| reserved.order == *order);
        let is_first = is_own || pools.is_disjoint(&self.reserving);
        if is_first {
            self.reserved.retain(|_, reserved| reserved.order != *order);
            self.reserving.extend(pools.iter().cloned());
        }
        is_first
    }

    /// Keeps the node for a gang, until when it is expected to begin.
    pub fn reserve(&mut self, node: String, order: Order, gang: &str, until: Option<Time>) {
        self.reserved.insert(node, Reserved { order, gang: gang.to_owned(), until });
    }

    /// For whom the node is kept from the one that asks, if it is. `pools`: those of the node's cards.
    pub fn kept_for<'q>(
        &'q self,
        asks: &Asks,
        node: &str,
        pools: impl Iterator<Item = &'q str>,
    ) -> Option<&'q str> {
        if let Some(reserved) = self.reserved.get(node) {
            let is_behind =
                reserved.order != asks.order && asks.order.priority() <= reserved.order.priority();
            let is_backfill = asks.ends.zip(reserved.until).is_some_and(|(ends, until)| ends <= until);
            if is_behind && !is_backfill {
                return Some(&reserved.gang);
            }
        }
        let heads = pools.into_iter().filter_map(|pool| self.heads.get(pool));
        let first = heads.into_iter().find(|(head, _)| asks.order > *head);
        first.map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(priority: i32, second: i64, ends: Option<u64>) -> Asks {
        let complete = k8s_openapi::jiff::Timestamp::from_second(second).map(Timestamp).ok();
        let pod = (String::new(), second.to_string());
        let order = Order { priority: Reverse(priority), complete, pod };
        Asks { order, ends: ends.map(Time::from_secs) }
    }

    #[test]
    fn in_a_strict_queue_nobody_passes_the_first() {
        let mut queue = Queue::default();
        queue.stand("main", &asks(0, 10, None).order, "head");
        queue.stand("main", &asks(0, 20, None).order, "second");
        let kept = |asks: &Asks, pool| queue.kept_for(asks, "n", std::iter::once(pool));
        assert_eq!(kept(&asks(0, 20, None), "main"), Some("head"));
        assert_eq!(kept(&asks(0, 10, None), "main"), None);
        assert_eq!(kept(&asks(0, 5, None), "main"), None);
        assert_eq!(kept(&asks(1, 30, None), "main"), None);
        assert_eq!(kept(&asks(0, 20, None), "other"), None);
    }

    #[test]
    fn what_is_reserved_is_for_higher_priorities_and_for_who_ends_in_time() {
        let mut queue = Queue::default();
        let head = asks(1, 10, None);
        let pools = BTreeSet::from(["main".to_owned()]);
        assert!(queue.begin_to_reserve(&pools, &head.order));
        queue.reserve("n".to_owned(), head.order.clone(), "train", Some(Time::from_secs(100)));
        assert!(!queue.begin_to_reserve(&pools, &asks(1, 11, None).order));
        let kept = |asks: &Asks, node| queue.kept_for(asks, node, std::iter::empty());
        assert_eq!(kept(&head, "n"), None);
        assert_eq!(kept(&asks(1, 5, None), "n"), Some("train"));
        assert_eq!(kept(&asks(0, 5, Some(101)), "n"), Some("train"));
        assert_eq!(kept(&asks(0, 5, Some(100)), "n"), None);
        assert_eq!(kept(&asks(2, 50, None), "n"), None);
        assert_eq!(kept(&asks(1, 5, None), "other"), None);
    }
}
