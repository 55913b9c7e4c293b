//! Placement of a gang: all pods are planned before any write, each with the earlier ones counted as placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Key;
use tessera_placement::demand::Demand;
use tessera_placement::distance::{Candidate, Path, areas};
use tessera_placement::fit::Takes;
use tessera_placement::fleet::NodeIndex;
use tessera_placement::score::Score;
use tessera_placement::{ShapeId, Time};

use crate::group::{Gang, Member};
use crate::nodes::{self, NodeFilter};
use crate::predict::with_devices;
use crate::state::State;
use crate::world::World;

/// Number of areas tried before falling back to all nodes.
const MOST_AREAS: usize = 64;

/// Node and devices planned for one pod.
pub(crate) struct Placement {
    pub key: Key,
    pub pod: Arc<Pod>,
    pub demand: Demand,
    pub node: String,
    pub fit: Takes,
}

/// Index of a pod, with the node and devices tried for it.
type Tried = (usize, String, Takes);

/// Pods of one shape, with the nodes they fit.
struct Shape {
    nodes: BTreeMap<NodeIndex, Score>,
    pods: usize,
    /// Index of its first pod.
    first: usize,
}

/// Places all open pods or, if not all of them fit, as many as do, but at least `needed`.
///
/// # Errors
/// Why fewer than `needed` pods fit.
pub(crate) fn place(
    state: &mut State,
    now: Time,
    gang: &Gang,
    open: &[&Member],
    needed: usize,
) -> Result<Vec<Placement>, String> {
    let mut shapes: BTreeMap<ShapeId, Shape> = BTreeMap::new();
    for (first, member) in open.iter().enumerate() {
        let Some(demand) = &member.demand else { continue };
        if let Some(shape) = shapes.get_mut(&demand.shape) {
            shape.pods += 1;
        } else {
            let nodes = suitable(state, now, member, demand)?;
            shapes.insert(demand.shape, Shape { nodes, pods: 1, first });
        }
    }
    // Pods with the fewest suitable nodes go first.
    let scarcity = |place: &usize| {
        let shape = open[*place].demand.as_ref().and_then(|demand| shapes.get(&demand.shape));
        shape.map_or(0, |shape| shape.nodes.len())
    };
    let mut order: Vec<usize> = (0..open.len()).collect();
    order.sort_by_key(scarcity);
    let candidates = candidates(&mut state.world, &shapes);
    let partners: Vec<Path> = gang.nodes().iter().map(|node| path(&state.world, node)).collect();
    let levels = levels(&state.world);
    let mut best = Vec::new();
    let mut shortest = String::new();
    for (number, area) in areas(candidates, levels, &partners, open.len()).into_iter().enumerate() {
        // The last area consists of all nodes.
        if number >= MOST_AREAS && !area.is_all {
            continue;
        }
        let tried = try_on(state, open, &order, &area.nodes);
        if tried.len() == open.len() {
            return Ok(taken(&mut state.world, open, tried));
        }
        if area.is_all {
            shortest = what_is_missing(state, now, &gang.id.name, open, &order, &tried, needed);
            best = tried;
        } else {
            forget_tried(&mut state.world, open, &tried);
        }
    }
    if best.len() >= needed {
        return Ok(taken(&mut state.world, open, best));
    }
    forget_tried(&mut state.world, open, &best);
    Err(shortest)
}

/// The nodes with room for this pod alone.
fn suitable(
    state: &mut State,
    now: Time,
    member: &Member,
    demand: &Demand,
) -> Result<BTreeMap<NodeIndex, Score>, String> {
    let filter =
        NodeFilter::new(&state.world, &state.gangs, &state.standing, &state.refusals, now, &member.pod);
    let ranked = nodes::ranked(&mut state.world, demand);
    let ranking = ranked.ranking;
    if let Some(error) = ranking.fatal() {
        return Err(error.to_owned());
    }
    if ranking.is_empty() {
        return Err(format!(
            "no card of a managed pool is what pod {} of the gang asks for: gangs need managed pools",
            member.key.name
        ));
    }
    Ok(ranked.free(&filter).map(|(score, index)| (index, score)).collect())
}

/// All nodes suitable for any of the pods, each with its capacity for the scarcest shape.
fn candidates(world: &mut World, shapes: &BTreeMap<ShapeId, Shape>) -> Vec<Candidate> {
    let mut all: Vec<&Shape> = shapes.values().collect();
    all.sort_by_key(|shape| (shape.nodes.len(), shape.first));
    let mut found: BTreeMap<NodeIndex, Candidate> = BTreeMap::new();
    for shape in all {
        for (index, score) in &shape.nodes {
            if found.contains_key(index) {
                continue;
            }
            let name = world.fleet.node(*index).name.clone();
            let free = world.fleet.cards(*index, &world.cluster, &world.driver).free();
            let takes = free.saturating_sub(score.free_after());
            // For parts of cards, assume room for all pods of the shape.
            let pods = free.checked_div(takes).map_or(shape.pods, |pods| pods as usize);
            let path = path(world, &name);
            found.insert(*index, Candidate { score: *score, pods, path, name });
        }
    }
    found.into_values().collect()
}

