//! Expected changes not observed yet: a pod released to a node, and the devices for its claims there.
//!
//! ```text
//! taken(holder) = the observed hold, else the expected hold
//! ```
//!
//! Only [`Cluster::settle`] writes the result into the index, apart from [trials](Cluster::try_hold).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use crate::claim::ClaimExt;
use crate::cluster::Cluster;
use crate::error::ObjectError;
use crate::holder::Holder;
use crate::key::Key;
use crate::pod::PodExt;
use crate::taken::{Hold, Taken};

/// Reason for expecting a hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The pod is released to a node, or nominated for one.
    Pod(Key),
    /// A write to the claim is in flight, whatever happens to its pod.
    Write,
}

/// Expected holds.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// By holder. The latest expected hold counts.
    holds: BTreeMap<Holder, Vec<(Source, Hold)>>,
    /// Holders with an expected hold, by pod.
    of_pods: BTreeMap<Key, Vec<Holder>>,
}

impl Expected {
    fn get(&self, holder: &Holder) -> Option<&Hold> {
        self.holds.get(holder)?.last().map(|(_, hold)| hold)
    }

    fn insert(&mut self, holder: Holder, source: Source, hold: Hold) {
        let holds = self.holds.entry(holder).or_default();
        holds.retain(|(other, _)| *other != source);
        holds.push((source, hold));
    }

    fn remove(&mut self, holder: &Holder, source: &Source) {
        let Some(holds) = self.holds.get_mut(holder) else { return };
        holds.retain(|(other, _)| other != source);
        if holds.is_empty() {
            self.holds.remove(holder);
        }
    }
}

impl Cluster {
    /// Writes the holder's current hold into the index.
    pub(crate) fn settle(&mut self, holder: &Holder) {
        let hold = self.hold_of(holder);
        self.taken.set(&self.inventory, holder, hold);
    }

    fn hold_of(&self, holder: &Holder) -> Option<Hold> {
        self.observed(holder).or_else(|| self.expected.get(holder).cloned())
    }

    fn observed(&self, holder: &Holder) -> Option<Hold> {
        match holder {
            Holder::Claim(claim) => {
                let claim = self.objects.claims.get(claim).filter(|claim| claim.has_devices())?;
                // Cannot fail: the same quantities were parsed when the claim was added.
                Hold::of_claim(claim).ok()
            }
            Holder::Pod(pod) => {
                let pod = self.objects.pods.get(pod)?;
                pod.node_name()?;
                Some(Hold::of_pod(pod))
            }
            Holder::FutureClaim(..) | Holder::Nominated(_) => None,
        }
    }

    /// Checks the index against the holds of all holders.
    ///
    /// # Errors
    /// Description of the first difference.
    pub fn check_taken(&self) -> Result<(), String> {
        let claims = self.objects.claims.keys().cloned().map(Holder::Claim);
        let pods = self.objects.pods.keys().cloned().map(Holder::Pod);
        let mut anew = Taken::default();
        for holder in claims.chain(pods).chain(self.expected.holds.keys().cloned()) {
            anew.set(&self.inventory, &holder, self.hold_of(&holder));
        }
        self.taken.difference(&anew).map_or(Ok(()), Err)
    }

    /// Counts the pod as bound to the node and its claims as allocated like this, until [`Self::forget`]. Replaces earlier
    /// assumptions about the pod.
    ///
    /// # Errors
    /// A claim holds a capacity without a valid quantity; nothing about the pod is then assumed.
    pub fn assume(
        &mut self,
        key: &Key,
        pod: &Pod,
        node: &str,
        claims: Vec<ResourceClaim>,
    ) -> Result<(), ObjectError> {
        self.forget(key);
        let mut holds = of_claims(key, &claims)?;
        holds.push((Holder::Pod(key.clone()), Hold::on(node, pod)));
        self.expect(key, holds);
        Ok(())
    }

