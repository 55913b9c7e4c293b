//! Invariants long after the last fault: no pod waits although a node fits, and the loop's state is correct.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_api::steering::GATE;
use tessera_cluster::Key;
use tessera_decide::Time;

use super::{gangs, idle, queue, teams};
use crate::simulation::api_server::{
    Server, Surroundings, gates, has_ended, is_refused, node_name, refuses_writes,
};
use crate::simulation::kubernetes::has_label;
use crate::simulation::oracle::{self, Asked, DeviceId, Holdings, Offer};
use crate::simulation::replica::Replica;
use crate::simulation::scheduler::{self, FAILS_TO_BIND};
use crate::simulation::users::cards_asked;

/// Runs all final checks.
pub fn end(around: &mut Surroundings, server: &Server, replicas: &[Replica], quiet_since: Time) {
    gangs::end(around, server);
    for (key, pod) in server.pods() {
        keeps_its_gate(around, server, &key.name, pod);
    }
    waits_although_it_fits(around, server);
    not_looked_at(around, server);
    devices_of_nobody(around, server);
    teams::waits_for_what_others_borrow(around, server);
    for replica in replicas {
        one(around, server, replica, quiet_since);
    }
}

/// Whether the pod cannot be served, however many devices are free.
pub(super) fn is_unserved(server: &Server, pod: &Pod) -> bool {
    let asked = oracle::asked(server.view(), pod).unwrap_or_default();
    let mut claims = asked.iter().filter_map(|asked| server.claim(&asked.key()?));
    refuses_writes(&pod.metadata)
        || claims.any(|claim| refuses_writes(&claim.metadata))
        || has_label(pod, FAILS_TO_BIND)
        || !scheduler::is_ours(pod)
}

fn keeps_its_gate(around: &mut Surroundings, server: &Server, name: &str, pod: &Pod) {
    if gates(pod).is_empty() || is_unserved(server, pod) || idle::is_held_back(server, pod) {
        return;
    }
    if cards_asked(pod) == Some(0) && pod.spec.as_ref().is_some_and(asks_for_nothing) {
        around.violated(|| format!("{name} asks for nothing of ours and keeps its gate"));
    }
    let Some(asked) = oracle::asked(server.view(), pod) else { return };
    if !asked.is_empty() && asked.iter().all(|asked| asked.allocation().is_some()) {
        around.violated(|| format!("{name} has its devices and keeps its gate"));
    }
    if gangs::is_member(pod) {
        return;
    }
    let holdings = Holdings::of(server.view());
    for node in oracle::nodes(server.view()) {
        let node_name = node.metadata.name.as_deref().unwrap_or_default();
        if !scheduler::dislikes(pod, node_name) && fits(server, &holdings, pod, node, Offer::Native) {
            around.violated(|| format!("{name} fits on {node_name} and keeps its gate"));
        }
    }
}

/// Whether the pod fits on the node, within the limits of its team.
fn fits(server: &Server, holdings: &Holdings, pod: &Pod, node: &Node, offer: Offer) -> bool {
    let mut fits = oracle::fits(server.view(), holdings, pod, node, offer);
    fits.any(|fit| {
        let devices: Vec<DeviceId> = fit.values().flat_map(oracle::devices_in).collect();
        teams::may_have(server, pod, &devices)
    })
}

fn asks_for_nothing(spec: &PodSpec) -> bool {
    let template = spec.resource_claims.iter().flatten().next();
    template.is_none_or(|asked| asked.resource_claim_template_name.as_deref() == Some("nic"))
}

