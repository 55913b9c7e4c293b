//! The nodes for one shape of demand, best first, kept up to date by what changed since the last question.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_allocator::error::AllocateError;
use tessera_cluster::{Asker, Cluster, outcome};

use crate::blocked::{self, Blocked};
use crate::demand::Demand;
use crate::device_fits::{DeviceFits, OfClaims};
use crate::fleet::{Fleet, NodeIndex};
use crate::managed::{self, Plan};
use crate::score::{Candidate, Score};
use crate::time::Time;
use crate::value::RequestMix;

/// The rankings of the shapes asked for last.
#[derive(Debug, Default)]
pub struct Rankings {
    by_shape: HashMap<(Way, String), Ranking>,
    devices: DeviceFits,
    questions: u64,
}

/// Who would allocate the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// kube-scheduler.
    Native,
    /// This controller, where the devices are of managed cards. Claims for devices of others stay kube-scheduler's.
    Managed,
}

/// The nodes for one shape of demand.
#[derive(Debug, Default)]
pub struct Ranking {
    /// Changes of the fleet up to here are in it.
    seen: Option<usize>,
    best: BTreeSet<(Score, NodeIndex)>,
    scores: Vec<Option<Ranked>>,
    /// Which values the scores are by, see [`crate::value::Packing::version`].
    version: u64,
    blocked: BTreeMap<NodeIndex, Blocked>,
    /// Nodes where kube-scheduler would end the attempt, with its error.
    fatal: BTreeMap<NodeIndex, String>,
    asked_at: u64,
}

/// A node that can take it.
#[derive(Debug, Clone)]
pub struct Ranked {
    score: Score,
    /// Thousandths of its cards that stay free, as [`crate::fleet::Fleet::free_after`] gives them, by what it may get; empty where nodes are not
    /// ranked by that.
    free: Box<[Box<[u16]>]>,
}

/// Rankings that are kept; which one goes says [`to_drop`].
const MOST_RANKINGS: usize = 256;

/// So many questions ago what was asked for is not waited for by anybody.
const LONG_AGO: u64 = 16 * MOST_RANKINGS as u64;

/// Of what is kept, each with the number of the question for which it was used last, the one to drop for another: the oldest if that was long
/// ago, else the newest. Those that wait are asked about in turn: were there some more than are kept, and always the oldest dropped, each would
/// be gone when its turn came.
pub fn to_drop<'k, K>(kept: impl Iterator<Item = (&'k K, u64)> + Clone, questions: u64) -> Option<&'k K> {
    let (oldest, asked_at) = kept.clone().min_by_key(|(_, asked_at)| *asked_at)?;
    if asked_at + LONG_AGO < questions {
        return Some(oldest);
    }
    kept.max_by_key(|(_, asked_at)| *asked_at).map(|(newest, _)| newest)
}

/// What all of it reads.
pub struct View<'v> {
    /// Objects, and what is held of devices and room.
    pub cluster: &'v Cluster,
    /// Nodes with cards of ours.
    pub fleet: &'v mut Fleet,
    /// Selectors, compiled.
    pub asker: &'v mut Asker,
    /// Name of our driver.
    pub driver: &'v str,
    /// Managed cards may be allocated that were tainted until then.
    pub handed_over: Option<Time>,
    /// Which partitions were asked for.
    pub mix: &'v RequestMix,
}

/// What a pod would get on a node.
pub struct Fit {
    /// How well the node suits.
    pub score: Score,
    /// What its claims get, in their order.
    pub allocations: Vec<AllocationResult>,
    /// Which of them this controller writes.
    pub is_managed: Vec<bool>,
    /// See [`Ranked`].
    free: Box<[Box<[u16]>]>,
}

