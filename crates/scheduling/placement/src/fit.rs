//! Devices for a pod on one node, or the reason for refusing the pod. The only caller of the allocator for placement.

mod managed;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_allocator::claim::Claim;
use tessera_allocator::error::AllocateError;
use tessera_allocator::placement::Pick;
use tessera_api::PciBusId;
use tessera_cluster::outcome;
use tessera_cluster::subject::Wanted;

use crate::demand::Demand;
use crate::fleet::NodeIndex;
use crate::reason::Reason;
use crate::score::{Candidate, Score};
use crate::view::View;
use managed::Plan;

/// Verdict of a node for a pod.
#[derive(Debug)]
pub enum Fit {
    /// The pod can run there.
    Takes(Takes),
    /// The pod cannot run there at present.
    Blocked(Reason),
    /// kube-scheduler would end the attempt with this error, whatever the verdicts of other nodes.
    Fatal(String),
}

/// Devices for a pod on a node.
#[derive(Debug)]
pub struct Takes {
    /// How well the node suits.
    pub score: Score,
    /// One allocation for each claim to be allocated on the node, in the order of [`Demand::on`].
    pub allocations: Vec<AllocationResult>,
    /// By allocation: whether this controller writes the allocation.
    pub is_managed: Vec<bool>,
    /// Free thousandths of the node's cards afterwards, as given by [`crate::fleet::Fleet::free_after`]: one entry for each
    /// possible choice of cards. Empty where nodes are not ranked by remaining capacity.
    pub(crate) free: Box<[Box<[u16]>]>,
}

impl Fit {
    /// The devices, if the pod can run there.
    #[must_use]
    pub fn takes(self) -> Option<Takes> {
        match self {
            Fit::Takes(takes) => Some(takes),
            Fit::Blocked(_) | Fit::Fatal(_) => None,
        }
    }
}

/// Fit with managed cards for all claims asking for managed cards.
pub fn of_managed_cards(demand: &Demand, index: NodeIndex, view: &mut View<'_>) -> Fit {
    checked(demand, index, view, |node, view| match are_managed(demand, node, index, view) {
        Ok(is_managed) if !is_managed.contains(&true) => Fit::Blocked(Reason::NotManaged),
        Ok(is_managed) => devices_of_managed_cards(demand, &is_managed, node, index, view),
        Err(error) => Fit::Fatal(error.to_string()),
    })
}

/// Fit with the devices kube-scheduler would allocate.
pub fn by_scheduler(demand: &Demand, index: NodeIndex, view: &mut View<'_>) -> Fit {
    checked(demand, index, view, |node, view| devices_by_scheduler(demand, node, index, view))
}

/// Fit with managed cards where the pod asks for some of the node's, else with the devices kube-scheduler would allocate.
pub fn of_any_cards(demand: &Demand, index: NodeIndex, view: &mut View<'_>) -> Fit {
    match of_managed_cards(demand, index, view) {
        Fit::Blocked(Reason::NotManaged) => by_scheduler(demand, index, view),
        fit => fit,
    }
}

