//! Claims the API server refuses to change: left alone for a while without blocking others.

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::Decider;
use super::claim::reference_of;
use crate::intent::{ClaimReference, Intent, PodReference};
use crate::ledger::{Allocation, Progress};
use crate::term::Refused;

/// How long a claim is left alone in the refused version.
const TRY_AGAIN: Time = Time::from_secs(300);

impl Decider {
    /// The API server refused to change the claim; `pod`: the pod to receive its devices.
    pub(super) fn claim_refused(
        &mut self,
        now: Time,
        claim: &ClaimReference,
        pod: Option<&PodReference>,
        why: String,
    ) {
        let is_it = |allocation: &Allocation| {
            allocation.uid == claim.uid
                && Some(&allocation.pod) == pod
                && allocation.progress == Progress::Sent
        };
        if self.ledger.claims.allocation(&claim.key).is_some_and(is_it) {
            // A refused write cannot arrive later, and no other is in flight for the claim.
            self.end_allocation(&claim.key);
        }
        if pod.is_none() {
            self.ledger.claims.end_fence(&claim.key);
            if self.ledger.claims.end_clear(&claim.key) {
                self.unclaimed.insert(claim.key.clone());
            }
        }
        let open = self.cluster.objects().claims.get(&claim.key).filter(|claim| !claim.has_devices());
        let epoch =
            open.and_then(|claim| claim.metadata.annotations.as_ref()?.get(EPOCH_ANNOTATION)).cloned();
        let Some(term) = &mut self.term else { return };
        let needs_fence = epoch.is_some() && !term.wrote(epoch.as_ref());
        let (version, until) = (claim.resource_version.clone(), now + TRY_AGAIN);
        term.refused.insert(claim.uid.clone(), Refused { why, version, until, needs_fence });
        self.see_claim(now, &claim.key);
    }

    /// The API server's reason for a recent refusal to change the claim, if still applicable.
    pub(super) fn refusal_of(&self, claim: &ResourceClaim) -> Option<&str> {
        let refused = self.term.as_ref()?.refused.get(claim.metadata.uid.as_ref()?)?;
        let version = claim.metadata.resource_version.as_ref();
        (refused.needs_fence || Some(&refused.version) == version).then_some(refused.why.as_str())
    }

    /// Why the pod gets no devices, if one of its unallocated claims cannot be changed.
    pub(super) fn refused_claim_of(&self, demand: &Demand) -> Option<String> {
        let open = demand.subject.claims.iter().filter(|wanted| !wanted.is_allocated());
        open.map(|wanted| &wanted.claim).find_map(|claim| {
            let why = self.refusal_of(claim)?;
            Some(format!(
                "the API server refuses to change its ResourceClaim {}, so that nothing can be allocated to it: {why}",
                Key::from(&claim.metadata)
            ))
        })
    }

    /// Retries claims left alone for long enough.
    pub(super) fn try_refused_again(&mut self, now: Time) -> Vec<Intent> {
        let Some(term) = &mut self.term else { return Vec::new() };
        let ended: Vec<(String, Refused)> =
            term.refused.extract_if(.., |_, refused| refused.until <= now).collect();
        if ended.is_empty() {
            return Vec::new();
        }
        self.queue.extend(self.waiting.keys().cloned());
        self.unclaimed.extend(self.cluster.objects().claims.keys().cloned());
        let mut intents = Vec::new();
        let open = self.cluster.objects().claims.values().filter(|claim| !claim.has_devices());
        for claim in open {
            let uid = claim.metadata.uid.as_deref().unwrap_or_default();
            let again = ended.iter().find(|(other, refused)| other == uid && refused.needs_fence);
            let Some((_, refused)) = again else { continue };
            let claim = reference_of(claim);
            term.refused.insert(claim.uid.clone(), Refused { until: now + TRY_AGAIN, ..refused.clone() });
            if self.ledger.claims.fence(&claim.key) {
                intents.push(Intent::Fence { claims: vec![claim], epoch: term.epoch.clone() });
            }
        }
        intents
    }
}