impl Rankings {
    /// The ranking for this demand, as of now.
    pub fn of(&mut self, demand: &Demand, way: Way, view: &mut View<'_>) -> &mut Ranking {
        self.questions += 1;
        let shape = (way, demand.shape.clone());
        if self.by_shape.len() >= MOST_RANKINGS && !self.by_shape.contains_key(&shape) {
            let asked = self.by_shape.iter().map(|(shape, ranking)| (shape, ranking.asked_at));
            if let Some(dropped) = to_drop(asked, self.questions).cloned() {
                self.by_shape.remove(&dropped);
            }
        }
        view.fleet.refresh(view.cluster, view.driver);
        let ranking = self.by_shape.entry(shape).or_default();
        ranking.asked_at = self.questions;
        ranking.update(demand, way, self.devices.of(demand, way), view);
        ranking
    }

    /// Number of rankings that are kept.
    pub fn len(&self) -> usize {
        self.by_shape.len()
    }

    /// Classes or other objects changed on which every answer may depend.
    pub fn clear(&mut self) {
        self.by_shape.clear();
        self.devices.clear();
    }
}

impl Ranking {
    fn update(&mut self, demand: &Demand, way: Way, known: &mut OfClaims, view: &mut View<'_>) {
        let changed = self.seen.and_then(|seen| view.fleet.changed_since(seen));
        let nodes: BTreeSet<NodeIndex> = match changed {
            Some(changed) => changed.iter().copied().collect(),
            None => (0..view.fleet.len() as NodeIndex).collect(),
        };
        self.scores.resize_with(view.fleet.len(), || None);
        self.revalue(demand, view.fleet);
        for index in nodes {
            if let Some(ranked) = self.scores[index as usize].take() {
                self.best.remove(&(ranked.score, index));
            }
            self.blocked.remove(&index);
            self.fatal.remove(&index);
            match rank(demand, way, index, known, view) {
                Ok(Ok(ranked)) => {
                    self.best.insert((ranked.score, index));
                    self.scores[index as usize] = Some(ranked);
                }
                Ok(Err(blocked)) => {
                    self.blocked.insert(index, blocked);
                }
                Err(error) => {
                    self.fatal.insert(index, error);
                }
            }
        }
        self.seen = Some(view.fleet.now());
    }

    /// What nodes are worth was computed anew: the same nodes in another order.
    fn revalue(&mut self, demand: &Demand, fleet: &Fleet) {
        if self.version == fleet.packing.version() {
            return;
        }
        self.version = fleet.packing.version();
        for (index, ranked) in self.scores.iter_mut().enumerate() {
            let Some(ranked) = ranked else { continue };
            ranked.revalue(demand, index as NodeIndex, fleet);
        }
        let all = self.scores.iter().enumerate();
        let scored = all.filter_map(|(index, ranked)| Some((ranked.as_ref()?.score, index as NodeIndex)));
        self.best = scored.collect();
    }

    /// The nodes that can take it, best first.
    pub fn best(&self) -> impl Iterator<Item = (Score, NodeIndex)> + '_ {
        self.best.iter().copied()
    }

    /// The nodes that can take it, or could if less of them were held.
    pub fn could(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let held = self.blocked.iter().filter(|(_, why)| matches!(why, Blocked::Devices | Blocked::Room(_)));
        self.best.iter().map(|(_, index)| *index).chain(held.map(|(index, _)| *index))
    }

    /// Number of nodes that can take it.
    pub fn suitable(&self) -> usize {
        self.best.len()
    }

    /// The error with which kube-scheduler would end the attempt, wherever it comes up.
    pub fn fatal(&self) -> Option<&str> {
        self.fatal.values().next().map(String::as_str)
    }

    /// Nodes that have the devices, but no room besides.
    pub fn without_room(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let room = self.blocked.iter().filter(|(_, blocked)| matches!(blocked, Blocked::Room(_)));
        room.map(|(index, _)| *index)
    }

    /// Whether all nodes are blocked for having no managed card that is asked for.
    pub fn is_not_managed(&self) -> bool {
        let is_other = |blocked: &Blocked| matches!(blocked, Blocked::NoNode | Blocked::NotManaged);
        self.best.is_empty() && self.fatal.is_empty() && self.blocked.values().all(is_other)
    }

    /// Why no node can take it; `kept` of those that could are kept for others.
    pub fn sentence(&self, kept: usize) -> String {
        let because = |(place, _)| if place < kept { &Blocked::Kept } else { &Blocked::RefusedBefore };
        let refused = self.best.iter().enumerate().map(because);
        // Slices of a node that is gone stay for a while.
        let counts = |blocked: &&Blocked| !matches!(blocked, Blocked::NoNode | Blocked::NotManaged);
        let blocked = self.blocked.values().filter(counts);
        blocked::sentence(blocked.clone().count() + self.best.len(), blocked.chain(refused))
    }
}

