//! Nodes and devices for the pods of a group: each pod is placed with the earlier ones counted as placed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Key;

use crate::demand::Demand;
use crate::distance::{Candidate, Path, areas, spans_machines};
use crate::fit::{Fit, Takes};
use crate::fleet::{FleetNode, NodeIndex};
use crate::ranking::{Rankings, Side};
use crate::reason::Reason;
use crate::score::Score;
use crate::shape::ShapeId;
use crate::statement::Statement;

/// Number of areas tried before falling back to all nodes.
const MOST_AREAS: usize = 64;

/// A pod to be placed.
#[derive(Clone, Copy)]
pub struct Seat<'s> {
    /// The pod's name.
    pub key: &'s Key,
    /// The pod.
    pub pod: &'s Pod,
    /// Its demand.
    pub demand: &'s Demand,
}

/// Node and devices for a seat.
#[derive(Debug)]
pub struct Placed {
    /// Index of the seat.
    pub seat: usize,
    /// Index of the node.
    pub node: NodeIndex,
    /// The devices there.
    pub takes: Takes,
}

/// Nodes withheld from a seat, whatever fits there.
pub trait Filter {
    /// Whether the node is kept for others.
    fn is_kept(&self, seat: usize, node: &FleetNode) -> bool;
    /// Whether the node refused the pod or its like.
    fn is_refused(&self, seat: usize, node: &FleetNode) -> bool;
    /// Whether the seat may get the node.
    fn is_free(&self, seat: usize, node: &FleetNode) -> bool {
        !self.is_kept(seat, node) && !self.is_refused(seat, node)
    }
}

/// Preferred locations.
#[derive(Clone, Copy)]
pub struct Places<'p> {
    /// Node labels of topology domains, narrowest first.
    pub topology_keys: &'p [String],
    /// Nodes of pods of the same group.
    pub partners: &'p BTreeSet<String>,
}

/// Why seats have no nodes.
#[derive(Debug)]
pub enum NoSeats {
    /// kube-scheduler would end its attempt with this error.
    Fatal(String),
    /// No managed card is what this seat asks for.
    NotManaged(usize),
    /// Number of seats with a node, and why the next one has none.
    TooFew(usize, String),
}

/// Seats of one shape, with the nodes they fit.
struct Shape {
    nodes: BTreeMap<NodeIndex, Score>,
    seats: usize,
    /// Index of its first seat.
    first: usize,
}

/// Places all seats or, if not all of them fit, as many as do, but at least `needed`. They stay placed in the statement, which must be
/// empty before, as rankings are queried.
///
/// # Errors
/// Why fewer than `needed` seats fit. Nothing then stays placed.
pub fn place(
    statement: &mut Statement<'_>,
    rankings: &mut Rankings,
    seats: &[Seat<'_>],
    needed: usize,
    places: Places<'_>,
    filter: &impl Filter,
) -> Result<Vec<Placed>, NoSeats> {
    let mut shapes: BTreeMap<ShapeId, Shape> = BTreeMap::new();
    for (first, seat) in seats.iter().enumerate() {
        if let Some(shape) = shapes.get_mut(&seat.demand.shape) {
            shape.seats += 1;
        } else {
            let nodes = suitable(statement, rankings, seats, first, filter)?;
            shapes.insert(seat.demand.shape, Shape { nodes, seats: 1, first });
        }
    }
    // Seats with the fewest suitable nodes go first.
    let scarcity =
        |place: &usize| shapes.get(&seats[*place].demand.shape).map_or(0, |shape| shape.nodes.len());
    let mut order: Vec<usize> = (0..seats.len()).collect();
    order.sort_by_key(scarcity);
    // Seats of one shape are alike in any order. Otherwise neighbours go first to the same place, and if not enough fit, large seats
    // or small ones.
    let size = |seat: &usize| (seats[*seat].demand.devices(), seats[*seat].demand.cpu_milli);
    let mut orders = vec![order.clone()];
    if shapes.len() > 1 {
        let (mut largest, mut smallest) = (order.clone(), order.clone());
        largest.sort_by_key(|seat| Reverse(size(seat)));
        smallest.sort_by_key(size);
        orders.extend([largest, smallest]);
    }
    let candidates = candidates(statement, &shapes, places);
    let partners: Vec<Path> = places.partners.iter().map(|node| path(statement, places, node)).collect();
    let begin = statement.checkpoint();
    let levels = places.topology_keys.len() + 1;
    for (number, area) in areas(candidates, levels, &partners, seats.len()).into_iter().enumerate() {
        // The last area consists of all nodes.
        if number >= MOST_AREAS && !area.is_all {
            continue;
        }
        for order in &orders {
            let placed = try_on(statement, seats, order, &area.nodes);
            if placed.len() == seats.len() || (area.is_all && placed.len() >= needed) {
                return Ok(placed);
            }
            statement.rollback(begin);
        }
        if area.is_all {
            let placed = try_on(statement, seats, &order, &area.nodes);
            let missing = what_is_missing(statement, rankings, seats, &order, &placed, filter);
            statement.rollback(begin);
            return Err(NoSeats::TooFew(placed.len(), missing));
        }
    }
    Ok(Vec::new())
}

/// The nodes with room for this seat alone.
fn suitable(
    statement: &mut Statement<'_>,
    rankings: &mut Rankings,
    seats: &[Seat<'_>],
    seat: usize,
    filter: &impl Filter,
) -> Result<BTreeMap<NodeIndex, Score>, NoSeats> {
    let ranking = ranking(statement, rankings, seats[seat].demand);
    if let Some(error) = ranking.fatal() {
        return Err(NoSeats::Fatal(error.to_owned()));
    }
    if ranking.is_empty() {
        return Err(NoSeats::NotManaged(seat));
    }
    let fleet = statement.fleet();
    let free = ranking.best().filter(|(_, index)| filter.is_free(seat, fleet.node(*index)));
    Ok(free.map(|(score, index)| (index, score)).collect())
}

/// The ranking of the demand on the state without trials.
pub(crate) fn ranking<'r>(
    statement: &mut Statement<'_>,
    rankings: &'r mut Rankings,
    demand: &Demand,
) -> &'r Side {
    debug_assert!(statement.is_empty(), "rankings follow the log of changes, which trials leave out");
    rankings.managed(demand, &mut statement.view())
}

