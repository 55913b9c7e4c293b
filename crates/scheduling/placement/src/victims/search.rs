//! Seat by seat, the node where losing units costs least.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Holder;
use tessera_cluster::usage::Requested;

use super::choice::{Freed, Lack, bound, key};
use super::units::Units;
use super::{Cost, MOST_FITS, Plan};
use crate::demand::Demand;
use crate::fit::{self, Fit};
use crate::fleet::NodeIndex;
use crate::ranking::Rankings;
use crate::reason::Reason;
use crate::seats::{Filter, Placed, Seat, ranking};
use crate::shape::ShapeId;
use crate::statement::Statement;

/// Seats of one shape.
pub(super) struct Shape<'s> {
    pod: &'s Pod,
    demand: &'s Demand,
    pub(super) requested: Requested,
    /// Nodes able to take the seats now or with less taken, each with the reason why not now.
    pub(super) nodes: BTreeMap<NodeIndex, Option<Reason>>,
    /// Nodes by cost of the next seat there.
    queue: BTreeSet<(Cost, NodeIndex)>,
    choices: BTreeMap<NodeIndex, Choice>,
}

/// Units to lose for one seat on a node.
struct Choice {
    cost: Cost,
    units: Vec<usize>,
    /// Whether an exact fit confirmed them.
    is_exact: bool,
}

/// The order of seats that ask for unequal amounts. None is the best for all gangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Largest,
    Smallest,
    /// As long as others would be enough, whichever costs least; then the largest first.
    Cheapest,
}

/// A plan in progress.
pub(super) struct Search<'p, 's, 'a> {
    pub(super) statement: &'p mut Statement<'s>,
    pub(super) seats: &'p [Seat<'a>],
    pub(super) units: &'p mut Units,
    may: &'p [bool],
    pub(super) shapes: BTreeMap<ShapeId, Shape<'a>>,
    /// Units chosen so far, in order.
    pub(super) chosen: Vec<usize>,
    /// Nodes of which something is tried.
    pub(super) touched: BTreeSet<NodeIndex>,
    /// Whether pods that are ending already make room.
    is_any_leaving: bool,
    /// Exact fits in vain.
    fits: usize,
}

