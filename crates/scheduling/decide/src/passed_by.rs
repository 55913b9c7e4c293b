//! Ineffective priorities: pods waiting for cards given by kube-scheduler to pods of lower priority. It never preempts for devices.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::DeviceName;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{ClaimExt, PodExt};
use tessera_placement::demand::Demand;

use crate::nodes;
use crate::state::State;
use crate::world::World;

/// Limit on shapes of waiting pods examined, highest priorities first.
const MOST_SHAPES: usize = 16;

/// Limit on waiting pods examined.
const MOST_PODS: usize = 256;

/// Whether the pod's preemptionPolicy allows preemption.
fn may_preempt(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) != Some("Never")
}

/// Pools allocated by kube-scheduler with pods waiting while pods of lower priority hold their cards. The value is the highest
/// waiting priority.
pub(crate) fn passed_by(state: &mut State) -> BTreeMap<String, i32> {
    let lowest = lowest_of_scheduler(&state.world);
    let Some(least) = lowest.values().copied().min() else { return BTreeMap::new() };
    let pods = state.world.cluster.objects().pods.values().map(AsRef::as_ref);
    let mut waiting: Vec<(Reverse<i32>, &Pod)> = pods
        .filter(|pod| pod.node_name().is_none() && pod.is_unschedulable() && !pod.has_ended())
        .filter(|pod| pod.priority() > least && may_preempt(pod))
        .map(|pod| (Reverse(pod.priority()), pod))
        .collect();
    waiting.sort_by_key(|(priority, _)| *priority);
    let mut demands: Vec<(i32, Demand)> = Vec::new();
    for (Reverse(priority), pod) in waiting.into_iter().take(MOST_PODS) {
        let Ok(demand) = Demand::of(state.world.cluster.objects(), pod) else { continue };
        let is_new = demands.iter().all(|(_, known)| known.shape != demand.shape);
        if is_new && demand.is_open() && demand.obstacle().is_none() {
            demands.push((priority, demand));
        }
        if demands.len() == MOST_SHAPES {
            break;
        }
    }
    let mut passed: BTreeMap<String, i32> = BTreeMap::new();
    for (priority, demand) in demands {
        for pool in nodes::pools_asked(&mut state.world, &demand) {
            if lowest.get(&pool).is_some_and(|lowest| *lowest < priority) {
                passed.entry(pool).or_insert(priority);
            }
        }
    }
    passed
}

/// By pool: the lowest priority of the pods holding its unmanaged cards.
fn lowest_of_scheduler(world: &World) -> BTreeMap<String, i32> {
    let mut lowest: BTreeMap<String, i32> = BTreeMap::new();
    for (key, claim) in &world.cluster.objects().claims {
        let pools = pools_of_scheduler(world, claim);
        if pools.is_empty() {
            continue;
        }
        let pods = claim.users().iter().filter_map(|user| {
            let key = key.with_name(&user.name);
            world.cluster.objects().pods.get(&key)
        });
        let Some(of_claim) = pods.map(|pod| pod.priority()).max() else { continue };
        for pool in pools {
            lowest
                .entry(pool.to_owned())
                .and_modify(|known| *known = of_claim.min(*known))
                .or_insert(of_claim);
        }
    }
    lowest
}

/// The pools of unmanaged cards held by the claim.
fn pools_of_scheduler<'w>(world: &'w World, claim: &ResourceClaim) -> BTreeSet<&'w str> {
    let node = claim.allocated_node().and_then(|node| world.fleet.find(node));
    let Some((_, report)) = node.and_then(|node| world.fleet.node(node).report.as_ref()) else {
        return BTreeSet::new();
    };
    let results = claim.results().iter();
    let own = results.filter(|result| result.driver == world.driver && result.admin_access != Some(true));
    let names = own.filter_map(|result| result.device.parse::<DeviceName>().ok());
    let cards = names.filter_map(|name| report.cards.get(&name.card()));
    cards
        .filter(|card| card.allocation != Allocation::Managed)
        .filter_map(|card| card.pool.as_deref())
        .collect()
}