/// Checks gated and ungated pods, for managed and other cards.
fn waits_although_it_fits(around: &mut Surroundings, server: &Server) {
    let view = server.view();
    let holdings = Holdings::of(view);
    let waits = |pod: &Pod| node_name(pod).is_none() && pod.metadata.deletion_timestamp.is_none();
    for (key, pod) in server.pods().filter(|(_, pod)| waits(pod) && !gangs::is_member(pod)) {
        if is_unserved(server, pod) {
            continue;
        }
        for node in oracle::nodes(view) {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let is_kept = idle::is_held_back(server, pod)
                || oracle::has_managed_devices(view, name) && queue::is_kept_from(around, server, pod);
            if !is_kept && fits(server, &holdings, pod, node, Offer::Any) {
                around.violated(|| format!("{} fits on {name} and waits", key.name));
            }
        }
    }
}

fn is_under_way(pod: &Pod) -> bool {
    gates(pod).is_empty() && node_name(pod).is_none() && !is_refused(pod)
}

fn not_looked_at(around: &mut Surroundings, server: &Server) {
    for (key, pod) in server.pods().filter(|(_, pod)| is_under_way(pod) && !has_ended(pod)) {
        let asked = oracle::asked(server.view(), pod);
        let has_claims = |asked: Vec<Asked<'_>>| asked.iter().all(|asked| matches!(asked, Asked::Claim(_)));
        if asked.is_some_and(has_claims) && !is_unserved(server, pod) {
            around.violated(|| format!("kube-scheduler has not looked at {}", key.name));
        }
    }
}

fn devices_of_nobody(around: &mut Surroundings, server: &Server) {
    for (key, claim) in server.claims() {
        let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten()).count();
        let annotations = claim.metadata.annotations.as_ref();
        // kube-scheduler leaves its allocation on a named claim when it cannot bind the pod.
        let is_ours = annotations.is_some_and(|all| all.contains_key(EPOCH_ANNOTATION));
        if oracle::allocation(claim).is_some() && users == 0 && is_ours {
            around.violated(|| format!("{} has devices that nobody uses", key.name));
        }
    }
}

fn one(around: &mut Surroundings, server: &Server, replica: &Replica, quiet_since: Time) {
    let number = replica.number;
    if replica.last_intent > quiet_since {
        around.violated(|| format!("replica {number} still decides"));
    }
    if replica.is_writing() {
        around.violated(|| format!("replica {number} still writes"));
    }
    let decider = &replica.decider;
    let is_gated = |pod: &Pod| gates(pod).iter().any(|gate| gate == GATE);
    let gated = oracle::pods(server.view())
        .filter(|pod| is_gated(pod) && pod.metadata.deletion_timestamp.is_none())
        .map(|pod| Key::from(&pod.metadata));
    let gated: BTreeSet<Key> = gated.collect();
    // Pods without gates are recognized as ours only once the loop has processed them.
    let has_gate = |key: &&Key| server.pod(key).is_some_and(|pod| !gates(pod).is_empty());
    let waiting: BTreeSet<Key> = decider.waiting().map(|(key, _)| key).filter(has_gate).cloned().collect();
    if waiting != gated {
        around.violated(|| format!("replica {number} counts as waiting {waiting:?}, not {gated:?}"));
    }
    let under_way = server.pods().filter(|(_, pod)| is_under_way(pod)).count();
    let on_their_way = decider.on_their_way();
    if on_their_way > under_way {
        around.violated(|| format!("replica {number}: {on_their_way} on their way, not {under_way}"));
    }
    if on_their_way > 0 {
        return;
    }
    teams::are_charged(around, server, replica);
    let cluster = decider.cluster();
    let counted = cluster.inventory().devices().map(|device| {
        (device.pool().to_owned(), device.name().to_owned(), cluster.held().holds_whole(device))
    });
    let counted: BTreeSet<(String, String, bool)> = counted.collect();
    let holdings = Holdings::of(server.view());
    let held = oracle::published(server.view()).map(|(_, device)| {
        let is_held = holdings.contains(&device);
        (device.0, device.1, is_held)
    });
    let held: BTreeSet<(String, String, bool)> = held.collect();
    if counted != held {
        let wrong: Vec<_> = counted.symmetric_difference(&held).collect();
        around.violated(|| format!("replica {number} is wrong about what is held: {wrong:?}"));
    }
}
