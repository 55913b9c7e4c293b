//! Deallocates claims without a remaining pod: claims created by users, since a pod's own claims are deleted with the pod.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt};

use super::Decider;
use super::claim::reference_of;
use crate::intent::Intent;

impl Decider {
    /// Deallocates claims no pod will use.
    pub(super) fn clear_unclaimed(&mut self) -> Vec<Intent> {
        if self.term.is_none() {
            return Vec::new();
        }
        let mut intents = Vec::new();
        for name in std::mem::take(&mut self.unclaimed) {
            let Some(claim) = self.cluster.objects().claims.get(&name) else { continue };
            let mut owners = claim.metadata.owner_references.iter().flatten();
            let is_refused = self.refusal_of(claim).is_some();
            let is_of_pod = owners.any(|owner| owner.kind == "Pod");
            if is_refused || !self.is_unused(claim) || is_of_pod || self.has_pod(&name) {
                continue;
            }
            let claims = vec![reference_of(claim)];
            if self.ledger.claims.clear(&name) {
                let why = "no pod that uses the claim is left".to_owned();
                intents.push(Intent::Clear { pod: None, claims, why });
            }
        }
        intents
    }

    fn has_pod(&self, claim: &Key) -> bool {
        self.pods_of(claim).next().is_some()
    }

    /// The pods using the claim, now or later.
    pub(super) fn pods_of(&self, claim: &Key) -> impl Iterator<Item = &Pod> {
        let first = claim.with_name("");
        let pods = self.cluster.objects().pods.range(first..);
        let of_namespace = pods.take_while(|(pod, _)| pod.namespace == claim.namespace);
        of_namespace
            .map(|(_, pod)| pod.as_ref())
            .filter(|pod| !pod.has_ended() && pod.names_claim(&claim.name))
    }

    /// Handles a deleted or finished pod: its claims may have no pod left.
    pub(super) fn see_end(&mut self, pod: &Pod) {
        if self.term.is_none() {
            return;
        }
        let namespace = Key::from(&pod.metadata).namespace;
        self.unclaimed.extend(pod.claim_names().map(|name| Key::new(&namespace, name)));
    }
}