impl<'p, 's, 'a> Search<'p, 's, 'a> {
    pub fn new(
        statement: &'p mut Statement<'s>,
        rankings: &mut Rankings,
        seats: &'p [Seat<'a>],
        units: &'p mut Units,
        may: &'p [bool],
        filter: &impl Filter,
    ) -> Self {
        let mut shapes: BTreeMap<ShapeId, Shape<'a>> = BTreeMap::new();
        for (place, seat) in seats.iter().enumerate() {
            if shapes.contains_key(&seat.demand.shape) {
                continue;
            }
            let ranking = ranking(statement, rankings, seat.demand);
            let fleet = statement.fleet();
            let is_free = |index: &NodeIndex| filter.is_free(place, fleet.node(*index));
            let best = ranking.best().map(|(_, index)| (index, None));
            let could = ranking.could_later().map(|(index, reason)| (index, Some(reason.clone())));
            let nodes = best.chain(could).filter(|(index, _)| is_free(index)).collect();
            let shape = Shape {
                pod: seat.pod,
                demand: seat.demand,
                requested: Requested::of(seat.pod),
                nodes,
                queue: BTreeSet::new(),
                choices: BTreeMap::new(),
            };
            shapes.insert(seat.demand.shape, shape);
        }
        units.choices.begin(may);
        let (chosen, touched) = (Vec::new(), BTreeSet::new());
        let mut search =
            Search { statement, seats, units, may, shapes, chosen, touched, is_any_leaving: false, fits: 0 };
        let leaving: Vec<usize> = search.units.leaving().collect();
        search.is_any_leaving = !leaving.is_empty();
        leaving.into_iter().for_each(|unit| search.set_aside(unit));
        search
    }

    pub fn run(mut self, needed: usize) -> Option<Plan> {
        // Seats of one shape are alike in any order.
        let orders: &[Order] = match self.shapes.len() {
            0 | 1 => &[Order::Largest],
            _ if needed >= self.seats.len() => &[Order::Largest, Order::Smallest],
            _ => &[Order::Largest, Order::Smallest, Order::Cheapest],
        };
        let (aside, touched) = (self.statement.checkpoint(), self.touched.clone());
        let mut plans = Vec::new();
        for order in orders {
            (self.chosen, self.touched, self.fits) = (Vec::new(), touched.clone(), 0);
            plans.extend(self.plan(needed, *order));
            self.statement.rollback(aside);
        }
        // The seats were not found places without victims: others wait for pods that are ending, or for nothing.
        plans.retain(|plan| self.is_any_leaving || !plan.victims.is_empty());
        let cost = |plan: &Plan| Cost::of(plan.victims.iter().map(|unit| &self.units.all()[*unit]));
        plans.into_iter().min_by_key(cost)
    }

    /// Places the seats with the fewest nodes first, and of those in this order.
    fn plan(&mut self, needed: usize, order: Order) -> Option<Plan> {
        let aside = self.statement.checkpoint();
        let shapes: Vec<ShapeId> = self.shapes.keys().copied().collect();
        for shape in &shapes {
            let nodes: Vec<NodeIndex> = self.shapes[shape].nodes.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.choose(*shape, node));
        }
        let size = |seat: usize| (self.seats[seat].demand.devices(), self.seats[seat].demand.cpu_milli);
        let mut left: Vec<usize> = (0..self.seats.len()).collect();
        match order {
            Order::Smallest => left.sort_by_key(|seat| size(*seat)),
            Order::Largest | Order::Cheapest => left.sort_by_key(|seat| Reverse(size(*seat))),
        }
        left.sort_by_key(|seat| self.shapes[&self.seats[*seat].demand.shape].queue.len());
        let mut placed = Vec::new();
        while !left.is_empty() {
            // Seats beyond those needed get what nobody has to go for.
            let is_needed = placed.len() < needed;
            let enough = placed.len() + left.len();
            if is_needed && enough < needed {
                return None;
            }
            let is_any = order == Order::Cheapest && is_needed && enough > needed;
            let seat = left.remove(if is_any { self.cheapest(&left) } else { 0 });
            placed.extend(self.take_next(seat, is_needed));
        }
        if placed.len() < needed {
            return None;
        }
        self.statement.rollback(aside);
        let victims = self.spare(&mut placed, needed);
        Some(Plan { placed, victims })
    }

    /// Index of the seat placed at the least cost.
    fn cheapest(&self, left: &[usize]) -> usize {
        let cost = |place: &usize| {
            let queue = &self.shapes[&self.seats[left[*place]].demand.shape].queue;
            let cost = queue.first().map(|(cost, _)| cost);
            (cost.is_none(), cost)
        };
        (0..left.len()).min_by_key(cost).unwrap_or_default()
    }

    /// Places the seat where that costs least.
    fn take_next(&mut self, seat: usize, may_cost: bool) -> Option<Placed> {
        let Seat { key, pod, demand } = self.seats[seat];
        loop {
            let shape = self.shapes.get_mut(&demand.shape)?;
            let (cost, node) = shape.queue.first()?.clone();
            if !may_cost && cost.priority.is_some() {
                return None;
            }
            let choice = shape.choices.remove(&node)?;
            shape.queue.pop_first();
            let before = self.statement.checkpoint();
            let touched = self.touched.clone();
            choice.units.iter().for_each(|unit| self.set_aside(*unit));
            if let Fit::Takes(takes) = self.fit(demand, node)
                && self.statement.place(key, pod, demand, node, &takes)
            {
                self.chosen.extend(&choice.units);
                self.touched.insert(node);
                let nodes = choice.units.iter().flat_map(|unit| self.units.nodes_of(*unit));
                let changed: BTreeSet<NodeIndex> = nodes.copied().chain([node]).collect();
                let shapes: Vec<ShapeId> = self.shapes.keys().copied().collect();
                for shape in shapes {
                    changed.iter().for_each(|node| self.choose(shape, *node));
                }
                return Some(Placed { seat, node, takes });
            }
            self.statement.rollback(before);
            self.touched = touched;
            self.fits += 1;
            if self.fits >= MOST_FITS {
                return None;
            }
            if !choice.is_exact
                && let Some(wider) = self.widen(demand, node, &choice.units)
            {
                self.set(demand.shape, node, Some(wider));
            }
        }
    }

    /// Recomputes the units to lose for the next seat of the shape on the node.
    fn choose(&mut self, shape: ShapeId, node: NodeIndex) {
        let generation = self.statement.fleet().node(node).generation;
        let known = self.units.choices.get(shape, node, generation);
        let choice = known.unwrap_or_else(|| {
            let choice = self.choice(shape, node);
            if !self.touched.contains(&node) {
                self.units.choices.insert(shape, node, generation, choice.clone());
            }
            choice
        });
        let units = choice.map(|units| {
            let cost = Cost::of(units.iter().map(|unit| &self.units.all()[*unit]));
            Choice { cost, units, is_exact: false }
        });
        self.set(shape, node, units);
    }

    fn set(&mut self, shape: ShapeId, node: NodeIndex, choice: Option<Choice>) {
        let Some(shape) = self.shapes.get_mut(&shape) else { return };
        if let Some(before) = shape.choices.remove(&node) {
            shape.queue.remove(&(before.cost, node));
        }
        if let Some(choice) = choice {
            shape.queue.insert((choice.cost.clone(), node));
            shape.choices.insert(node, choice);
        }
    }

    /// The cheapest units to lose by arithmetic; `None` where all together would not do.
    fn choice(&mut self, shape: ShapeId, node: NodeIndex) -> Option<Vec<usize>> {
        let is_touched = self.touched.contains(&node);
        let shape = self.shapes.get(&shape)?;
        let reason = shape.nodes.get(&node)?;
        if !is_touched && reason.is_none() {
            return Some(Vec::new());
        }
        let (demand, requested) = (shape.demand, shape.requested.clone());
        if !is_touched && self.units.on(node).is_empty() {
            return None;
        }
        // Volumes, for example: no eviction helps there.
        let cluster = self.statement.cluster();
        let object = cluster.objects().node(&self.statement.fleet().node(node).name)?;
        if cluster.times_when_empty(shape.pod, object) == 0 {
            return None;
        }
        let is_short_of_devices = *reason == Some(Reason::Devices);
        let lack = self.lack(demand, &requested, node)?;
        let freed = self.freed(&requested, node, &lack);
        if !lack.is_met() {
            return lack.cheapest(&freed, self.units.all());
        }
        if is_touched {
            return Some(Vec::new());
        }
        // What is missing is not a matter of amounts: try the cheapest that could help.
        let mut others: Vec<usize> = freed
            .iter()
            .filter(|freed| !is_short_of_devices || !freed.cards.is_empty())
            .map(|freed| freed.unit)
            .collect();
        others.sort_by_cached_key(|unit| key(&self.units.all()[*unit]));
        others.truncate(1);
        (!others.is_empty()).then_some(others)
    }

    /// The node's lack for a seat, with the trials. `None` where the Node object is gone.
    pub(super) fn lack(&mut self, demand: &Demand, requested: &Requested, node: NodeIndex) -> Option<Lack> {
        let takes = self.bound(demand, node);
        let view = self.statement.view();
        let object = view.object(node)?;
        let free = view.cluster.free(requested, object);
        let room = requested.amounts().zip(free).map(|((_, asked), free)| asked.saturating_sub(free));
        let room = room.collect();
        let usable = fit::managed_cards(node, &view);
        let of_node = view.fleet.cards(node, view.cluster, view.driver);
        let cards = of_node.cards.iter().filter(|(card, found)| found.is_usable && usable.contains(card));
        let cards = cards.map(|(card, found)| (*card, found.held)).collect();
        Some(Lack { takes, cards, room })
    }

    /// What the demand takes of the node's cards at least.
    fn bound(&mut self, demand: &Demand, node: NodeIndex) -> [u64; 2] {
        if let Some(known) = self.units.bounds.get(&(demand.claims_shape, node)) {
            return *known;
        }
        let bound = bound(self.statement, demand, node).unwrap_or_default();
        self.units.bounds.insert((demand.claims_shape, node), bound);
        bound
    }

    /// The units that may go and are not gone yet, with what they free of the node.
    fn freed(&self, requested: &Requested, node: NodeIndex, lack: &Lack) -> Vec<Freed> {
        let cluster = self.statement.cluster();
        let parts = self.units.on(node).iter().filter(|part| self.may_go(part.unit));
        let freed = parts.map(|part| {
            let devices = part
                .devices
                .iter()
                .filter(|device| !self.units.is_also_of_others(device, cluster, self.statement.driver()));
            let mut room = vec![0i128; lack.room.len()];
            if lack.lacks_room() {
                let holds = part.pods.iter().filter_map(|pod| cluster.hold(&Holder::Pod(pod.clone())));
                for hold in holds {
                    let more = requested.part_of(hold);
                    room.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
                }
            }
            let cards = devices.map(|device| (device.card, device.worth)).collect();
            Freed { unit: part.unit, cards, room }
        });
        freed.collect()
    }

    fn may_go(&self, unit: usize) -> bool {
        self.may[unit] && !self.units.is_leaving(unit) && !self.chosen.contains(&unit)
    }

    /// The cheapest units by exact fits, where those by arithmetic did not do: a shortest prefix of all in the order of cost, without
    /// those that turn out needless.
    fn widen(&mut self, demand: &Demand, node: NodeIndex, tried: &[usize]) -> Option<Choice> {
        let parts = self.units.on(node).iter().map(|part| part.unit);
        let mut all: Vec<usize> = parts.filter(|unit| self.may_go(*unit)).collect();
        all.sort_by_cached_key(|unit| key(&self.units.all()[*unit]));
        if all.iter().all(|unit| tried.contains(unit)) || !self.would_fit(demand, node, &all)? {
            return None;
        }
        let (mut too_few, mut enough) = (0, all.len());
        while too_few + 1 < enough {
            let middle = usize::midpoint(too_few, enough);
            if self.would_fit(demand, node, &all[..middle])? {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        let mut units = all[..enough].to_vec();
        for place in (0..units.len().saturating_sub(1)).rev() {
            let mut without = units.clone();
            without.remove(place);
            match self.would_fit(demand, node, &without) {
                Some(true) => units = without,
                Some(false) => {}
                None => break,
            }
        }
        let cost = Cost::of(units.iter().map(|unit| &self.units.all()[*unit]));
        Some(Choice { cost, units, is_exact: true })
    }

    /// Whether the demand would fit on the node without these units; `None` once no more fits may be tried.
    fn would_fit(&mut self, demand: &Demand, node: NodeIndex, gone: &[usize]) -> Option<bool> {
        if self.fits >= MOST_FITS {
            return None;
        }
        self.fits += 1;
        let before = self.statement.checkpoint();
        for unit in gone {
            let unit = &self.units.all()[*unit];
            self.statement.set_aside(&unit.pods, &unit.claims);
        }
        let fits = matches!(self.fit(demand, node), Fit::Takes(_));
        self.statement.rollback(before);
        Some(fits)
    }

    pub(super) fn fit(&mut self, demand: &Demand, node: NodeIndex) -> Fit {
        self.units.effort.fits += 1;
        self.statement.fit(demand, node)
    }

    pub(super) fn set_aside(&mut self, unit: usize) {
        self.touched.extend(self.units.nodes_of(unit));
        let unit = &self.units.all()[unit];
        self.statement.set_aside(&unit.pods, &unit.claims);
    }
}
