//! Amounts a node lacks for a pod.

use k8s_openapi::api::core::v1::{Node, Pod};

use super::{NANO, nanos, requests};
use crate::cluster::Cluster;

/// Resources requested by a pod, with its pod slot.
#[derive(Debug, Clone)]
pub struct Requested {
    /// By name, in billionths of a unit.
    amounts: Vec<(String, i128)>,
}

impl Requested {
    /// The pod's requests, counted like kube-scheduler.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let amounts = requests(pod).into_iter().filter(|(_, amount)| *amount > 0);
        Self { amounts: amounts.chain([("pods".to_owned(), NANO)]).collect() }
    }

    /// Each resource with the requested amount, in billionths of a unit.
    pub fn amounts(&self) -> impl ExactSizeIterator<Item = (&str, i128)> {
        self.amounts.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The part of a holder's room that is of these resources, in their order.
    pub fn part_of(&self, hold: &crate::Hold) -> Vec<i128> {
        let part = |(name, _): &(String, i128)| match name.as_str() {
            "pods" => NANO,
            name => hold.requested().find(|(other, _)| *other == name).map_or(0, |(_, amount)| amount),
        };
        self.amounts.iter().map(part).collect()
    }
}

impl Cluster {
    /// Free amounts of these resources on the node, in their order and in billionths of a unit; unlimited where the node states no
    /// amount. Negative where more is taken than the node has.
    pub fn free(&self, requested: &Requested, node: &Node) -> Vec<i128> {
        let usage = self.taken.usages().by_node.get(node.metadata.name.as_deref().unwrap_or_default());
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let free = |(resource, _): &(String, i128)| {
            let all = allocatable.and_then(|all| all.get(resource)).map(nanos);
            let Some(all) = all.or_else(|| self.is_absent(resource, node).then_some(0)) else {
                return i128::MAX;
            };
            let used = usage.map_or(0, |usage| match resource.as_str() {
                "pods" => i128::from(usage.pods) * NANO,
                name => usage.requested.get(name).copied().unwrap_or(0),
            });
            all.saturating_sub(used)
        };
        requested.amounts.iter().map(free).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Holder, Key};

    #[test]
    fn what_is_free_is_what_a_node_has_beyond_its_pods() {
        let pod = |name: &str, node: Option<&str>, cpu: &str| -> Pod {
            let requests = json!({ "cpu": cpu, "memory": "1Gi" });
            let containers = json!([{ "name": "c", "resources": { "requests": requests } }]);
            serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "n" },
                "spec": { "nodeName": node, "containers": containers } }))
            .unwrap()
        };
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "a" },
            "status": { "allocatable": { "cpu": "4", "pods": "1" } } }))
        .unwrap();
        let mut cluster = Cluster::default();
        cluster.apply(node.clone()).unwrap();
        cluster.apply(pod("old", Some("a"), "5")).unwrap();
        let requested = Requested::of(&pod("new", None, "2"));
        let free: Vec<_> =
            requested.amounts().map(|(name, _)| name).zip(cluster.free(&requested, &node)).collect();
        assert_eq!(free, [("cpu", -NANO), ("memory", i128::MAX), ("pods", 0)]);
        let hold = cluster.hold(&Holder::Pod(Key::new("n", "old"))).unwrap();
        assert_eq!(requested.part_of(hold), [5 * NANO, NANO << 30, NANO]);
    }
}