    /// Reserves room for the pod on the node and these whole devices, whoever holds them now, until [`Self::forget`]. Replaces
    /// earlier assumptions about the pod.
    pub fn nominate(&mut self, key: &Key, pod: &Pod, node: &str, devices: &[DeviceRequestAllocationResult]) {
        self.forget(key);
        let hold = Hold::on(node, pod).with_whole(devices);
        self.expect(key, vec![(Holder::Nominated(key.clone()), hold)]);
    }

    /// Replaces the assumed claims of a pod. Nothing is assumed for a pod not assumed or nominated before.
    ///
    /// # Errors
    /// A claim holds a capacity without a valid quantity; nothing about the claims is then assumed.
    pub fn assume_claims(&mut self, key: &Key, claims: Vec<ResourceClaim>) -> Result<(), ObjectError> {
        self.forget_claims(key);
        if self.expected.of_pods.contains_key(key) {
            let holds = of_claims(key, &claims)?;
            self.expect(key, holds);
        }
        Ok(())
    }

    /// Drops the assumed room of the pod, once the pod is observed on the node. Its claims stay assumed.
    pub fn forget_room(&mut self, key: &Key) {
        self.forget_if(key, |holder| matches!(holder, Holder::Pod(_)));
    }

    /// Drops the assumed claims of the pod, once they are allocated.
    pub fn forget_claims(&mut self, key: &Key) {
        self.forget_if(key, |holder| matches!(holder, Holder::Claim(_) | Holder::FutureClaim(..)));
    }

    /// Drops all assumptions about the pod.
    pub fn forget(&mut self, key: &Key) {
        self.forget_if(key, |_| true);
        self.expected.of_pods.remove(key);
    }

    fn expect(&mut self, pod: &Key, holds: Vec<(Holder, Hold)>) {
        self.expected.of_pods.entry(pod.clone()).or_default();
        for (holder, hold) in holds {
            self.expected.insert(holder.clone(), Source::Pod(pod.clone()), hold);
            self.settle(&holder);
            self.expected.of_pods.entry(pod.clone()).or_default().push(holder);
        }
    }

    fn forget_if(&mut self, pod: &Key, is_gone: impl Fn(&Holder) -> bool) {
        let Some(holders) = self.expected.of_pods.get_mut(pod) else { return };
        let gone: Vec<Holder> = holders.extract_if(.., |holder| is_gone(holder)).collect();
        for holder in gone {
            self.expected.remove(&holder, &Source::Pod(pod.clone()));
            self.settle(&holder);
        }
    }

    /// Counts the claim as allocated like this, whatever happens to its pod, until [`Self::forget_claim`]. Replaces earlier
    /// assumptions about the claim.
    ///
    /// # Errors
    /// The claim holds a capacity without a valid quantity; nothing about the claim is then assumed.
    pub fn assume_claim(&mut self, claim: &ResourceClaim) -> Result<(), ObjectError> {
        self.forget_claim(&claim.key());
        let holder = Holder::Claim(claim.key());
        self.expected.insert(holder.clone(), Source::Write, Hold::of_claim(claim)?);
        self.settle(&holder);
        Ok(())
    }

    /// Drops the assumption made by [`Self::assume_claim`].
    pub fn forget_claim(&mut self, key: &Key) {
        let holder = Holder::Claim(key.clone());
        self.expected.remove(&holder, &Source::Write);
        self.settle(&holder);
    }
}

/// Holds of a pod's planned claims. A claim without a uid does not exist yet, so an existing claim of the same name is another one.
pub(crate) fn of_claims(pod: &Key, claims: &[ResourceClaim]) -> Result<Vec<(Holder, Hold)>, ObjectError> {
    let holds = claims.iter().enumerate().map(|(before, claim)| {
        let holder = match &claim.metadata.uid {
            Some(_) => Holder::Claim(claim.key()),
            None => Holder::FutureClaim(pod.clone(), before),
        };
        Ok((holder, Hold::of_claim(claim)?))
    });
    holds.collect()
}
