//! Node reservations for the first long-waiting gang of a pool, and detection of gangs too large for their pools.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::{DeviceName, DeviceType};
use tessera_cluster::{ClaimExt, Holder, Key};
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;
use tessera_placement::{ShapeId, Time};

use super::super::Decider;
use super::{Gang, Member};
use crate::queue::Who;

/// A candidate for reservation, best first: earliest expected to be free, then fewest holders.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// When its cards are expected to be free; nodes with an unknown time sort last.
    free_at: (bool, Time),
    holders: usize,
    name: String,
    /// Number of pods with room on the empty node.
    pods: usize,
}

impl Decider {
    /// Keeps the queue position of a gang without room.
    pub(super) fn stand_as_gang(&mut self, gang: &Gang, open: &[&Member]) {
        if let Some(demand) = largest(open) {
            self.stand(&self.order_of(&gang.id), &Who::Gang(gang.id.clone()), demand);
        }
    }

    /// Whether every node suitable for the gang's largest pod recently refused a pod of the same owner.
    pub(super) fn is_refused_everywhere(&mut self, now: Time, open: &[&Member]) -> bool {
        let largest = open.iter().filter(|member| member.demand.is_some());
        let largest = largest.max_by_key(|member| member.demand.as_ref().map(Demand::devices));
        let asked = largest.and_then(|member| Some((member.demand.as_ref()?, &member.pod)));
        asked.is_some_and(|(demand, pod)| self.is_refused_wherever_it_fits(now, demand, pod))
    }

    /// The reason if the gang's pools never had room for it while this replica led. Such a gang keeps no nodes from others until its
    /// pools grow.
    pub(super) fn too_large(&mut self, gang: &Gang, open: &[&Member], needed: usize) -> Option<String> {
        // Cards in handover will count soon.
        if self.fleet.next_handover().is_some() {
            return None;
        }
        let mut shapes: BTreeMap<ShapeId, (&Demand, usize)> = BTreeMap::new();
        for demand in open.iter().filter_map(|member| member.demand.as_ref()) {
            shapes.entry(demand.shape).or_insert((demand, 0)).1 += 1;
        }
        let mut fit = 0;
        for (demand, pods) in shapes.into_values() {
            let nodes = self.nodes_when_empty(demand, usize::MAX);
            fit += nodes.map_or(pods, |nodes| pods.min(nodes.iter().map(|(_, pods)| pods).sum()));
        }
        let most = self.gangs.see_room(&gang.id, fit);
        (most < needed).then(|| {
            format!(
                "the gang is too large: as far as the controller has seen, its pools never had more than would be \
                 enough for {most} of {needed} pods; others pass it until they grow"
            )
        })
    }

    /// Whether no node of its pools could take the pod even if empty.
    pub(in super::super) fn fits_no_empty_node(&mut self, demand: &Demand) -> bool {
        if self.fleet.next_handover().is_some() {
            return false;
        }
        if let Some(known) = self.round.fits_no_empty_node(demand.shape) {
            return known;
        }
        let fits_none = self.nodes_when_empty(demand, 1).is_some_and(|nodes| nodes.is_empty());
        self.round.set_fits_no_empty_node(demand.shape, fits_none);
        fits_none
    }

    /// Reserves nodes for a gang without room, if it has waited long enough. Returns an addition to its wait reason.
    pub(super) fn reserve_for(&mut self, now: Time, gang: &Gang, open: &[&Member]) -> Option<String> {
        let order = self.order_of(&gang.id);
        let demand = largest(open)?;
        let who = Who::Gang(gang.id.clone());
        let pools = self.pools_asked(demand);
        let after = gang.newest() + self.reserve_after(&pools);
        if now < after {
            self.gangs.set_due(&gang.id, after);
            return None;
        }
        let nodes = self.nodes_when_empty(demand, usize::MAX).filter(|nodes| !nodes.is_empty())?;
        if !self.standing.begin_to_reserve(&pools, &who) {
            return None;
        }
        let kept = |(index, pods): (NodeIndex, usize)| {
            let name = self.fleet.node(index).name.clone();
            let (free_at, holders) = self.free_at(&name);
            Kept { free_at, holders, name, pods }
        };
        let mut nodes: Vec<Kept> = nodes.into_iter().map(kept).collect();
        nodes.sort();
        let mut left = open.len();
        let kept = nodes.into_iter().take_while(|node| {
            let is_needed = left > 0;
            left = left.saturating_sub(node.pods);
            is_needed
        });
        let kept: Vec<Kept> = kept.collect();
        let is_known = kept.iter().all(|node| !node.free_at.0);
        let until = kept.iter().map(|node| node.free_at.1).max().filter(|_| is_known);
        let count = kept.len();
        for node in kept {
            self.standing.reserve(node.name, who.clone(), order.priority(), until);
        }
        let free = until.map_or_else(String::new, |until| {
            format!(", expected to be free in {} min", until.saturating_sub(now).as_secs() / 60)
        });
        Some(format!("nodes kept for it: {count}{free}"))
    }

    /// The shortest reservation delay among the gang's pools.
    fn reserve_after(&self, pools: &BTreeSet<String>) -> Time {
        let cards = self
            .fleet
            .nodes()
            .flat_map(|node| node.report.iter())
            .flat_map(|(_, report)| report.cards.values());
        let own = cards.filter(|card| card.pool.as_ref().is_some_and(|pool| pools.contains(pool)));
        let seconds = own.map(|card| card.placement.reserve_after_seconds).min();
        Time::from_secs(seconds.unwrap_or(tessera_api::gpu_pool::RESERVE_AFTER_SECONDS).into())
    }

