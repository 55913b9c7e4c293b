//! Room of the fleet if nothing were held, and the time at which nodes become free.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_allocator::inventory::SliceKind;
use tessera_api::{DeviceName, DeviceType};
use tessera_cluster::gang::GangId;
use tessera_cluster::worth::Worth;
use tessera_cluster::{Holder, Key};
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;
use tessera_placement::{ShapeId, Time, victims};

use crate::group::{Group, GroupId, Member};
use crate::state::State;
use crate::teams::Allowance;
use crate::{holders, nodes, refusals};

/// Number of nodes refusing an owner's pods after which the next one probably will, too.
const MANY: usize = 4;

/// The demand for the most devices.
pub(crate) fn largest<'m>(open: &[&'m Member]) -> Option<&'m Demand> {
    open.iter().filter_map(|member| member.demand.as_ref()).max_by_key(|demand| demand.devices())
}

/// Whether all nodes with room now, or all with room if less were held, or many, recently refused a pod of the same owner.
fn is_refused_wherever_it_fits(state: &mut State, now: Time, demand: &Demand, pod: &Pod) -> bool {
    let owner = refusals::owner(pod);
    if !state.refusals.has_any(&owner) {
        return false;
    }
    if state.refusals.count(&owner, now) >= MANY {
        return true;
    }
    let ranked = nodes::ranked(&mut state.world, demand);
    let is_refused = |index: NodeIndex| {
        let node = &ranked.view.fleet.node(index).name;
        state.refusals.contains(&owner, node, now)
    };
    let all = |mut nodes: Box<dyn Iterator<Item = NodeIndex> + '_>| {
        nodes.next().is_some_and(is_refused) && nodes.all(is_refused)
    };
    all(Box::new(ranked.ranking.best().map(|(_, index)| index))) || all(Box::new(ranked.ranking.could()))
}

/// Whether every node suitable for the largest of these pods recently refused a pod of the same owner.
pub(crate) fn is_refused_everywhere(state: &mut State, now: Time, open: &[&Member]) -> bool {
    let largest = open.iter().filter(|member| member.demand.is_some());
    let largest = largest.max_by_key(|member| member.demand.as_ref().map(Demand::devices));
    let asked = largest.and_then(|member| Some((member.demand.as_ref()?, &member.pod)));
    asked.is_some_and(|(demand, pod)| is_refused_wherever_it_fits(state, now, demand, pod))
}

/// Why no change of what is held would make room for the group, if so: others pass it.
pub(crate) fn never_fits(
    state: &mut State,
    group: &Group,
    open: &[&Member],
    needed: usize,
) -> Option<String> {
    match (&group.id, open) {
        (GroupId::Gang(gang), _) => too_large(state, gang, group, open, needed),
        (GroupId::Pod(_), [member]) => {
            let fits_none = fits_no_empty_node(state, member.demand.as_ref()?);
            fits_none.then(|| "no node could take it if it were empty: others pass it".to_owned())
        }
        (GroupId::Pod(_), _) => None,
    }
}

/// The reason if the gang's pools never had room for it while this replica led. Such a gang keeps no nodes from others until its
/// pools grow.
fn too_large(
    state: &mut State,
    gang: &GangId,
    group: &Group,
    open: &[&Member],
    needed: usize,
) -> Option<String> {
    // Cards in handover will count soon.
    if state.world.fleet.next_handover().is_some() {
        return None;
    }
    let mut shapes: BTreeMap<ShapeId, (&Demand, usize)> = BTreeMap::new();
    for demand in open.iter().filter_map(|member| member.demand.as_ref()) {
        shapes.entry(demand.shape).or_insert((demand, 0)).1 += 1;
    }
    let mut seats: BTreeMap<&str, usize> = BTreeMap::new();
    for node in group.members.iter().filter_map(Member::node_with_devices) {
        *seats.entry(node).or_default() += 1;
    }
    let mut fit = 0;
    for (demand, pods) in shapes.into_values() {
        let nodes = nodes_when_empty(state, demand, usize::MAX);
        // The gang's own pods stay on their nodes.
        let own = |index: &NodeIndex| seats.get(state.world.fleet.node(*index).name.as_str()).copied();
        let left = |(index, pods): &(NodeIndex, usize)| pods.saturating_sub(own(index).unwrap_or_default());
        fit += nodes.map_or(pods, |nodes| pods.min(nodes.iter().map(left).sum()));
    }
    let held = seats.values().sum::<usize>();
    let most = state.gangs.raise_room(gang, fit + held).saturating_sub(held);
    (most < needed).then(|| {
        format!(
            "the gang is too large: as far as the controller has seen, its pools never had more than would be \
             enough for {most} of {needed} pods; others pass it until they grow"
        )
    })
}

