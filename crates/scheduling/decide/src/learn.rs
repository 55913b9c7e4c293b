//! Learns the demand for devices from arriving and departing pods, including pods placed by others.
//!
//! Each pod counts once, when its claims are first known. A restarted controller thus learns from the existing pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::AllocationResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use serde_json::json;
use tessera_allocator::claim::Claim;
use tessera_api::{DeviceName, PciBusId, ProfileSpelling};
use tessera_cluster::subject::{self, PodObstacle, Wanted};
use tessera_cluster::usage::Room;
use tessera_cluster::{AllocationExt, Key, PodExt, node_fit, outcome};
use tessera_placement::fleet::NodeIndex;
use tessera_placement::node_cards::NodeCards;
use tessera_placement::packing::{Demand, ModelSet, WHOLE};
use tessera_placement::value::Asked;

use crate::round::Round;
use crate::selector_costs;
use crate::world::World;

/// Nodes tried for a pod per model, in fleet order.
const NODES_OF_MODEL: usize = 4;

/// Counted pods.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Pods to count.
    open: BTreeSet<Key>,
    counted: BTreeMap<Key, Counted>,
}

/// A counted pod.
#[derive(Debug)]
struct Counted {
    uid: String,
    /// Whether the pod was observed on a node.
    has_run: bool,
}

/// Whether the pod may ask for devices by claims.
fn asks_for_devices(pod: &Pod) -> bool {
    let names_claims =
        pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.iter().flatten().next().is_some());
    let has_extended =
        pod.status.as_ref().is_some_and(|status| status.extended_resource_claim_status.is_some());
    names_claims || has_extended || pod.is_gated()
}

/// Everything relevant to the choice of nodes and devices for the pod.
fn shape(pod: &Pod, room: Room, wanted: &[&Wanted]) -> String {
    let spec = pod.spec.as_ref();
    let claims: Vec<_> = wanted.iter().map(|wanted| &wanted.claim.spec).collect();
    json!([
        room.cpu_milli,
        room.memory_mib,
        spec.and_then(|spec| spec.node_selector.as_ref()),
        spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref()),
        spec.and_then(|spec| spec.tolerations.as_ref()),
        claims,
    ])
    .to_string()
}

/// Handles an added or changed pod.
pub(crate) fn add_arrival(world: &mut World, learned: &mut Arrivals, key: &Key, pod: &Pod) {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let is_other = learned.counted.get(key).is_some_and(|counted| counted.uid != uid);
    if is_other || pod.has_ended() {
        add_departure(world, learned, key);
    }
    if pod.has_ended() || !asks_for_devices(pod) {
        return;
    }
    match learned.counted.get_mut(key) {
        Some(counted) => counted.has_run |= pod.node_name().is_some(),
        None => drop(learned.open.insert(key.clone())),
    }
}

/// Handles the end of a pod, or of its need for devices.
pub(crate) fn add_departure(world: &mut World, learned: &mut Arrivals, key: &Key) {
    learned.open.remove(key);
    if learned.counted.remove(key).is_some_and(|counted| counted.has_run) {
        world.fleet.packing.departed();
    }
}

/// Handles a change of a pod's claims.
pub(crate) fn add_arrival_with_claims(world: &mut World, learned: &mut Arrivals, key: &Key) {
    if !learned.counted.contains_key(key)
        && let Some(pod) = world.cluster.objects().pods.get(key).cloned()
    {
        add_arrival(world, learned, key, &pod);
    }
}

/// Counts new pods, oldest first.
pub(crate) fn count_arrivals(world: &mut World, round: &mut Round, learned: &mut Arrivals) {
    if world.fleet.is_empty() || learned.open.is_empty() {
        return;
    }
    let objects = world.cluster.objects();
    let created = |key: Key| {
        let created = objects.pods.get(&key).and_then(|pod| pod.metadata.creation_timestamp.clone());
        (created, key)
    };
    let mut open: Vec<(Option<Timestamp>, Key)> =
        std::mem::take(&mut learned.open).into_iter().map(created).collect();
    open.sort();
    for (_, key) in open {
        let Some(pod) = world.cluster.objects().pods.get(&key).cloned() else { continue };
        // A pod whose claims do not exist yet is queued again with its claims.
        if let Some(asked) = asked_by(world, round, &pod) {
            world.fleet.packing.arrived(&asked.demands);
            asked.partitions.iter().for_each(|profile| world.mix.arrived(profile));
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let counted = Counted { uid, has_run: pod.node_name().is_some() };
            learned.counted.insert(key, counted);
        }
    }
}

