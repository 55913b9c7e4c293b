//! At the end no team below its guarantee waits for what others borrow.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;

use crate::simulation::api_server::{Server, Surroundings, has_ended, is_running, node_name};
use crate::simulation::checks::end::is_unserved;
use crate::simulation::checks::gangs::{gang_of, is_member};
use crate::simulation::checks::{names_a_claim, queue};
use crate::simulation::kubernetes;
use crate::simulation::oracle::{self, DeviceId, Holdings, Offer, Taken, Teams};

/// A pod or gang with managed devices.
struct Unit {
    devices: Vec<DeviceId>,
    /// Pods that a gang does not need come last, those that do not borrow first, then by priority and age.
    order: (bool, bool, Reverse<i32>, Option<Timestamp>),
    /// Whether somebody may ask its pods to go.
    may_go: bool,
}

/// Checks single pods with claims of their own.
pub fn waits_for_what_others_borrow(around: &mut Surroundings, server: &Server) {
    if !around.has_quotas() {
        return;
    }
    let view = server.view();
    let (teams, taken) = (Teams::of(view), oracle::taken(view));
    let waits = |pod: &Pod| {
        node_name(pod).is_none()
            && !has_ended(pod)
            && pod.metadata.deletion_timestamp.is_none()
            && !is_member(pod)
            && !names_a_claim(pod)
            && !is_unserved(server, pod)
    };
    for (key, pod) in server.pods().filter(|(_, pod)| waits(pod)) {
        if teams.waits_for_hours(&key.namespace).is_some() {
            continue;
        }
        // What is within a parent's guarantee is not for others.
        let may_ask = |namespace: &&str| {
            teams.is_family(namespace, &key.namespace) || !teams.has_parent_with_guarantee(namespace)
        };
        let mut holdings = Holdings::of(view);
        let own = teams.name_of(&key.namespace);
        let others = around
            .namespaces
            .iter()
            .filter(|namespace| may_ask(namespace))
            .map(|namespace| teams.name_of(namespace));
        for team in others.filter(|team| *team != own) {
            holdings.remove_devices(&borrowed(server, &teams, &taken, team));
        }
        for node in oracle::nodes(view) {
            for fit in oracle::fits(view, &holdings, pod, node, Offer::Managed) {
                let devices: Vec<DeviceId> = fit.values().flat_map(oracle::devices_in).collect();
                if !devices.is_empty() && teams.exceeded(&taken, &key.namespace, true, &devices).is_none() {
                    around.violated(|| format!("{key} waits, and others borrow {devices:?}"));
                }
            }
        }
    }
}

/// Devices that the team borrows in any case, and may have to give back.
fn borrowed(server: &Server, teams: &Teams<'_>, taken: &Taken, team: Option<&str>) -> Vec<DeviceId> {
    let units = units(server, teams, team);
    let may_go = |unit: &&Unit| unit.may_go;
    let Some(mut left) = teams.guarantee(team) else {
        return units.iter().filter(may_go).flat_map(|unit| unit.devices.clone()).collect();
    };
    // What is in no unit comes first.
    let of_units: Vec<&DeviceId> = units.iter().flat_map(|unit| &unit.devices).collect();
    let rest: Vec<DeviceId> = taken
        .iter()
        .filter(|(claim, _)| teams.name_of(&claim.namespace) == team)
        .flat_map(|(_, devices)| devices)
        .filter(|device| !of_units.contains(device))
        .cloned()
        .collect();
    left.force(&rest);
    let mut borrowed = Vec::new();
    for (place, unit) in units.iter().enumerate() {
        let is_within = left.take(&unit.devices);
        let is_alone =
            units.iter().enumerate().all(|(other, unit_of)| other == place || unit_of.order != unit.order);
        if !is_within && is_alone && unit.may_go {
            borrowed.extend(unit.devices.clone());
        }
    }
    borrowed
}

/// The team's pods and gangs with managed devices, in the order in which they use its guarantee. Pods that a gang does not need are by themselves.
fn units(server: &Server, teams: &Teams<'_>, team: Option<&str>) -> Vec<Unit> {
    let view = server.view();
    let mut groups: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for (key, pod) in server.pods().filter(|(_, pod)| node_name(pod).is_some() && !has_ended(pod)) {
        // An exempt pod gives nothing back.
        if teams.name_of(&key.namespace) == team && !oracle::is_exempt(pod) {
            groups.entry(queue::who(pod)).or_default().push(pod);
        }
    }
    let unit = |(pods, is_surplus): (Vec<&Pod>, bool)| {
        let asked = |pod: &&Pod| oracle::asked(view, pod).unwrap_or_default();
        let allocations = pods.iter().flat_map(asked).filter_map(|asked| asked.allocation());
        let managed = allocations.filter(|allocation| {
            oracle::node_of(allocation).is_some_and(|node| oracle::has_managed_devices(view, node))
        });
        let can_go = |pod: &&Pod| {
            let has_started = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
            is_running(pod) && has_started && !names_a_claim(pod) && !kubernetes::is_kept(pod)
        };
        Unit {
            devices: managed.flat_map(oracle::devices_in).collect(),
            order: (
                is_surplus,
                pods.iter().all(|pod| oracle::borrows(pod)),
                Reverse(queue::lowest_priority(pods.iter().copied())),
                pods.iter().map(|pod| pod.metadata.creation_timestamp.clone()).max().flatten(),
            ),
            may_go: pods.iter().all(can_go),
        }
    };
    let mut units: Vec<Unit> = groups
        .into_values()
        .flat_map(|pods| apart(server, pods))
        .map(unit)
        .filter(|unit| !unit.devices.is_empty())
        .collect();
    units.sort_by(|one, other| one.order.cmp(&other.order));
    units
}

/// The pods that a gang needs, and each other one alone: the last by index. Each with whether the gang goes on without it.
fn apart<'p>(server: &Server, mut pods: Vec<&'p Pod>) -> Vec<(Vec<&'p Pod>, bool)> {
    let Some((gang, min)) = gang_of(pods[0]) else { return vec![(pods, false)] };
    let is_done =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
    let of_gang = |pod: &Pod| gang_of(pod).is_some_and(|(other, _)| other == gang);
    let done = server.pods().filter(|(_, pod)| of_gang(pod) && is_done(pod)).count();
    let index = |pod: &&Pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        name.rsplit('-').next().and_then(|index| index.parse::<usize>().ok())
    };
    pods.sort_by_key(index);
    let surplus = pods.split_off(pods.len().min(min.saturating_sub(done).max(1)));
    let alone = surplus.into_iter().map(|pod| (vec![pod], true));
    std::iter::once((pods, false)).chain(alone).collect()
}