/// How a node suits the demand, or why the pod cannot run there; what its claims get is taken from `known` if it is known.
///
/// # Errors
/// kube-scheduler would end its attempt with this error, whatever other nodes say.
fn rank(
    demand: &Demand,
    way: Way,
    index: NodeIndex,
    known: &mut OfClaims,
    view: &mut View<'_>,
) -> Result<Result<Ranked, Blocked>, String> {
    let cluster = view.cluster;
    let Some(node) = cluster.objects().node(&view.fleet.node(index).name) else {
        return Ok(Err(Blocked::NoNode));
    };
    if !known.asks_for_any(demand, way, index, view).map_err(|error| error.to_string())? {
        return Ok(Err(Blocked::NotManaged));
    }
    if let Some(refusal) = outcome::refusal(&demand.subject, node) {
        return Ok(Err(Blocked::refused(&refusal)));
    }
    let found = known.found(demand, way, index, view).cloned().unwrap_or(Ok(Err(Blocked::Devices)))?;
    let mut ranked = match found {
        Ok(ranked) => ranked,
        Err(blocked) => return Ok(Err(blocked)),
    };
    if let Some(blocked) = no_room(demand, node, view) {
        return Ok(Err(blocked));
    }
    view.fleet.make_plain(index, view.cluster, view.driver);
    ranked.revalue(demand, index, view.fleet);
    Ok(Ok(ranked))
}