/// All nodes suitable for any of the seats, each with its capacity for the scarcest shape.
fn candidates(
    statement: &mut Statement<'_>,
    shapes: &BTreeMap<ShapeId, Shape>,
    places: Places<'_>,
) -> Vec<Candidate> {
    let mut all: Vec<&Shape> = shapes.values().collect();
    all.sort_by_key(|shape| (shape.nodes.len(), shape.first));
    let mut found: BTreeMap<NodeIndex, Candidate> = BTreeMap::new();
    for shape in all {
        for (index, score) in &shape.nodes {
            if found.contains_key(index) {
                continue;
            }
            let view = statement.view();
            let free = view.fleet.cards(*index, view.cluster, view.driver).free();
            let takes = free.saturating_sub(score.free_after());
            // For parts of cards, assume room for all seats of the shape.
            let pods = free.checked_div(takes).map_or(shape.seats, |pods| pods as usize);
            let name = statement.fleet().node(*index).name.clone();
            let path = path(statement, places, &name);
            found.insert(*index, Candidate { score: *score, pods, path, name });
        }
    }
    found.into_values().collect()
}

/// Puts each seat, in this order, on the first node with room for it, and counts it as placed. A shape is not tried further once one
/// of its seats fits nowhere.
fn try_on(
    statement: &mut Statement<'_>,
    seats: &[Seat<'_>],
    order: &[usize],
    nodes: &[String],
) -> Vec<Placed> {
    let mut placed = Vec::new();
    // By shape, index of the first node not yet known to be full.
    let mut first: BTreeMap<ShapeId, usize> = BTreeMap::new();
    for place in order {
        let Seat { key, pod, demand } = seats[*place];
        let from = first.entry(demand.shape).or_default();
        while let Some(name) = nodes.get(*from) {
            let Some(node) = statement.fleet().find(name) else {
                *from += 1;
                continue;
            };
            if let Fit::Takes(takes) = statement.fit(demand, node)
                && statement.place(key, pod, demand, node, &takes)
            {
                placed.push(Placed { seat: *place, node, takes });
                if is_full(statement, node) {
                    *from += 1;
                }
                break;
            }
            *from += 1;
        }
    }
    placed
}

/// Whether no part of any card is free: a cheaper test than a failed fit.
fn is_full(statement: &mut Statement<'_>, node: NodeIndex) -> bool {
    let view = statement.view();
    let cards = view.fleet.cards(node, view.cluster, view.driver);
    cards.cards.values().all(|card| card.free(false) == 0)
}

/// Why the next seat has no node, with these ones placed.
fn what_is_missing(
    statement: &mut Statement<'_>,
    rankings: &mut Rankings,
    seats: &[Seat<'_>],
    order: &[usize],
    placed: &[Placed],
    filter: &impl Filter,
) -> String {
    let is_placed = |place: &&usize| placed.iter().any(|placed| placed.seat == **place);
    let Some(missing) = order.iter().find(|place| !is_placed(place)) else { return String::new() };
    let demand = seats[*missing].demand;
    let touched: BTreeSet<NodeIndex> = placed.iter().map(|placed| placed.node).collect();
    let reason = |index: &NodeIndex| match statement.fit(demand, *index) {
        Fit::Takes(_) => (*index, None),
        Fit::Blocked(reason) => (*index, Some(reason)),
        Fit::Fatal(error) => (*index, Some(Reason::Refused(error))),
    };
    let now: BTreeMap<NodeIndex, Option<Reason>> = touched.iter().map(reason).collect();
    // Computed before the first trial, and still kept.
    let ranking = rankings.kept(demand);
    let fleet = statement.fleet();
    let kept = ranking.best().filter(|(_, index)| filter.is_kept(*missing, fleet.node(*index))).count();
    ranking.sentence_with(kept, &now)
}

/// The topology domains of the node, narrowest first.
fn path(statement: &Statement<'_>, places: Places<'_>, node: &str) -> Path {
    let cluster = statement.cluster();
    let devices = cluster.inventory().devices_of_node(node);
    let domains = devices.filter(|device| device.driver_name() == statement.driver());
    let domain = domains
        .filter_map(|device| device.text_attribute(tessera_api::attribute::NVLINK_DOMAIN))
        .find(|domain| spans_machines(domain));
    let object = cluster.objects().node(node);
    let labels = object.and_then(|object| object.metadata.labels.as_ref());
    let label = |key: &String| labels.and_then(|all| all.get(key).cloned());
    let keys = places.topology_keys.iter().map(label);
    std::iter::once(domain.map(str::to_owned)).chain(keys).collect()
}
