//! Claims holding the same device after concurrent allocations by kube-scheduler and this controller, or by two instances of either.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_allocator::overlap::overlaps;
use tessera_cluster::{ClaimExt, Holder, Key};

use super::Decider;
use super::claim::reference_of;
use super::pod::reference;
use crate::intent::{Intent, PodReference, Topic};

impl Decider {
    /// Of two claims on the same device, or exceeding a card's capacity, clears the unreserved one, else the newer. If the loser is
    /// reserved, nobody can deallocate its devices, so its pods are notified.
    pub(super) fn resolve_overlaps(&mut self) -> Vec<Intent> {
        // During a relist, claims from before and after it coexist.
        if self.term.is_none() || self.lists.is_asked {
            return Vec::new();
        }
        let nodes = std::mem::take(&mut self.to_check);
        nodes.iter().flat_map(|node| self.resolve_on(node)).collect()
    }

    fn resolve_on(&mut self, node: &str) -> Vec<Intent> {
        let mut holders = BTreeSet::new();
        for device in self.cluster.inventory().devices_of_node(node) {
            if device.driver_name() == self.driver {
                holders.extend(self.cluster.holders(device).filter_map(Holder::claim));
            }
        }
        let claims = holders.into_iter().filter_map(|claim| self.cluster.objects().claims.get(claim));
        let mut claims: Vec<&ResourceClaim> =
            claims.filter(|claim| claim.has_devices()).map(AsRef::as_ref).collect();
        if claims.len() < 2 {
            return Vec::new();
        }
        claims.sort_by_cached_key(|claim| (Reverse(claim.is_reserved()), age(claim), claim.key()));
        let found = overlaps(self.cluster.inventory(), &self.driver, &claims);
        let losers: Vec<(ResourceClaim, String)> =
            found.into_iter().map(|overlap| (claims[overlap.claim].clone(), overlap.device)).collect();
        losers.iter().flat_map(|(claim, device)| self.resolve(claim, device)).collect()
    }

    fn resolve(&mut self, claim: &ResourceClaim, device: &str) -> Vec<Intent> {
        let name = Key::from(&claim.metadata);
        let why = format!("{device} of its claim {name} is also held by another claim");
        if claim.is_reserved() {
            // Sent once, not on every change of the node.
            if !self.told_overlaps.insert(claim.metadata.uid.clone().unwrap_or_default()) {
                return Vec::new();
            }
            let told = claim.users().iter().map(|user| Intent::Tell {
                pod: PodReference { key: name.with_name(&user.name), uid: user.uid.clone() },
                topic: Topic::Overlap,
                message: format!(
                    "{why}, which had it before; delete the pod, so that a new one gets another"
                ),
            });
            return told.collect();
        }
        if !self.ledger.claims.clear(&name) {
            return Vec::new();
        }
        let pods: Vec<PodReference> = self.pods_of(&name).map(reference).collect();
        for pod in &pods {
            // The node is not at fault and stays eligible.
            self.end_proposal(&pod.key);
            if self.waiting.contains_key(&pod.key) {
                self.queue.insert(pod.key.clone());
            }
        }
        vec![Intent::Clear { pod: pods.into_iter().next(), claims: vec![reference_of(claim)], why }]
    }
}

/// When the claim got its devices: the older has the better right.
fn age(claim: &ResourceClaim) -> i64 {
    claim.allocated_at().map_or(i64::MIN, |since| since.as_second())
}
