//! Nominated devices count as taken while the nominated pods wait for them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::managed::Nomination;
use tessera_cluster::gang::GangId;
use tessera_cluster::{ClaimExt, Holder, Key, PodExt};
use tessera_placement::Time;

use super::super::Decider;
use super::super::observe::has_its_devices;
use super::super::pod::reference;
use super::{at, is_in_force, nomination};
use crate::intent::Intent;

impl Decider {
    /// Runs `look` with the nominations of these pods lifted, so they can use their own devices; to all others these count as taken.
    pub(in super::super) fn with_nominated(
        &mut self,
        now: Time,
        pods: &[(&Key, &Pod)],
        look: impl FnOnce(&mut Self) -> Vec<Intent>,
    ) -> Vec<Intent> {
        let is_held = |decider: &Self, key: &Key| decider.preempting.held_for.contains_key(key);
        let held: Vec<&Key> = pods.iter().map(|(key, _)| *key).filter(|key| is_held(self, key)).collect();
        held.iter().for_each(|key| self.forget_nominated(key));
        let intents = look(self);
        pods.iter().for_each(|(key, pod)| self.hold_nominated(now, key, pod));
        self.preempting.has_freed |= held.iter().any(|key| !is_held(self, key));
        intents
    }

    /// Whether any nomination ceased to count as taken since the last call.
    pub(in super::super) fn has_freed_nominated(&mut self) -> bool {
        std::mem::take(&mut self.preempting.has_freed)
    }

    /// Counts the pod's nominated devices as taken, if any.
    fn hold_nominated(&mut self, now: Time, key: &Key, pod: &Pod) {
        let nomination = match nomination(pod) {
            Some(seen) => {
                self.preempting.planned.remove(key);
                Some(seen)
            }
            None => self.planned(now, key, pod).cloned(),
        };
        let Some(nomination) = nomination.filter(|nomination| is_in_force(nomination, now)) else {
            return;
        };
        // A pod with devices needs no others, whatever its annotation says.
        let has_devices = || has_its_devices(&tessera_cluster::subject::of_pod(self.cluster.objects(), pod));
        if self.ledger.pods.proposal(key).is_some() || pod.node_name().is_some() || has_devices() {
            return;
        }
        let results = nomination.devices.iter().map(|device| DeviceRequestAllocationResult {
            driver: self.driver.clone(),
            pool: self.pool_of(&nomination.node),
            device: device.clone(),
            ..DeviceRequestAllocationResult::default()
        });
        let results: Vec<_> = results.collect();
        self.cluster.nominate(key, pod, &nomination.node, &results);
        self.fleet.mark(&nomination.node);
        let until = at(nomination.until);
        let alone = || GangId {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            owner: pod.metadata.uid.clone().unwrap_or_default(),
            attempt: String::new(),
        };
        let gang = self.gangs.of(key).cloned().unwrap_or_else(alone);
        self.gangs.set_due(&gang, until);
        self.preempting.held_for.insert(key.clone(), nomination.node);
    }

    /// Lifts the pod's nomination, so the pod itself can use the devices.
    pub(in super::super) fn forget_nominated(&mut self, key: &Key) {
        if let Some(node) = self.preempting.held_for.remove(key) {
            if self.ledger.pods.proposal(key).is_none() {
                self.cluster.forget(key);
            }
            self.fleet.mark(&node);
        }
    }

    /// The pod's decided nomination, possibly not yet observed on the pod.
    pub(super) fn planned(&self, now: Time, key: &Key, pod: &Pod) -> Option<&Nomination> {
        let planned = self.preempting.planned.get(key)?;
        (planned.until > now && planned.pod == reference(pod)).then_some(&planned.nomination)
    }

    fn pool_of(&self, node: &str) -> String {
        let mut devices = self.cluster.inventory().devices_of_node(node);
        let own = devices.find(|device| device.driver_name() == self.driver);
        own.map(|device| device.pool().to_owned()).unwrap_or_default()
    }

    /// Claims holding any part of the nominated devices.
    pub(super) fn holders_of(&mut self, nomination: &Nomination) -> BTreeSet<Key> {
        let Some(index) = self.fleet.find(&nomination.node) else { return BTreeSet::new() };
        self.fleet.cards(index, &self.cluster, &self.driver);
        let Some(parts) = self.fleet.node(index).parts() else { return BTreeSet::new() };
        let devices = || self.cluster.inventory().devices_of_node(&nomination.node);
        let wanted: Vec<_> = devices()
            .zip(parts.cards())
            .filter(|(device, _)| nomination.devices.iter().any(|name| name == device.name()))
            .filter_map(|(_, part)| part)
            .collect();
        let overlaps = |part: Option<(tessera_api::PciBusId, u64)>| {
            let Some((card, slices)) = part else { return false };
            wanted.iter().any(|(other, taken)| card == *other && slices & taken != 0)
        };
        let mut holders = BTreeSet::new();
        for (device, part) in devices().zip(parts.cards()) {
            if overlaps(part) {
                holders.extend(self.cluster.holders(device).filter_map(Holder::claim).cloned());
            }
        }
        holders
    }

    /// The pods using a claim allocated by this controller.
    pub(super) fn users_of(&self, claim: &Key) -> Vec<Key> {
        let found = self.cluster.objects().claims.get(claim).filter(|found| self.is_allocated_by_us(found));
        let users = found.into_iter().flat_map(|found| found.users());
        users.map(|user| claim.with_name(&user.name)).collect()
    }

    /// Whether the claim was created for the pod.
    pub(super) fn is_claim_of(&self, claim: &Key, pod: &Key) -> bool {
        let found = self.cluster.objects().claims.get(claim);
        found.and_then(|found| found.owning_pod()) == Some(pod.name.as_str())
            && claim.namespace == pod.namespace
    }

    /// All pods holding devices of managed cards, each with its claims.
    pub(super) fn holding_pods(&self) -> Vec<(Key, Vec<Key>)> {
        let mut pods: std::collections::BTreeMap<Key, Vec<Key>> = std::collections::BTreeMap::new();
        for (name, claim) in &self.cluster.objects().claims {
            if !claim.has_devices() || !self.is_allocated_by_us(claim) {
                continue;
            }
            for user in claim.users() {
                pods.entry(name.with_name(&user.name)).or_default().push(Key::from(&claim.metadata));
            }
        }
        pods.into_iter().collect()
    }
}
