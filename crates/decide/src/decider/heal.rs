//! Devices that cannot be prepared: their cards are left alone for a while, and pods that somebody makes anew are evicted, so
//! that the new ones get others.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::device_status::EVICTIONS_ANNOTATION;
use tessera_cluster::Key;

use super::Decider;
use super::claim::{is_ours, is_unused, node_of, reference_of, users};
use super::pod::{has_ended, phase, reference};
use crate::Time;
use crate::healing::{self, AVOIDED, MOST_EVICTIONS};
use crate::intent::{Intent, PodReference};
use crate::refusals;

impl Decider {
    /// A claim changed, or is gone: its devices may have failed.
    pub(super) fn see_failure(&mut self, key: &Key) {
        let claim = self.cluster.objects().claims.get(key);
        let ours = claim.filter(|claim| is_ours(claim));
        let unready = ours.and_then(|claim| healing::unready(claim, &self.driver));
        self.healing.set_due(key, unready.map(|unready| unready.since + self.heal_after));
    }

    /// Acts on devices that could not be prepared for long enough.
    pub(super) fn heal(&mut self, now: Time) -> Vec<Intent> {
        self.fleet.forget_avoided(now);
        if self.term.is_none() {
            return Vec::new();
        }
        let mut intents = Vec::new();
        for key in self.healing.take_due(now) {
            let Some(claim) = self.cluster.objects().claims.get(&key).cloned() else { continue };
            let Some(unready) = healing::unready(&claim, &self.driver) else { continue };
            if let Some(node) = node_of(&claim) {
                self.fleet.avoid(&node, &unready.cards, now + AVOIDED);
            }
            if is_unused(&claim) {
                if self.clearing.insert(key) {
                    let why = format!("cannot be prepared: {}", unready.why);
                    intents.push(Intent::Clear { pod: None, claims: vec![reference_of(&claim)], why });
                }
                continue;
            }
            let minutes = now.saturating_sub(unready.since).as_secs() / 60;
            for pod in self.to_evict(now, &key, &claim) {
                self.healing.set_evicting(pod.clone(), now);
                let why = format!(
                    "its devices cannot be prepared since {minutes} min, so that another pod may get others: {}",
                    unready.why
                );
                intents.push(Intent::Evict { pod, why });
            }
        }
        intents
    }

    /// Pods that hold the claim and could not start, and of which somebody makes new ones.
    fn to_evict(&self, now: Time, key: &Key, claim: &ResourceClaim) -> Vec<PodReference> {
        let pods = users(claim).filter_map(|user| {
            let pod = self.cluster.objects().pods.get(&(key.0.clone(), user.name.clone()))?;
            (pod.metadata.uid.as_ref() == Some(&user.uid)).then_some(pod)
        });
        let stuck = pods.filter(|pod| {
            phase(pod) == Some("Pending")
                && !has_ended(pod)
                && has_controller(pod)
                && self.healing.evictions(&refusals::owner(pod)) < MOST_EVICTIONS
        });
        let references = stuck.map(|pod| reference(pod));
        references.filter(|pod| !self.healing.is_evicting(pod, now)).collect()
    }

    /// An eviction was done, or refused.
    pub(super) fn evicted(&mut self, now: Time, pod: &PodReference, is_done: bool) {
        if !is_done {
            return self.see_refused_eviction(now, pod);
        }
        if self.gangs.is_evicting(pod) {
            return;
        }
        let known = self.cluster.objects().pods.get(&pod.key);
        if let Some(known) = known.filter(|known| known.metadata.uid.as_ref() == Some(&pod.uid)) {
            self.healing.evicted(refusals::owner(known), now);
        }
    }

    /// Reads how many of the pod's like were evicted, and has it written on the pod if that is more than stands there.
    pub(super) fn see_evictions(&mut self, now: Time, key: &Key, pod: &Pod) {
        let annotations = pod.metadata.annotations.as_ref();
        let noted = annotations.and_then(|all| all.get(EVICTIONS_ANNOTATION)?.parse().ok()).unwrap_or(0);
        let owner = refusals::owner(pod);
        if noted > self.healing.evictions(&owner) {
            self.healing.learn(owner, noted, now);
        } else if noted < self.healing.evictions(&owner) && !has_ended(pod) && self.term.is_some() {
            self.to_note.insert(key.clone());
        }
    }
}

pub(super) fn has_controller(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}