/// What the pod would get on the node, or why it cannot run there.
///
/// # Errors
/// kube-scheduler would end its attempt with this error, whatever other nodes say.
pub fn fit(
    demand: &Demand,
    way: Way,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Result<Fit, Blocked>, AllocateError> {
    let cluster = view.cluster;
    let Some(node) = cluster.objects().node(&view.fleet.node(index).name) else {
        return Ok(Err(Blocked::NoNode));
    };
    if let Some(refusal) = outcome::refusal(&demand.subject, node) {
        return Ok(Err(Blocked::refused(&refusal)));
    }
    let is_managed = are_managed(demand, way, index, view)?;
    let fit = fit_devices(demand, way, index, is_managed, view)?;
    Ok(fit.and_then(|fit| no_room(demand, node, view).map_or(Ok(fit), Err)))
}

/// Whether the node lacks room besides devices.
fn no_room(demand: &Demand, node: &Node, view: &View<'_>) -> Option<Blocked> {
    let pod: Option<&Pod> = demand.subject.pod.as_ref();
    let refusal = pod.and_then(|pod| view.cluster.shortage(pod, node))?;
    Some(Blocked::Room(refusal.to_string()))
}

/// By claim: whether this controller would allocate it on the node.
///
/// # Errors
/// As [`fit`].
pub fn are_managed(
    demand: &Demand,
    way: Way,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Vec<bool>, AllocateError> {
    let name = view.fleet.node(index).name.clone();
    let Some(node) = view.cluster.objects().node(&name) else { return Ok(Vec::new()) };
    let (wanted, claims) = demand.on(node);
    match way {
        Way::Native => Ok(vec![false; claims.len()]),
        Way::Managed => managed::claims(&wanted, &claims, node, index, view),
    }
}

/// What the pod's claims would get on the node, whether there is room besides or not, or why they cannot. `is_managed` is that of
/// [`are_managed`].
///
/// # Errors
/// As [`fit`].
pub fn fit_devices(
    demand: &Demand,
    way: Way,
    index: NodeIndex,
    is_managed: Vec<bool>,
    view: &mut View<'_>,
) -> Result<Result<Fit, Blocked>, AllocateError> {
    let name = view.fleet.node(index).name.clone();
    let Some(node) = view.cluster.objects().node(&name) else {
        return Ok(Err(Blocked::NoNode));
    };
    let (_, claims) = demand.on(node);
    if way == Way::Managed && !is_managed.contains(&true) {
        return Ok(Err(Blocked::NotManaged));
    }
    let planned = match way {
        Way::Native => {
            let planned = view.cluster.plan(node, &claims, view.asker);
            let plan = |allocations| Plan { allocations, room: 0, alternatives: BTreeSet::new() };
            planned.map(|planned| planned.map(plan))
        }
        Way::Managed => {
            view.fleet.make_plain(index, view.cluster, view.driver);
            managed::plan(&claims, &is_managed, demand.cpu_milli, node, index, view)
        }
    };
    let Plan { allocations, room, mut alternatives } = match planned {
        Ok(Some(plan)) => plan,
        Ok(None) if managed::is_mixed(&claims, &is_managed, node, view)? => return Ok(Err(Blocked::Mixed)),
        // A node whose slices are being replaced takes nothing for a moment.
        Ok(None) | Err(AllocateError::InvalidPools) => return Ok(Err(Blocked::Devices)),
        Err(error) => return Err(error),
    };
    let mut after = view.fleet.cards(index, view.cluster, view.driver).clone();
    after.add(view.cluster, &allocations, view.driver);
    view.fleet.make_plain(index, view.cluster, view.driver);
    let free = view.fleet.free_after(index, &after);
    let node = view.fleet.node(index);
    let candidate = Candidate {
        report: node.report.as_ref().map(|(_, report)| report),
        node,
        after: &after,
        claims: &claims,
        allocations: &allocations,
        room,
        cost: view.fleet.packing.cost(view.fleet.plain(index), &free, demand.cpu_milli),
    };
    let score = Score::of(&candidate);
    if !candidate.is_packed() {
        alternatives.clear();
    } else if alternatives.is_empty() {
        alternatives.insert(free);
    }
    Ok(Ok(Fit { score, allocations, is_managed, free: alternatives.into_iter().collect() }))
}

impl Ranked {
    /// Computes the score anew by what nodes are worth now: with the best of what the demand may get.
    fn revalue(&mut self, demand: &Demand, index: NodeIndex, fleet: &Fleet) {
        let node = fleet.plain(index);
        let costs = self.free.iter().map(|free| fleet.packing.cost(node, free, demand.cpu_milli));
        if let Some(least) = costs.min() {
            self.score = self.score.with_cost(least);
        }
    }
}

impl Fit {
    /// How the node suits.
    pub fn ranked(self) -> Ranked {
        Ranked { score: self.score, free: self.free }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn some_more_than_are_kept_cost_some_more() {
        let mut kept: BTreeMap<usize, u64> = BTreeMap::new();
        let (mut questions, mut missed) = (0, 0);
        let mut ask = |shape: usize| {
            questions += 1;
            if kept.len() >= MOST_RANKINGS && !kept.contains_key(&shape) {
                let dropped =
                    to_drop(kept.iter().map(|(shape, asked_at)| (shape, *asked_at)), questions).copied();
                kept.remove(&dropped.unwrap());
            }
            usize::from(kept.insert(shape, questions).is_none())
        };
        for shape in 0..300 {
            ask(shape);
        }
        (0..300).for_each(|shape| missed += ask(shape));
        assert!(missed <= 2 * (300 - MOST_RANKINGS), "{missed}");
        // When those are gone others take their place.
        for shape in (0..40).flat_map(|_| 1_000..1_200) {
            ask(shape);
        }
        assert_eq!((1_000..1_200).map(ask).sum::<usize>(), 0);
    }
}