/// Whether no node of its pools could take the pod even if empty.
fn fits_no_empty_node(state: &mut State, demand: &Demand) -> bool {
    if state.world.fleet.next_handover().is_some() {
        return false;
    }
    if let Some(known) = state.round.fits_no_empty_node(demand.shape) {
        return known;
    }
    let fits_none = nodes_when_empty(state, demand, 1).is_some_and(|nodes| nodes.is_empty());
    state.round.set_fits_no_empty_node(demand.shape, fits_none);
    fits_none
}

/// At most `most` nodes able to take the pod if empty, each with its capacity in such pods. `None` if the pod asks for parts of
/// cards, whose possible number is unknown, or if no node has matching devices.
pub(crate) fn nodes_when_empty(
    state: &mut State,
    demand: &Demand,
    most: usize,
) -> Option<Vec<(NodeIndex, usize)>> {
    let before = state.world.handed_over?;
    let could: Vec<NodeIndex> = nodes::ranked(&mut state.world, demand).ranking.could().collect();
    let node_of = |index: &NodeIndex| {
        let name = Key::cluster(&state.world.fleet.node(*index).name);
        state.world.cluster.objects().nodes.get(&name)
    };
    // Every suitable node gives the pod the same number of devices.
    let first = could.iter().filter_map(node_of).find_map(|node| {
        let (_, claims) = demand.on(node);
        state.world.cluster.would_place(node, &claims, &state.world.driver, &mut state.world.asker)
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
        let cards = state.world.fleet.node(*index).managed_cards(before).len() / devices.len();
        let times = node_of(index)
            .zip(demand.subject.pod.as_ref())
            .map_or(usize::MAX, |(node, pod)| state.world.cluster.times_when_empty(pod, node));
        cards.min(times)
    };
    let found = could.iter().map(|index| (*index, pods(index))).filter(|(_, pods)| *pods > 0);
    Some(found.take(most).collect())
}

/// Whether a limit on all cards leaves too little for `needed` of these pods, on whichever nodes.
pub(crate) fn asks_for_more_than_is_left(
    state: &mut State,
    group: &Group,
    open: &[&Member],
    needed: usize,
    allowance: Allowance,
) -> bool {
    let Some(limit) = state.world.teams.limit(group.id.namespace(), allowance) else { return false };
    let cards = least_cards_of(state, open, needed);
    limit.leaves_less(&state.world.cluster, Worth { cards, ..Worth::default() })
}

/// The least cards taken by `needed` of these pods, in the unit of [`Worth::cards`].
pub(crate) fn least_cards_of(state: &mut State, open: &[&Member], needed: usize) -> u64 {
    let mut cards: Vec<u64> = open
        .iter()
        .filter_map(|member| member.demand.as_ref())
        .map(|demand| least_cards(state, demand))
        .collect();
    cards.sort_unstable();
    cards.into_iter().take(needed.max(1)).fold(0, u64::saturating_add)
}

/// The least cards taken by the pod, over all nodes.
pub(crate) fn least_cards(state: &mut State, demand: &Demand) -> u64 {
    if let Some(known) = state.round.least_cards(demand.shape) {
        return known;
    }
    let could: Vec<NodeIndex> = nodes::ranked(&mut state.world, demand).ranking.could().collect();
    let (mut view, _) = state.world.view();
    let mut kinds: Vec<Vec<SliceKind>> = Vec::new();
    let mut cards: Option<u64> = None;
    for index in could {
        let name = &view.fleet.node(index).name;
        let kind: Vec<SliceKind> = view.cluster.inventory().kinds_of_node(name).collect();
        if !kinds.contains(&kind) {
            kinds.push(kind);
            cards = cards.into_iter().chain([victims::least_cards(demand, index, &mut view)]).min();
        }
    }
    state.round.count_search(0, kinds.len());
    let cards = cards.unwrap_or_default();
    state.round.set_least_cards(demand.shape, cards);
    cards
}

/// When all cards of the node are expected to be free according to their pods' `activeDeadlineSeconds` (`true` if a pod has none),
/// and the number of claims on them. Claims of these pods do not count.
pub(crate) fn free_at(state: &State, node: &str, own: &BTreeSet<Key>) -> ((bool, Time), usize) {
    let mut claims: BTreeSet<&Key> = BTreeSet::new();
    for device in state.world.cluster.inventory().devices_of_node(node) {
        claims.extend(state.world.cluster.holders(device).filter_map(Holder::claim));
    }
    let mut last = (false, Time::ZERO);
    let mut holders = 0;
    for key in claims {
        let claim = state.world.cluster.objects().claims.get(key);
        let pods = claim.map(|claim| holders::pods_holding(key, claim)).unwrap_or_default();
        if !pods.is_empty() && pods.iter().all(|pod| own.contains(pod)) {
            continue;
        }
        holders += 1;
        last.0 |= pods.is_empty();
        let pods = pods.iter().filter_map(|pod| state.world.cluster.objects().pods.get(pod));
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
    (last, holders)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
    use tessera_cluster::{Asker, Object};

    use super::*;
    use crate::{nominations, observe};

    /// Nominated devices are still held by their victims; counting both would overstate the node's holders.
    #[test]
    fn what_is_nominated_is_held_by_no_claim() {
        let mut state = State::new("gpu.tessera.dev", Asker::new(|| "share".to_owned()));
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let slice: ResourceSlice = serde_json::from_value(json!({ "metadata": { "name": "a-0" }, "spec": {
            "driver": "gpu.tessera.dev", "nodeName": "a", "devices": [{ "name": "gpu-01-00" }],
            "pool": { "name": "a", "generation": 1, "resourceSliceCount": 1 } } }))
        .unwrap();
        for object in [Object::from(node), Object::from(slice)] {
            observe::apply(&mut state, Time::ZERO, object).unwrap();
        }
        let until = Timestamp::from_second(60).unwrap();
        let nomination = Nomination {
            node: "a".to_owned(),
            devices: vec!["gpu-01-00".to_owned()],
            victims: Vec::new(),
            moves: Vec::new(),
            idle: Default::default(),
            until,
        };
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u",
            "annotations": { NOMINATION_ANNOTATION: nomination.encode() } },
            "spec": { "containers": [], "resourceClaims": [{ "name": "c", "resourceClaimName": "none" }] } }))
            .unwrap();
        nominations::with_nominated(&mut state, Time::ZERO, &[(&Key::new("n", "p"), &pod)], |_| Vec::new());
        let device = state.world.cluster.inventory().devices_of_node("a").next().unwrap();
        assert!(state.world.cluster.held().holds_whole(device));
        assert_eq!(free_at(&state, "a", &BTreeSet::new()).1, 0);
        // A claim without a known pod holds a device for an unknown time.
        let claim = json!({ "metadata": { "name": "c", "namespace": "n", "uid": "c" },
            "spec": { "devices": { "requests": [] } }, "status": { "allocation": { "devices": { "results": [
                { "request": "r", "driver": "gpu.tessera.dev", "pool": "a", "device": "gpu-01-00" }] } } } });
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        observe::apply(&mut state, Time::ZERO, Object::from(claim)).unwrap();
        assert_eq!(free_at(&state, "a", &BTreeSet::new()), ((true, Time::ZERO), 1));
    }
}
