//! What is on its way to claims, after each observation and decision: it counts as held, nobody else holds it, and it waits for
//! something. (Of what is observed at once, all is observed first: nothing is decided in between.)

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;
use tessera_decide::{Decider, Time};

use super::devices::overlap;
use crate::objects::DRIVER;
use crate::simulation::api_server::{Server, Surroundings, has_ended, node_name};
use crate::simulation::oracle::{self, DeviceId, View};
use crate::simulation::replica::Replica;

/// So long devices may count as held before a claim is seen with them: a pod that is on its way is bound or refused by then.
const LONGEST: Time = Time::from_secs(150);

/// Somebody that holds a device, as the loop has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    device: DeviceId,
    name: String,
}

impl Holder {
    /// Whether it is for a pod that waits until others have ended, so that they may hold the same.
    fn is_nomination(&self) -> bool {
        self.name.starts_with("nomination ")
    }

    /// Whether a claim of that name was seen with the device.
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

/// An allocation that was done and may not have been seen yet.
#[derive(Debug, Clone)]
pub struct Arrived {
    pub claim: Key,
    pub uid: String,
    pub version: u64,
    pub devices: Vec<DeviceId>,
}

/// What a replica has noted of what is on its way.
#[derive(Debug, Default)]
pub struct OnTheWay {
    pub arrived: Vec<Arrived>,
    /// Since when devices count as held with which no claim was seen.
    unseen: BTreeMap<Holder, Time>,
}

/// Whether faults are planned: among pairs of them are some in which these checks alarm, and nobody has found out yet whether rightly.
fn is_planned(around: &Surroundings) -> bool {
    around.plan.is_some()
}

/// Looks at what is on its way by the writes of the replica.
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

/// Looks at all that the replica counts as held, after it has decided. What kube-scheduler may give to pods that were sent to it is a guess,
/// which may be wrong; allocations of claims that were seen, or that the replica writes, are none.
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
