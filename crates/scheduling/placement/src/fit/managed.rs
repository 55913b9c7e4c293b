//! Allocation of managed cards by this controller.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_allocator::claim::{Ask, Claim};
use tessera_allocator::error::AllocateError;
use tessera_allocator::inventory::DeviceRef;
use tessera_allocator::placement::Pick;
use tessera_api::gpu_pool::TopologyPolicy;
use tessera_api::{DeviceName, DeviceType, PciBusId, managed};
use tessera_cluster::subject::Wanted;
use tessera_cluster::{AllocationExt, PlacementLimits};

use crate::demand::Demand;
use crate::fleet::{FleetNode, NodeIndex};
use crate::value::{CardValues, NodeValue};
use crate::view::View;

/// Whether the claim's devices could come from managed cards. Not for claims of extended resources, made by kube-scheduler itself, nor
/// for claims with admin access, as admin access consumes no capacity.
pub(super) fn may_be(wanted: &Wanted, claim: &Claim) -> bool {
    wanted.extended_resources.is_empty() && !has_admin_access(claim)
}

/// By claim: whether its devices come from managed cards of the node.
pub(super) fn claims(
    wanted: &[&Wanted],
    claims: &[Claim],
    node: &Node,
    view: &mut View<'_>,
) -> Result<Vec<bool>, AllocateError> {
    let mut are_managed = vec![false; claims.len()];
    for (place, (wanted, claim)) in wanted.iter().zip(claims).enumerate() {
        are_managed[place] = may_be(wanted, claim)
            && view.cluster.has_what_is_asked(node, std::slice::from_ref(claim), view.driver, view.asker)?;
    }
    Ok(are_managed)
}