/// A pod's demand; empty where no node has such devices. `None` if its claims are unknown, or too costly to evaluate now.
fn asked_by(world: &mut World, round: &mut Round, pod: &Pod) -> Option<Asked> {
    let subject = subject::of_pod(world.cluster.objects(), pod);
    let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
    if subject.claims.is_empty() || !subject.obstacles.iter().all(is_gate) {
        return None;
    }
    let wanted: Vec<&Wanted> = subject.claims.iter().collect();
    // Ignore its own node: other nodes could have taken the pod, too.
    let mut pod = subject.pod.clone()?;
    pod.spec.get_or_insert_default().node_name = None;
    let room = Room::asked(&pod);
    let shape = shape(&pod, room, &wanted);
    if let Some(known) = world.fleet.packing.known(&shape) {
        return Some(known);
    }
    let claims = outcome::converted(&wanted).ok()?;
    if selector_costs::unanswered_of(world, round, &claims).is_some() {
        return None;
    }
    let asked = asked(world, &pod, room, &claims);
    world.fleet.packing.remember(shape, asked.clone());
    Some(asked)
}

/// The claims' demand on empty nodes of each model.
fn asked(world: &mut World, pod: &Pod, room: Room, claims: &[Claim]) -> Asked {
    world.fleet.refresh(&world.cluster, &world.driver);
    let mut asked_of = HashMap::<u8, usize>::new();
    let (mut models, mut count) = (ModelSet::NONE, 0);
    let mut parts: Vec<u16> = Vec::new();
    let mut partitions: Vec<ProfileSpelling> = Vec::new();
    for index in 0..world.fleet.len() as NodeIndex {
        let of_node: Vec<u8> = world.fleet.plain(index).models().collect();
        let is_open = |model: &u8| {
            !models.has(*model) && asked_of.get(model).is_none_or(|asked| *asked < NODES_OF_MODEL)
        };
        if !of_node.iter().any(is_open) {
            continue;
        }
        let name = world.fleet.node(index).name.clone();
        let Some(node) = world.cluster.objects().node(&name) else { continue };
        if node_fit::refusal(pod, node).is_some() {
            continue;
        }
        of_node.iter().for_each(|model| *asked_of.entry(*model).or_default() += 1);
        let Some(allocations) = world.cluster.would_allocate(node, claims, &mut world.asker) else {
            continue;
        };
        if partitions.is_empty() {
            let names =
                allocations.iter().flat_map(AllocationExt::results).map(|result| result.device.parse());
            partitions.extend(names.filter_map(|name| match name {
                Ok(DeviceName::Partition(partition)) => Some(partition.profile),
                _ => None,
            }));
        }
        let taken = taken_when_empty(world, index, &allocations);
        let new = taken.iter().filter(|(model, _)| !models.has(*model));
        let found: Vec<u8> = new.map(|(model, _)| *model).collect();
        for model in found {
            models = models.with(model);
            count += 1;
        }
        let mut of_cards: Vec<u16> = taken.into_iter().map(|(_, part)| part).collect();
        of_cards.sort_unstable();
        // Of models of different sizes: the same memory is a larger part of a smaller card.
        parts = parts.max(of_cards);
    }
    if parts.is_empty() {
        return Asked::default();
    }
    let models = if count >= world.fleet.packing.models() { ModelSet::ANY } else { models };
    let demand = |share: u64, cards: u64, part: u16| {
        let cpu_milli = room.cpu_milli / share.max(1);
        Demand::new(cpu_milli, room.memory_mib / share.max(1), cards, part.into(), models).ok()
    };
    let cards = parts.len() as u64;
    let demands = if parts.iter().all(|part| *part == WHOLE) {
        demand(1, cards, WHOLE).into_iter().collect()
    } else {
        parts.into_iter().filter_map(|part| demand(cards, 1, part)).collect()
    };
    Asked { demands, partitions }
}

/// The allocations' use of each card of an otherwise empty node: the card's model, and thousandths.
fn taken_when_empty(world: &mut World, index: NodeIndex, allocations: &[AllocationResult]) -> Vec<(u8, u16)> {
    let mut cards: NodeCards = world.fleet.cards(index, &world.cluster, &world.driver).emptied();
    cards.add(&world.cluster, allocations, &world.driver);
    let mut model = |card: &PciBusId| world.fleet.model(index, card);
    let used = cards.cards.iter().filter(|(_, card)| card.used > 0);
    used.map(|(address, card)| (model(address), u16::try_from(card.used).unwrap_or(WHOLE))).collect()
}
