//! Sets of movers in the order of their cost, until all find a place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tessera_allocator::placement::Pick;

use super::choice::{Cost, in_the_way};
use super::movers::exceeded;
use super::{Gathered, MOST_SETS, Move, Mover, NoPlan, Plan, Wanted};
use crate::demand::Demand;
use crate::fit::{self, Fit, Takes};
use crate::fleet::NodeIndex;
use crate::score::Score;
use crate::shape::ShapeId;
use crate::statement::Statement;

/// Limit of movers added one by one where those in the way of devices are too few.
const MOST_WIDER: usize = 16;

/// A set to be tried: its cost, its node, and the movers of the node that stay.
type Try = (Cost, NodeIndex, BTreeSet<usize>);

/// A plan in progress.
pub(super) struct Search<'p, 's, 'w> {
    statement: &'p mut Statement<'s>,
    wanted: Wanted<'w>,
    movers: &'p [Mover],
    /// Movers by node.
    on: BTreeMap<NodeIndex, Vec<usize>>,
    nodes: Vec<NodeIndex>,
    /// By shape: nodes with room without any move, best first.
    rooms: BTreeMap<ShapeId, Vec<(Score, NodeIndex)>>,
}

impl<'p, 's, 'w> Search<'p, 's, 'w> {
    pub fn new(statement: &'p mut Statement<'s>, wanted: Wanted<'w>, movers: &'p [Mover]) -> Self {
        let mut on: BTreeMap<NodeIndex, Vec<usize>> = BTreeMap::new();
        for (place, mover) in movers.iter().enumerate() {
            let nodes: BTreeSet<NodeIndex> = mover.devices.iter().map(|held| held.node).collect();
            nodes.into_iter().for_each(|node| on.entry(node).or_default().push(place));
        }
        let fleet = statement.fleet();
        let mut nodes: Vec<NodeIndex> = fleet.nodes().filter_map(|node| fleet.find(&node.name)).collect();
        nodes.sort_by(|one, other| fleet.node(*one).name.cmp(&fleet.node(*other).name));
        Search { statement, wanted, movers, on, nodes, rooms: BTreeMap::new() }
    }

    pub fn run(mut self) -> Gathered {
        if let Some(plan) = self.without_moves() {
            return Gathered { plan: Ok(plan), staying: Vec::new() };
        }
        let mut queue: BTreeSet<Try> = BTreeSet::new();
        let mut staying: BTreeSet<usize> = BTreeSet::new();
        for node in self.nodes.clone() {
            let mut of_node = self.on.get(&node).cloned().unwrap_or_default();
            let Some(of_all) = self.cheapest(node, &of_node) else { continue };
            of_node.retain(|mover| self.movers[*mover].stays.is_none());
            let mut stay = of_all.movers.clone();
            stay.retain(|mover| self.movers[*mover].stays.is_some());
            let cost = if stay.is_empty() { Some(of_all) } else { self.cheapest(node, &of_node) };
            staying.extend(stay);
            queue.extend(cost.map(|cost| (cost, node, BTreeSet::new())));
        }
        let plan = self.first_with_places(queue, staying.is_empty());
        Gathered { plan, staying: staying.into_iter().collect() }
    }

    /// Tries the sets, cheapest first. Of a set without places elsewhere, each mover in turn stays.
    fn first_with_places(
        &mut self,
        mut queue: BTreeSet<Try>,
        is_nobody_staying: bool,
    ) -> Result<Plan, NoPlan> {
        if queue.is_empty() {
            return Err(if is_nobody_staying { NoPlan::NoNode } else { NoPlan::Stay });
        }
        let mut tried: BTreeSet<(NodeIndex, Vec<usize>)> = BTreeSet::new();
        for _ in 0..MOST_SETS {
            let Some((cost, node, fixed)) = queue.pop_first() else { return Err(NoPlan::NoPlace) };
            if tried.insert((node, cost.movers.clone()))
                && let Some(plan) = self.complete(node, &cost.movers)
            {
                return Ok(plan);
            }
            for mover in cost.movers {
                let mut fixed = fixed.clone();
                fixed.insert(mover);
                let may = self.on.get(&node).into_iter().flatten().copied();
                let may = may.filter(|mover| self.movers[*mover].stays.is_none() && !fixed.contains(mover));
                let may: Vec<usize> = may.collect();
                let next = self.cheapest(node, &may);
                queue.extend(next.map(|cost| (cost, node, fixed)));
            }
        }
        Err(NoPlan::TooMany)
    }

