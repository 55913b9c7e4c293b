//! Ranked nodes for a demand, with reservations and refusals applied.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fit::{self, Fit, Takes};
use tessera_placement::fleet::{FleetNode, NodeIndex};
use tessera_placement::ranking::Side;
use tessera_placement::score::Score;
use tessera_placement::take_limit::TakeLimit;
use tessera_placement::view::View;

use crate::gangs::Gangs;
use crate::queue::{Asks, Queue};
use crate::refusals::{self, Refusals};
use crate::world::World;
use crate::{order, selector_costs};

/// The nodes for a demand under one way of allocating devices.
pub(crate) struct Ranked<'d> {
    pub ranking: &'d Side,
    pub view: View<'d>,
}

/// Nodes that a pod may not use now, although they suit it.
pub(crate) struct NodeFilter<'d> {
    now: Time,
    refusals: &'d Refusals,
    queue: &'d Queue,
    /// `None` if no node is kept for anybody.
    asks: Option<Asks>,
    owner: String,
}

impl<'d> NodeFilter<'d> {
    /// The filter for a pod with managed cards.
    pub fn new(
        world: &World,
        gangs: &Gangs,
        queue: &'d Queue,
        refusals: &'d Refusals,
        now: Time,
        pod: &Pod,
    ) -> Self {
        let asks = (!queue.is_empty()).then(|| order::asks(world, gangs, now, pod));
        NodeFilter { now, refusals, queue, asks, owner: refusals::owner(pod) }
    }

    /// The filter for a pod with devices from kube-scheduler, for which no node is kept.
    pub fn without_queue(queue: &'d Queue, refusals: &'d Refusals, now: Time, pod: &Pod) -> Self {
        NodeFilter { now, refusals, queue, asks: None, owner: refusals::owner(pod) }
    }

    /// Whether the node is kept for others.
    fn is_kept(&self, node: &FleetNode) -> bool {
        self.asks.as_ref().is_some_and(|asks| self.queue.is_kept_from(asks, &node.name, node.pools()))
    }
}

impl Ranked<'_> {
    /// Number of suitable nodes kept for others.
    pub fn kept(&self, filter: &NodeFilter<'_>) -> usize {
        self.ranking.best().filter(|(_, index)| filter.is_kept(self.view.fleet.node(*index))).count()
    }

    /// The suitable nodes that are neither kept for others nor recently refused a pod of this owner, the best first.
    pub fn free(&self, filter: &NodeFilter<'_>) -> impl Iterator<Item = (Score, NodeIndex)> {
        self.ranking.best().filter(|(_, index)| {
            let node = self.view.fleet.node(*index);
            !filter.is_kept(node) && !filter.refusals.contains(&filter.owner, &node.name, filter.now)
        })
    }
}

/// Whether any device of a steered node, free or not, matches the pod's requests.
pub(crate) fn is_ours(world: &mut World, demand: &Demand) -> bool {
    (0..world.fleet.len() as NodeIndex).any(|index| {
        let node = world.fleet.node(index);
        let name = node.is_steered().then(|| node.name.clone());
        name.is_some_and(|name| is_ours_on(world, demand, &name))
    })
}

pub(crate) fn is_ours_on(world: &mut World, demand: &Demand, node: &str) -> bool {
    let Some(node) = world.cluster.objects().node(node) else {
        return false;
    };
    let (_, claims) = demand.on(node);
    world.cluster.has_what_is_asked(node, &claims, &world.driver, &mut world.asker).unwrap_or(false)
}

pub(crate) fn node_of_pod(world: &World, key: &Key) -> Option<String> {
    world.cluster.objects().pods.get(key)?.node_name().map(str::to_owned)
}

/// The node of a slice in the inventory.
pub(crate) fn node_of_slice(world: &World, slice: &str) -> Option<String> {
    world.cluster.inventory().node_of_slice(slice).map(str::to_owned)
}

pub(crate) fn mark_slice(world: &mut World, slice: &str) {
    if let Some(node) = node_of_slice(world, slice) {
        world.fleet.mark_devices(&node);
    }
}

/// The pod's allocations from the node's managed cards within the limit, if it can run there.
pub(crate) fn fit_managed_cards(
    world: &mut World,
    demand: &Demand,
    index: NodeIndex,
    limit: Option<&TakeLimit>,
) -> Fit {
    let view = world.view().0;
    fit::of_managed_cards(demand, index, &mut View { limit, ..view })
}

/// The allocations kube-scheduler would choose for the pod on the node, if it can run there.
pub(crate) fn fit_by_scheduler(world: &mut World, demand: &Demand, node: &str) -> Option<Takes> {
    let index = world.fleet.find(node)?;
    fit::by_scheduler(demand, index, &mut world.view().0).takes()
}

/// The pools with matching devices for the pod, free or not; empty until its selectors are evaluated.
pub(crate) fn pools_asked(world: &mut World, demand: &Demand) -> BTreeSet<String> {
    if selector_costs::is_unanswered(world, demand) {
        return BTreeSet::new();
    }
    pools_with(world, |world, node| is_ours_on(world, demand, node))
}

/// The pools with any node satisfying the predicate. Skips nodes whose pools are all found already.
pub(crate) fn pools_with(
    world: &mut World,
    mut is_so: impl FnMut(&mut World, &str) -> bool,
) -> BTreeSet<String> {
    let mut asked = BTreeSet::new();
    for index in 0..world.fleet.len() {
        let node = world.fleet.node(index as u32);
        if node.pools().all(|pool| asked.contains(pool)) {
            continue;
        }
        let name = node.name.clone();
        if is_so(world, &name) {
            asked.extend(world.fleet.node(index as u32).pools().map(str::to_owned));
        }
    }
    asked
}

/// The nodes with managed cards for this demand, as of now.
pub(crate) fn ranked<'d>(world: &'d mut World, demand: &Demand) -> Ranked<'d> {
    let (mut view, rankings) = world.view();
    let ranking = rankings.managed(demand, &mut view);
    Ranked { ranking, view }
}

/// The nodes where kube-scheduler would find devices for this demand, as of now.
pub(crate) fn ranked_others<'d>(world: &'d mut World, demand: &Demand) -> Ranked<'d> {
    let (mut view, rankings) = world.view();
    let ranking = rankings.others(demand, &mut view);
    Ranked { ranking, view }
}