/// Puts each pod, in this order, on the first node with room for it, and counts it as placed. A shape is not tried further once one
/// of its pods fits nowhere.
fn try_on(state: &mut State, open: &[&Member], order: &[usize], nodes: &[String]) -> Vec<Tried> {
    let mut tried = Vec::new();
    // By shape, index of the first node not yet known to be full.
    let mut first: BTreeMap<ShapeId, usize> = BTreeMap::new();
    for place in order {
        let member = open[*place];
        let Some(demand) = &member.demand else { continue };
        let from = first.entry(demand.shape).or_default();
        while let Some(node) = nodes.get(*from) {
            if let Some(fit) = nodes::fit_managed_cards(&mut state.world, demand, node)
                && count_as_there(&mut state.world, member, demand, node, &fit)
            {
                tried.push((*place, node.clone(), fit));
                if is_full(&mut state.world, node) {
                    *from += 1;
                }
                break;
            }
            *from += 1;
        }
    }
    tried
}

/// Whether no part of any card is free: a cheaper test than a failed fit.
fn is_full(world: &mut World, node: &str) -> bool {
    let Some(index) = world.fleet.find(node) else { return false };
    let cards = world.fleet.cards(index, &world.cluster, &world.driver);
    cards.cards.values().all(|card| card.free(false) == 0)
}

fn count_as_there(world: &mut World, member: &Member, demand: &Demand, node: &str, fit: &Takes) -> bool {
    let Some(object) = world.cluster.objects().node(node) else {
        return false;
    };
    let (wanted, _) = demand.on(object);
    let claims = with_devices(&wanted, fit.allocations.clone());
    let is_counted = world.cluster.assume(&member.key, &member.pod, node, claims).is_ok();
    world.fleet.mark(node);
    is_counted
}

fn forget_tried(world: &mut World, open: &[&Member], tried: &[Tried]) {
    for (place, node, _) in tried {
        world.cluster.forget(&open[*place].key);
        world.fleet.mark(node);
    }
}

fn taken(world: &mut World, open: &[&Member], tried: Vec<Tried>) -> Vec<Placement> {
    forget_tried(world, open, &tried);
    let placement = |(place, node, fit): Tried| {
        let member = open[place];
        let demand = Demand::of(world.cluster.objects(), &member.pod).ok()?;
        Some(Placement { key: member.key.clone(), pod: member.pod.clone(), demand, node, fit })
    };
    tried.into_iter().filter_map(placement).collect()
}

/// Why the gang does not fit completely; `tried` pods count as placed.
fn what_is_missing(
    state: &mut State,
    now: Time,
    gang: &str,
    open: &[&Member],
    order: &[usize],
    tried: &[Tried],
    needed: usize,
) -> String {
    let is_tried = |place: &&usize| tried.iter().any(|(tried, ..)| tried == *place);
    let missing = order.iter().find(|place| !is_tried(place)).map(|place| open[*place]);
    let Some(member) = missing else { return String::new() };
    let Some(demand) = &member.demand else { return String::new() };
    let filter =
        NodeFilter::new(&state.world, &state.gangs, &state.standing, &state.refusals, now, &member.pod);
    let ranked = nodes::ranked(&mut state.world, demand);
    let sentence = ranked.ranking.sentence(ranked.kept(&filter));
    format!("gang {gang}: {} of {needed} pods that it needs fit now; for the next, {sentence}", tried.len())
}

/// The topology domains of the node, narrowest first.
fn path(world: &World, node: &str) -> Path {
    let devices = world.cluster.inventory().devices_of_node(node);
    let domains = devices.filter(|device| device.driver_name() == world.driver);
    let domain = domains
        .filter_map(|device| device.text_attribute(tessera_api::attribute::NVLINK_DOMAIN))
        .find(|domain| tessera_placement::distance::spans_machines(domain));
    let object = world.cluster.objects().node(node);
    let labels = object.and_then(|object| object.metadata.labels.as_ref());
    let label = |key: &String| labels.and_then(|all| all.get(key).cloned());
    let keys = world.topology_keys.iter().map(label);
    std::iter::once(domain.map(str::to_owned)).chain(keys).collect()
}

fn levels(world: &World) -> usize {
    world.topology_keys.len() + 1
}