/// Whether a claim for managed cards also has a request matching none of the driver's devices on the node.
pub(super) fn is_mixed(
    claims: &[Claim],
    are_managed: &[bool],
    node: &Node,
    view: &mut View<'_>,
) -> Result<bool, AllocateError> {
    let managed = claims.iter().zip(are_managed).filter(|(_, is_managed)| **is_managed);
    for (claim, _) in managed.filter(|(claim, _)| claim.requests.len() > 1) {
        for request in &claim.requests {
            let alone = Claim { requests: vec![request.clone()], constraints: Vec::new(), ..claim.clone() };
            if !view.cluster.has_what_is_asked(node, &[alone], view.driver, view.asker)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Limit of devices tried on one node: enough for all sets of four of sixteen cards.
const STEPS: u64 = 10_000;

/// Limit of card sets compared to find a machine's best: all sets of eight of sixteen.
const MOST_SETS: usize = 12_870;

/// Planned allocations.
pub(super) struct Plan {
    /// One for each claim.
    pub allocations: Vec<AllocationResult>,
    /// Room for other partitions lost to the planned ones, see [`crate::value::Partitions`].
    pub room: u64,
    /// For a single share of a card: free capacity of the node's cards ([`crate::fleet::Fleet::free_after`]) for each card able to
    /// hold the share. The best one depends on later changes of the learned demand and on the pod's other needs.
    pub alternatives: BTreeSet<Box<[u16]>>,
}

/// Allocations on the node: managed claims get the best devices of managed cards, other claims the devices kube-scheduler would
/// allocate. `None` if they do not fit, or if a pool requires better connected cards than are free.
pub(super) fn plan(
    claims: &[Claim],
    are_managed: &[bool],
    cpu_milli: u64,
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Option<Plan>, AllocateError> {
    let of = |managed: bool| {
        let both = claims.iter().zip(are_managed);
        both.filter(|(_, is_managed)| **is_managed == managed).map(|(claim, _)| claim.clone()).collect()
    };
    let (ours, others): (Vec<Claim>, Vec<Claim>) = (of(true), of(false));
    let cards = cards(index, view);
    let states = view.fleet.cards(index, view.cluster, view.driver).states();
    view.fleet.find_sets(index);
    let fleet_node = view.fleet.node(index);
    let policy = policy(fleet_node, &cards);
    let Some(parts) = fleet_node.parts() else { return Ok(None) };
    let value = NodeValue::new(view.driver, parts, states, (fleet_node.sets(), view.mix), policy);
    let (packing, plain) = (&view.fleet.packing, view.fleet.plain(index));
    let value = value.with_values(CardValues { packing, node: plain, cpu_milli });
    let may_give = |device: DeviceRef<'_>| {
        let card = value.card(device.name()).filter(|_| device.driver_name() == view.driver);
        card.is_some_and(|card| cards.contains(&card) && !fleet_node.is_avoided(&card))
    };
    let left = view.limit.map(|limit| limit.left(view.cluster, view.driver));
    let allows = left.as_ref().map(|left| |picks: &[Pick<'_>]| left.allows(picks));
    let may_take = allows.as_ref().map(|allows| allows as &dyn Fn(&[Pick<'_>]) -> bool);
    let limits =
        PlacementLimits { tolerated: &[managed::TAINT_KEY], may_give: &may_give, may_take, steps: STEPS };
    let mut shares: Vec<(u64, Box<[u16]>)> = Vec::new();
    let cost = |picks: &[Pick<'_>]| {
        let cost = value.cost(picks);
        if let [_] = picks {
            shares.extend(value.free_after(picks).map(|free| (cost.room, free)));
        }
        cost
    };
    let placed = view.cluster.place(node, &ours, &limits, view.asker, cost)?;
    let Some(placed) = placed else { return Ok(None) };
    let is_one = others.is_empty() && placed.allocations.iter().flat_map(AllocationExt::results).count() == 1;
    shares.retain(|(room, _)| is_one && *room == placed.cost.room);
    let alternatives: BTreeSet<Box<[u16]>> = shares.into_iter().map(|(_, free)| free).collect();
    if !is_as_connected_as_required(&placed.allocations, &cards, fleet_node) {
        return Ok(None);
    }
    let room = placed.cost.room;
    let others =
        if others.is_empty() { Some(Vec::new()) } else { view.cluster.plan(node, &others, view.asker)? };
    let Some(others) = others else { return Ok(None) };
    let (mut ours, mut others) = (placed.allocations.into_iter(), others.into_iter());
    let next = |is_managed: &bool| if *is_managed { ours.next() } else { others.next() };
    let allocations: Option<Vec<AllocationResult>> = are_managed.iter().map(next).collect();
    Ok(allocations.map(|allocations| Plan { allocations, room, alternatives }))
}

/// The least cost of devices for the managed claims or, if none is, for all claims, by the caller's measure.
pub(super) fn least_cost<C: Ord + Clone>(
    demand: &Demand,
    are_managed: &[bool],
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
    cost: impl FnMut(&[Pick<'_>]) -> C,
) -> Option<C> {
    let (_, claims) = demand.on(node);
    let is_managed = are_managed.contains(&true);
    let asked = claims.iter().enumerate().filter(|(place, _)| !is_managed || are_managed[*place]);
    let asked: Vec<Claim> = asked.map(|(_, claim)| claim.clone()).collect();
    let cards = super::managed_cards(index, view);
    view.fleet.cards(index, view.cluster, view.driver);
    let parts = view.fleet.node(index).parts()?;
    let may_give = |device: DeviceRef<'_>| {
        !is_managed || parts.of_device(device.name()).is_some_and(|part| cards.contains(&part.card))
    };
    let tolerated = [managed::TAINT_KEY];
    let tolerated = if is_managed { &tolerated[..] } else { &[] };
    let limits = PlacementLimits { tolerated, may_give: &may_give, may_take: None, steps: STEPS };
    Some(view.cluster.place(node, &asked, &limits, view.asker, cost).ok()??.cost)
}

/// Topology policy of the pool of the node's first managed card: sets are compared over the whole machine, so one policy must do.
fn policy(node: &FleetNode, cards: &BTreeSet<PciBusId>) -> TopologyPolicy {
    let report = node.report.as_ref().map(|(_, report)| report);
    let reports = cards.iter().filter_map(|card| report?.cards.get(card));
    reports.into_iter().next().map_or_else(TopologyPolicy::default, |card| card.placement.topology)
}

/// Whether the taken whole cards have the best ring among all managed cards of the machine, free or not. Only checked if the pool
/// of a taken card requires the best.
fn is_as_connected_as_required(
    allocations: &[AllocationResult],
    cards: &BTreeSet<PciBusId>,
    node: &FleetNode,
) -> bool {
    let names =
        allocations.iter().flat_map(AllocationExt::results).filter_map(|result| result.device.parse().ok());
    let whole = names.filter(|name: &DeviceName| name.device_type() == DeviceType::Gpu);
    let whole: Vec<PciBusId> = whole.map(|name| name.card()).collect();
    let demands = |card: &PciBusId| {
        let report = node.report.as_ref().and_then(|(_, report)| report.cards.get(card));
        report.is_some_and(|card| card.placement.topology == TopologyPolicy::Required)
    };
    let Some(topology) = node.topology().filter(|_| whole.len() > 1 && whole.iter().any(demands)) else {
        return true;
    };
    let taken = topology.set(whole);
    let ring = topology.ring(taken);
    let all = topology.set(cards.iter().copied());
    all.subsets(taken.len()).take(MOST_SETS).all(|set| topology.ring(set) <= ring)
}

/// Managed cards of the node, as far as handed over.
pub(super) fn cards(index: NodeIndex, view: &View<'_>) -> BTreeSet<PciBusId> {
    let handed_over = view.handed_over;
    handed_over.map_or_else(BTreeSet::new, |before| view.fleet.node(index).managed_cards(before))
}

/// Whether any card of the node is managed and handed over.
pub(super) fn has_cards(index: NodeIndex, view: &View<'_>) -> bool {
    view.handed_over.is_some_and(|before| view.fleet.node(index).has_managed_cards(before))
}

fn has_admin_access(claim: &Claim) -> bool {
    claim.requests.iter().any(|request| match &request.ask {
        Ask::Exactly(ask) => ask.has_admin_access(),
        Ask::FirstAvailable(_) | Ask::Unknown => false,
    })
}
