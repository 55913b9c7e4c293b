//! The open pods of a gang as seats, and the nodes they may get.

use std::collections::BTreeMap;

use tessera_placement::fleet::FleetNode;
use tessera_placement::seats::{Filter, Placed, Seat};
use tessera_placement::{ShapeId, Time};

use crate::gangs::Gangs;
use crate::group::{Member, Placement};
use crate::order;
use crate::queue::{Asks, Queue};
use crate::refusals::{self, Refusals};
use crate::world::World;

/// Requests of a gang's open pods.
pub(crate) struct Open<'m> {
    members: Vec<&'m Member>,
    pub seats: Vec<Seat<'m>>,
    /// By seat: index of the first seat of the same shape.
    first: Vec<usize>,
    /// By first seat: owner of the pod, if nodes refused its pods, and what the pod asks for; `None` if no node is kept for anybody.
    of_shapes: BTreeMap<usize, (Option<String>, Option<Asks>)>,
}

/// Nodes neither kept for others nor refusing the pods.
pub(crate) struct FreeNodes<'d, 'm> {
    pub now: Time,
    pub open: &'d Open<'m>,
    pub refusals: &'d Refusals,
    pub standing: &'d Queue,
}

impl FreeNodes<'_, '_> {
    fn of(&self, seat: usize) -> Option<&(Option<String>, Option<Asks>)> {
        self.open.of_shapes.get(self.open.first.get(seat)?)
    }
}

impl Filter for FreeNodes<'_, '_> {
    fn is_kept(&self, seat: usize, node: &FleetNode) -> bool {
        let asks = self.of(seat).and_then(|(_, asks)| asks.as_ref());
        asks.is_some_and(|asks| self.standing.is_kept_from(asks, &node.name, node.pools()))
    }

    fn is_refused(&self, seat: usize, node: &FleetNode) -> bool {
        let owner = self.of(seat).and_then(|(owner, _)| owner.as_ref());
        owner.is_some_and(|owner| self.refusals.contains(owner, &node.name, self.now))
    }
}

/// The open pods as seats.
pub(crate) fn open_seats<'m>(
    world: &World,
    gangs: &Gangs,
    (standing, refusals): (&Queue, &Refusals),
    now: Time,
    open: &[&'m Member],
) -> Open<'m> {
    let mut found =
        Open { members: Vec::new(), seats: Vec::new(), first: Vec::new(), of_shapes: BTreeMap::new() };
    let mut shapes: BTreeMap<ShapeId, usize> = BTreeMap::new();
    for member in open {
        let Some(demand) = &member.demand else { continue };
        let seat = found.seats.len();
        let first = *shapes.entry(demand.shape).or_insert(seat);
        if first == seat {
            let asks = (!standing.is_empty()).then(|| order::asks(world, gangs, now, &member.pod));
            let owner = Some(refusals::owner(&member.pod)).filter(|owner| refusals.has_any(owner));
            found.of_shapes.insert(seat, (owner, asks));
        }
        found.first.push(first);
        found.members.push(member);
        found.seats.push(Seat { key: &member.key, pod: &member.pod, demand });
    }
    found
}

/// The seats' nodes and devices, to be written.
pub(crate) fn placements<'m>(world: &World, open: &Open<'m>, placed: Vec<Placed>) -> Vec<Placement<'m>> {
    let placement = |Placed { seat, node, takes }: Placed| {
        let node = world.fleet.node(node).name.clone();
        let why = format!("best node next to its gang: {node}");
        Placement { member: open.members[seat], node, fit: takes, why }
    };
    placed.into_iter().map(placement).collect()
}
