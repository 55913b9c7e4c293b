//! Handles devices failing preparation: their cards are avoided for a while, and pods with a controller are evicted, so their
//! replacements get other devices.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::device_status::EVICTIONS_ANNOTATION;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use super::Decider;
use super::claim::reference_of;
use super::pod::reference;
use crate::healing::{self, AVOIDED, MOST_EVICTIONS};
use crate::intent::{Intent, PodReference};
use crate::ledger::OwnerCount;
use crate::refusals;

impl Decider {
    /// Handles a changed or deleted claim: its devices may have failed.
    pub(super) fn see_failure(&mut self, now: Time, key: &Key) {
        let claim = self.cluster.objects().claims.get(key);
        let ours = claim.filter(|claim| self.is_allocated_by_us(claim));
        match ours.and_then(|claim| healing::unready(claim, &self.driver)) {
            Some(unready) => self.healing.add_failing(key, now, unready.since.min(now) + self.heal_after),
            None => self.healing.remove_failing(key),
        }
    }

    /// Acts on devices failing preparation for too long.
    pub(super) fn heal(&mut self, now: Time) -> Vec<Intent> {
        self.fleet.forget_avoided(now);
        if self.term.is_none() {
            return Vec::new();
        }
        let mut intents = Vec::new();
        for (key, since) in self.healing.take_due(now) {
            let Some(claim) = self.cluster.objects().claims.get(&key).cloned() else { continue };
            let Some(unready) = healing::unready(&claim, &self.driver) else { continue };
            if let Some(node) = claim.allocated_node() {
                self.fleet.avoid(node, &unready.cards, now + AVOIDED);
            }
            // A card failing since before a restart is avoided at once. Evictions do not rely on a node's clock.
            if since + self.heal_after > now {
                continue;
            }
            if self.is_unused(&claim) {
                if self.refusal_of(&claim).is_none() && self.ledger.claims.clear(&key) {
                    let why = format!("cannot be prepared: {}", unready.why);
                    intents.push(Intent::Clear { pod: None, claims: vec![reference_of(&claim)], why });
                }
                continue;
            }
            let minutes = now.saturating_sub(since).as_secs() / 60;
            for (pod, owner, before) in self.to_evict(now, &key, &claim) {
                let count = OwnerCount { owner, evictions: before + 1 };
                self.ledger.evictions.send(pod.clone(), Some(count), now);
                let why = format!(
                    "its devices cannot be prepared since {minutes} min, so that another pod may get others: {}",
                    unready.why
                );
                intents.push(Intent::Evict { pod, why });
            }
        }
        intents
    }

    /// Pending pods holding the claim whose controller will replace them, each with its owner and the owner's previous evictions.
    fn to_evict(&self, now: Time, key: &Key, claim: &ResourceClaim) -> Vec<(PodReference, String, u32)> {
        let pods = claim.users().iter().filter_map(|user| {
            let pod = self.cluster.objects().pods.get(&key.with_name(&user.name))?;
            (pod.metadata.uid.as_ref() == Some(&user.uid)).then_some(pod)
        });
        let stuck = pods
            .filter(|pod| pod.phase() == Some("Pending") && !pod.has_ended() && has_controller(pod))
            .map(|pod| (reference(pod), refusals::owner(pod), self.evictions_of(pod)));
        stuck
            .filter(|(pod, _, before)| *before < MOST_EVICTIONS && !self.ledger.evictions.is_sent(pod, now))
            .collect()
    }

    /// Number of evicted pods of the pod's owner, from this process or the pod's annotation.
    pub(super) fn evictions_of(&self, pod: &Pod) -> u32 {
        self.healing.evictions(&refusals::owner(pod)).max(noted_evictions(pod))
    }

    /// Handles the outcome of an eviction.
    pub(super) fn evicted(&mut self, now: Time, pod: &PodReference, is_done: bool) {
        if !is_done {
            self.ledger.evictions.refuse(pod, now);
        } else if let Some(count) = self.ledger.evictions.done(pod) {
            self.healing.count(count, now);
        }
    }

    /// Schedules a note of the owner's evictions on the pod if its annotation shows fewer.
    pub(super) fn see_evictions(&mut self, key: &Key, pod: &Pod) {
        if self.term.is_some() && !pod.has_ended() && self.evictions_of(pod) > noted_evictions(pod) {
            self.to_note.insert(key.clone());
        }
    }
}

/// Count from the pod's annotation. Anybody allowed to change the pod may have written the annotation.
fn noted_evictions(pod: &Pod) -> u32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(EVICTIONS_ANNOTATION)?.parse().ok()).unwrap_or(0)
}

pub(super) fn has_controller(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}