    fn without_moves(&mut self) -> Option<Plan> {
        let plan = |node, takes| Plan { node, takes, moves: Vec::new() };
        match self.wanted {
            Wanted::Seat(seat) => {
                let (_, node) = *self.rooms_of(seat.demand).first()?;
                Some(plan(node, self.fit(seat.demand, node)))
            }
            Wanted::EmptyNode => {
                let empty = self.nodes.clone().into_iter().find(|node| self.is_empty(*node))?;
                Some(plan(empty, None))
            }
        }
    }

    /// The cheapest set of these movers whose end makes room on the node; `None` if all together do not.
    fn cheapest(&mut self, node: NodeIndex, may: &[usize]) -> Option<Cost> {
        let Wanted::Seat(seat) = self.wanted else {
            let all = self.without(may, |search| search.is_empty(node));
            return (all && !may.is_empty()).then(|| Cost::of(self.movers, may.to_vec()));
        };
        let movers = self.movers;
        let chosen = self.without(may, |search| {
            let mut view = search.statement.view();
            view.fleet.cards(node, view.cluster, view.driver);
            let parts = view.fleet.node(node).shared_parts()?;
            let cost = |picks: &[Pick<'_>]| in_the_way(movers, may, node, &parts, picks);
            fit::least_cost(seat.demand, node, &mut view, cost)
        })?;
        let fits = |search: &mut Self, set: &[usize]| {
            search.without(set, |search| search.fit(seat.demand, node).is_some())
        };
        if fits(self, &chosen.movers) {
            return Some(chosen);
        }
        // Other room, or counters that do not follow memory slices.
        if !fits(self, may) {
            return None;
        }
        let mut others: Vec<usize> = may.to_vec();
        others.retain(|mover| !chosen.movers.contains(mover));
        others.sort_by_key(|mover| (self.movers[*mover].lost, self.movers[*mover].pods.len()));
        let mut set = chosen.movers;
        for mover in others.into_iter().take(MOST_WIDER) {
            set.push(mover);
            if fits(self, &set) {
                break;
            }
        }
        for place in (0..set.len()).rev() {
            let mut fewer = set.clone();
            fewer.remove(place);
            if fits(self, &fewer) {
                set = fewer;
            }
        }
        fits(self, &set).then(|| Cost::of(self.movers, set))
    }

    /// The plan with this set of movers, if each of their pods finds a place.
    fn complete(&mut self, node: NodeIndex, set: &[usize]) -> Option<Plan> {
        let movers = self.movers;
        let keys = set.iter().flat_map(|mover| movers[*mover].pods.iter().map(|pod| &pod.key));
        if exceeded(self.statement.cluster().objects(), keys).is_some() {
            return None;
        }
        let mut pods: Vec<(usize, usize)> = Vec::new();
        for mover in set {
            for (place, pod) in movers[*mover].pods.iter().enumerate() {
                self.rooms_of(&pod.demand);
                pods.push((*mover, place));
            }
        }
        let worth = |(mover, pod): &(usize, usize)| -> u32 {
            let held = movers[*mover].devices.iter().filter(|held| held.pod == *pod);
            held.map(|held| held.worth).sum()
        };
        let begin = self.statement.checkpoint();
        self.set_aside(set);
        let takes = match self.wanted {
            Wanted::Seat(seat) => match self.fit(seat.demand, node) {
                Some(takes) if self.statement.place(seat.key, seat.pod, seat.demand, node, &takes) => {
                    Some(Some(takes))
                }
                _ => None,
            },
            Wanted::EmptyNode => Some(None),
        };
        let moves = takes.as_ref().and_then(|_| {
            pods.sort_by_key(|pod| Reverse(worth(pod)));
            self.place_all(node, &pods).or_else(|| {
                pods.reverse();
                self.place_all(node, &pods)
            })
        });
        self.statement.rollback(begin);
        Some(Plan { node, takes: takes?, moves: moves? })
    }

    /// Places all these pods of movers, or none.
    fn place_all(&mut self, wanted_on: NodeIndex, pods: &[(usize, usize)]) -> Option<Vec<Move>> {
        let movers = self.movers;
        let begin = self.statement.checkpoint();
        let left = pods.iter().flat_map(|(mover, _)| movers[*mover].devices.iter().map(|held| held.node));
        let mut changed: BTreeSet<NodeIndex> = left.chain([wanted_on]).collect();
        let mut moves = Vec::new();
        for (mover, pod) in pods {
            let runner = &movers[*mover].pods[*pod];
            let Some((node, takes)) = self.best(&runner.demand, &changed, wanted_on) else {
                self.statement.rollback(begin);
                return None;
            };
            let successor = runner.demand.subject.pod.clone().unwrap_or_default();
            if !self.statement.place(&runner.key, &successor, &runner.demand, node, &takes) {
                self.statement.rollback(begin);
                return None;
            }
            changed.insert(node);
            moves.push(Move { mover: *mover, pod: *pod, node, takes });
        }
        Some(moves)
    }

    /// The best node for the pod with the trials: one of those changed, or the first other with room before.
    fn best(
        &mut self,
        demand: &Demand,
        changed: &BTreeSet<NodeIndex>,
        wanted_on: NodeIndex,
    ) -> Option<(NodeIndex, Takes)> {
        let is_kept = matches!(self.wanted, Wanted::EmptyNode);
        let changed = changed.iter().copied().filter(|node| !is_kept || *node != wanted_on);
        let fits: Vec<(NodeIndex, Takes)> =
            changed.clone().filter_map(|node| Some((node, self.fit(demand, node)?))).collect();
        let changed: BTreeSet<NodeIndex> = changed.chain([wanted_on]).collect();
        let rooms = self.rooms.get(&demand.shape).cloned().unwrap_or_default();
        let others = rooms.into_iter().map(|(_, node)| node).filter(|node| !changed.contains(node));
        let other = others.into_iter().find_map(|node| Some((node, self.fit(demand, node)?)));
        fits.into_iter().chain(other).min_by_key(|(node, takes)| (takes.score, *node))
    }

    /// The nodes with room for the pod without any move, best first. The statement must be empty.
    fn rooms_of(&mut self, demand: &Demand) -> &[(Score, NodeIndex)] {
        if !self.rooms.contains_key(&demand.shape) {
            let nodes = self.nodes.clone();
            let fits = nodes.into_iter().filter_map(|node| Some((self.fit(demand, node)?.score, node)));
            let mut rooms: Vec<(Score, NodeIndex)> = fits.collect();
            rooms.sort();
            self.rooms.insert(demand.shape, rooms);
        }
        self.rooms.get(&demand.shape).map_or(&[], Vec::as_slice)
    }

    fn fit(&mut self, demand: &Demand, node: NodeIndex) -> Option<Takes> {
        match fit::of_any_cards(demand, node, &mut self.statement.view()) {
            Fit::Takes(takes) => Some(takes),
            Fit::Blocked(_) | Fit::Fatal(_) => None,
        }
    }

    /// Whether the node has cards, and no device in use.
    fn is_empty(&mut self, node: NodeIndex) -> bool {
        let view = self.statement.view();
        let is_there = view.object(node).is_some();
        let cards = view.fleet.cards(node, view.cluster, view.driver);
        is_there && !cards.cards.is_empty() && cards.used() == 0
    }

    /// The answer with these movers gone.
    fn without<T>(&mut self, set: &[usize], answer: impl FnOnce(&mut Self) -> T) -> T {
        let begin = self.statement.checkpoint();
        self.set_aside(set);
        let answer = answer(self);
        self.statement.rollback(begin);
        answer
    }

    fn set_aside(&mut self, set: &[usize]) {
        for mover in set {
            let Mover { pods, claims, .. } = &self.movers[*mover];
            let pods: Vec<_> = pods.iter().map(|pod| pod.key.clone()).collect();
            self.statement.set_aside(&pods, claims);
        }
    }
}
