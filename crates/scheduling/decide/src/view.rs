//! The fleet for display: devices and holders of each card, and waiting pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_allocator::inventory::DeviceRef;
use tessera_api::device_status::NOT_STARTED;
use tessera_api::fleet_view::{CardView, FleetView, Holder, NodeView, TeamView, WaitingPod};
use tessera_api::{PciBusId, attribute, capacity, managed};
use tessera_cluster::gang::GangId;
use tessera_cluster::{ClaimExt, Cluster, Key};
use tessera_placement::fleet::{Fleet, NodeIndex};
use tessera_placement::node_cards::{NodeCards, limit};

use crate::idle;
use crate::queue::Order;

/// Billionths in a MiB.
const MIB: i128 = (1 << 20) * 1_000_000_000;

/// Nodes collected so far for a view of the fleet.
#[derive(Debug, Default)]
pub struct ViewPass {
    pub(crate) next: NodeIndex,
    pub(crate) nodes: Vec<NodeView>,
}

/// The decision loop's view of the fleet, unsorted. [`FleetSnapshot::into_view`] sorts outside the loop.
#[derive(Debug, Default)]
pub struct FleetSnapshot {
    pub(crate) at: u64,
    pub(crate) leads: bool,
    pub(crate) nodes: Vec<NodeView>,
    /// Each with its order; `None` for pods not ordered by the controller.
    pub(crate) waiting: Vec<(Option<Order>, WaitingPod)>,
    pub(crate) teams: Vec<TeamView>,
}

impl FleetSnapshot {
    /// A fleet of these nodes, without waiting pods.
    #[must_use]
    pub fn of_nodes(nodes: Vec<NodeView>) -> Self {
        FleetSnapshot { nodes, ..FleetSnapshot::default() }
    }

    /// The fleet with nodes sorted by name and waiting pods numbered by place. Usage of cards is not known here.
    #[must_use]
    pub fn into_view(self) -> FleetView {
        let FleetSnapshot { at, leads, mut nodes, mut waiting, teams } = self;
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let ordered = waiting.iter_mut().filter_map(|(order, pod)| Some((order.as_ref()?, pod)));
        let mut orders: Vec<(&Order, &mut WaitingPod)> = ordered.collect();
        orders.sort_by(|one, other| one.0.cmp(other.0));
        let mut place = 0;
        let mut before: Option<&Order> = None;
        for (order, pod) in orders {
            if before != Some(order) {
                place += 1;
                before = Some(order);
            }
            (pod.place, pod.priority) = (place, order.priority());
        }
        let waiting = waiting.into_iter().map(|(_, pod)| pod).collect();
        FleetView { at, leads, nodes, waiting, teams, ..FleetView::default() }
    }
}

/// A node with its cards and their holders.
pub(crate) fn of_node(fleet: &mut Fleet, index: NodeIndex, cluster: &Cluster, driver: &str) -> NodeView {
    let used = &fleet.cards(index, cluster, driver).clone();
    let node = fleet.node(index);
    let mut cards: BTreeMap<PciBusId, CardView> = BTreeMap::new();
    for (address, card) in &used.cards {
        let report = node.report.as_ref().and_then(|(_, report)| report.cards.get(address));
        let view = CardView {
            pool: report.and_then(|report| report.pool.clone()),
            allocation: report.map(|report| report.allocation).unwrap_or_default(),
            allocated: card.used,
            ..CardView::default()
        };
        cards.insert(*address, view);
    }
    let parts = node.parts().into_iter().flat_map(|parts| parts.cards());
    for (device, part) in cluster.inventory().devices_of_node(&node.name).zip(parts) {
        let Some((address, slices)) = part else { continue };
        let (Some(card), Some(used_of)) = (cards.get_mut(&address), used.cards.get(&address)) else {
            continue;
        };
        // Of a card with two hundred partitions, only few are allocated.
        if used_of.is_all(slices) || card.memory_mib == 0 {
            describe(card, device);
        }
        let claims: BTreeSet<&Key> =
            cluster.holders(device).filter_map(tessera_cluster::Holder::claim).collect();
        if !claims.is_empty() {
            card.holders.extend(holders_of(&claims, device, used, cluster));
        }
    }
    cards.values_mut().for_each(limit_holders);
    NodeView { name: node.name.clone(), cards, no_usage: None }
}

/// Copies a device's attributes to its card. The device with the most memory is the whole card.
fn describe(card: &mut CardView, device: DeviceRef<'_>) {
    let memory = device.capacity(capacity::MEMORY).unwrap_or_default() / MIB;
    card.memory_mib = card.memory_mib.max(u64::try_from(memory).unwrap_or_default());
    if card.product_name.is_empty() {
        device.text_attribute(attribute::PRODUCT_NAME).unwrap_or_default().clone_into(&mut card.product_name);
    }
    for taint in device.taint_texts(managed::TAINT_KEY) {
        if !card.taints.contains(&taint) {
            card.taints.push(taint);
        }
    }
}

/// The claims' holdings of the device, one entry for each allocation result.
fn holders_of(
    claims: &BTreeSet<&Key>,
    device: DeviceRef<'_>,
    used: &NodeCards,
    cluster: &Cluster,
) -> Vec<Holder> {
    let (mut holders, mut results) = (Vec::new(), Vec::new());
    for key in claims {
        let Some(claim) = cluster.objects().claims.get(*key) else { continue };
        let of_device = claim.results().iter().filter(|result| {
            result.driver == device.driver_name()
                && result.pool == device.pool()
                && result.device == device.name()
                && result.admin_access != Some(true)
        });
        let idle = idle::condition(claim, device.driver_name());
        let since = idle.map(|idle| idle.last_transition_time.0.as_second());
        let holder = Holder {
            idle_since: since.and_then(|since| u64::try_from(since).ok()),
            not_started: idle.is_some_and(|idle| idle.reason == NOT_STARTED),
            device: device.name().to_owned(),
            namespace: key.namespace.clone(),
            claim: key.name.clone(),
            pods: claim.users().iter().map(|user| user.name.clone()).collect(),
            ..Holder::default()
        };
        for result in of_device {
            holders.push(holder.clone());
            results.push(result);
        }
    }
    for (holder, worth) in holders.iter_mut().zip(used.worths(cluster, device, &results)) {
        holder.allocated = worth;
    }
    holders
}

/// Limits the sum of a card's holders to the card, even where devices were allocated twice.
fn limit_holders(card: &mut CardView) {
    let mut worths: Vec<u32> = card.holders.iter().map(|holder| holder.allocated).collect();
    limit(&mut worths, card.allocated);
    for (holder, worth) in card.holders.iter_mut().zip(worths) {
        holder.allocated = worth;
    }
}

/// A waiting pod.
pub(crate) fn waiting_pod(
    key: &Key,
    pod: Option<&Pod>,
    gang: Option<&GangId>,
    why: String,
    pools: Vec<String>,
) -> WaitingPod {
    let created = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    WaitingPod {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        since: created.and_then(|created| u64::try_from(created.0.as_second()).ok()).unwrap_or_default(),
        why,
        pools,
        gang: gang.map(|gang| gang.name.clone()),
        ..WaitingPod::default()
    }
}