/// The least cost of the driver's devices for the pod on the node, managed or not, by the caller's measure. Other room does not
/// count. `None` where the node or its devices refuse the pod.
pub(crate) fn least_cost<C: Ord + Clone>(
    demand: &Demand,
    index: NodeIndex,
    view: &mut View<'_>,
    cost: impl FnMut(&[Pick<'_>]) -> C,
) -> Option<C> {
    let node = view.object(index)?;
    if refused(demand, node).is_some() {
        return None;
    }
    managed::least_cost(demand, &are_managed(demand, node, index, view).ok()?, node, index, view, cost)
}

/// The fit by devices, unless the Node object or other room refuses the pod.
fn checked(
    demand: &Demand,
    index: NodeIndex,
    view: &mut View<'_>,
    devices: impl FnOnce(&Node, &mut View<'_>) -> Fit,
) -> Fit {
    let Some(node) = view.object(index) else { return Fit::Blocked(Reason::NoNode) };
    if let Some(reason) = refused(demand, node) {
        return Fit::Blocked(reason);
    }
    match devices(node, view) {
        Fit::Takes(takes) => no_room(demand, node, view).map_or(Fit::Takes(takes), Fit::Blocked),
        other => other,
    }
}

/// Refusal based on the Node object alone, regardless of free resources.
pub(crate) fn refused(demand: &Demand, node: &Node) -> Option<Reason> {
    outcome::refusal(&demand.subject, node).map(|refusal| Reason::refused(&refusal))
}

/// Shortage of room other than devices.
pub(crate) fn no_room(demand: &Demand, node: &Node, view: &View<'_>) -> Option<Reason> {
    let pod = demand.subject.pod.as_ref();
    let refusal = pod.and_then(|pod| view.cluster.shortage(pod, node))?;
    Some(Reason::Room(refusal.to_string()))
}

/// By claim: whether this controller would allocate the claim on the node; empty for a node without managed cards.
///
/// # Errors
/// kube-scheduler would end its attempt with this error.
pub(crate) fn are_managed(
    demand: &Demand,
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Vec<bool>, AllocateError> {
    if !managed::has_cards(index, view) {
        return Ok(Vec::new());
    }
    let (wanted, claims) = demand.on(node);
    managed::claims(&wanted, &claims, node, view)
}

/// Cards of the node that this controller may allocate now.
pub(crate) fn managed_cards(index: NodeIndex, view: &View<'_>) -> BTreeSet<PciBusId> {
    let node = view.fleet.node(index);
    managed::cards(index, view).into_iter().filter(|card| !node.is_avoided(card)).collect()
}

/// Whether the claim's devices could come from managed cards: not for claims of extended resources, nor with administrative access.
pub(crate) fn may_be_managed(wanted: &Wanted, claim: &Claim) -> bool {
    managed::may_be(wanted, claim)
}

/// Fit with managed cards, ignoring other room. `is_managed` comes from [`are_managed`] and is true for at least one claim.
pub(crate) fn devices_of_managed_cards(
    demand: &Demand,
    is_managed: &[bool],
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Fit {
    let (_, claims) = demand.on(node);
    view.fleet.make_plain(index, view.cluster, view.driver);
    match managed::plan(&claims, is_managed, demand.cpu_milli, node, index, view) {
        Ok(None) => match managed::is_mixed(&claims, is_managed, node, view) {
            Ok(true) => Fit::Blocked(Reason::Mixed),
            Ok(false) if is_over_limit(demand, is_managed, node, index, view) => {
                Fit::Blocked(Reason::TeamLimit)
            }
            Ok(false) => Fit::Blocked(Reason::Devices),
            Err(error) => Fit::Fatal(error.to_string()),
        },
        planned => scored(demand, &claims, is_managed.to_vec(), index, view, planned),
    }
}

/// Whether only the limits on the pod's namespace are in the way.
fn is_over_limit(
    demand: &Demand,
    is_managed: &[bool],
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> bool {
    let Some(limit) = view.limit.take() else { return false };
    let fit = devices_of_managed_cards(demand, is_managed, node, index, view);
    view.limit = Some(limit);
    fit.takes().is_some()
}

/// Fit with the devices kube-scheduler would allocate, ignoring other room.
pub(crate) fn devices_by_scheduler(
    demand: &Demand,
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Fit {
    let (_, claims) = demand.on(node);
    let planned = view.cluster.plan(node, &claims, view.asker);
    let plan = |allocations| Plan { allocations, room: 0, alternatives: BTreeSet::new() };
    let planned = planned.map(|planned| planned.map(plan));
    scored(demand, &claims, vec![false; claims.len()], index, view, planned)
}

/// Scores the node with the planned allocations.
fn scored(
    demand: &Demand,
    claims: &[Claim],
    is_managed: Vec<bool>,
    index: NodeIndex,
    view: &mut View<'_>,
    planned: Result<Option<Plan>, AllocateError>,
) -> Fit {
    let Plan { allocations, room, mut alternatives } = match planned {
        Ok(Some(plan)) => plan,
        // A node whose slices are being replaced briefly takes no pods.
        Ok(None) | Err(AllocateError::InvalidPools) => return Fit::Blocked(Reason::Devices),
        Err(error) => return Fit::Fatal(error.to_string()),
    };
    let mut after = view.fleet.cards(index, view.cluster, view.driver).clone();
    after.add(view.cluster, &allocations, view.driver);
    view.fleet.make_plain(index, view.cluster, view.driver);
    let free = view.fleet.free_after(index, &after);
    let node = view.fleet.node(index);
    let candidate = Candidate {
        report: node.report.as_ref().map(|(_, report)| report),
        node,
        is_managed: is_managed.contains(&true),
        after: &after,
        claims,
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
    Fit::Takes(Takes { score, allocations, is_managed, free: alternatives.into_iter().collect() })
}