    /// At most `most` nodes able to take the pod if empty, each with its capacity in such pods. `None` if the pod asks for parts of
    /// cards, whose possible number is unknown, or if no node has matching devices.
    fn nodes_when_empty(&mut self, demand: &Demand, most: usize) -> Option<Vec<(NodeIndex, usize)>> {
        let before = self.handed_over()?;
        let could: Vec<NodeIndex> = self.ranked(demand).ranking.could().collect();
        let node_of = |index: &NodeIndex| {
            let name = Key::cluster(&self.fleet.node(*index).name);
            self.cluster.objects().nodes.get(&name)
        };
        // Every suitable node gives the pod the same number of devices.
        let first = could.iter().filter_map(node_of).find_map(|node| {
            let (_, claims) = demand.on(node);
            self.cluster.would_place(node, &claims, &self.driver, &mut self.asker)
        });
        let Some(devices) = first else { return (!could.is_empty()).then(Vec::new) };
        let is_whole = |device: &String| {
            let name = device.parse::<DeviceName>();
            name.is_ok_and(|name| name.device_type() == DeviceType::Gpu)
        };
        if devices.is_empty() || !devices.iter().all(is_whole) {
            return None;
        }
        let pods = |index: &NodeIndex| {
            let cards = self.fleet.node(*index).managed_cards(before).len() / devices.len();
            let times = node_of(index)
                .zip(demand.subject.pod.as_ref())
                .map_or(usize::MAX, |(node, pod)| self.cluster.times_when_empty(pod, node));
            cards.min(times)
        };
        let found = could.iter().map(|index| (*index, pods(index))).filter(|(_, pods)| *pods > 0);
        Some(found.take(most).collect())
    }

    /// When all cards of the node are expected to be free according to their pods' `activeDeadlineSeconds` (`true` if a pod has none),
    /// and the number of claims on them.
    fn free_at(&self, node: &str) -> ((bool, Time), usize) {
        let mut claims: BTreeSet<&Key> = BTreeSet::new();
        for device in self.cluster.inventory().devices_of_node(node) {
            claims.extend(self.cluster.holders(device).filter_map(Holder::claim));
        }
        let mut last = (false, Time::ZERO);
        for key in claims.iter().copied() {
            let claim = self.cluster.objects().claims.get(key);
            let pods: Vec<_> = claims_pods(self, key, claim.map(AsRef::as_ref));
            for pod in pods {
                let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
                let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
                let end = deadline.zip(started).map(|(seconds, started)| started.0.as_second() + seconds);
                match end.and_then(|end| u64::try_from(end).ok()) {
                    Some(end) => last.1 = last.1.max(Time::from_secs(end)),
                    None => last.0 = true,
                }
            }
        }
        (last, claims.len())
    }
}

/// The demand for the most devices.
fn largest<'m>(open: &[&'m Member]) -> Option<&'m Demand> {
    open.iter().filter_map(|member| member.demand.as_ref()).max_by_key(|demand| demand.devices())
}

/// The pods using a claim.
fn claims_pods<'d>(
    decider: &'d Decider,
    key: &Key,
    claim: Option<&'d k8s_openapi::api::resource::v1::ResourceClaim>,
) -> Vec<&'d k8s_openapi::api::core::v1::Pod> {
    let users = claim.into_iter().flat_map(ClaimExt::users);
    let pods = users
        .filter_map(|user| decider.cluster.objects().pods.get(&key.with_name(&user.name)).map(AsRef::as_ref));
    pods.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use k8s_openapi::api::resource::v1::ResourceSlice;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
    use tessera_cluster::Object;

    use super::*;
    use crate::Observation;

    /// Nominated devices are still held by their victims; counting both would overstate the node's holders.
    #[test]
    fn what_is_nominated_is_held_by_no_claim() {
        let mut decider = Decider::new("gpu.tessera.dev", || "share".to_owned());
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let slice: ResourceSlice = serde_json::from_value(json!({ "metadata": { "name": "a-0" }, "spec": {
            "driver": "gpu.tessera.dev", "nodeName": "a", "devices": [{ "name": "gpu-01-00" }],
            "pool": { "name": "a", "generation": 1, "resourceSliceCount": 1 } } }))
        .unwrap();
        for object in [Object::from(node), Object::from(slice)] {
            decider.observe(Time::ZERO, Observation::Applied(Box::new(object))).unwrap();
        }
        let until = Timestamp::from_second(60).unwrap();
        let nomination = Nomination { node: "a".to_owned(), devices: vec!["gpu-01-00".to_owned()], until };
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u",
            "annotations": { NOMINATION_ANNOTATION: nomination.encode() } },
            "spec": { "containers": [], "resourceClaims": [{ "name": "c", "resourceClaimName": "none" }] } }))
            .unwrap();
        decider.with_nominated(Time::ZERO, &[(&Key::new("n", "p"), &pod)], |_| Vec::new());
        let device = decider.cluster.inventory().devices_of_node("a").next().unwrap();
        assert!(decider.cluster.held().holds_whole(device));
        assert_eq!(decider.free_at("a").1, 0);
    }
}
