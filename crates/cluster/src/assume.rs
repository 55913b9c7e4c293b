//! What is on its way but not yet observed: a pod that was sent to a node, and the devices that its claims will get there.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::cluster::Cluster;
use crate::error::ObjectError;
use crate::key::Key;

/// A pod on its way to a node.
#[derive(Debug)]
pub(crate) struct Assumed {
    /// Bound to the node; `None` once it was seen there.
    pod: Option<Pod>,
    /// With the allocations that they are expected to get.
    claims: Vec<ResourceClaim>,
}

impl Cluster {
    /// Counts the pod as if it were bound to the node, and its claims as if they were allocated so, until
    /// [`Self::forget`]. Replaces what was assumed of the pod before.
    ///
    /// # Errors
    /// A claim holds something that is not a quantity; nothing of the pod is then assumed.
    pub fn assume(
        &mut self,
        key: &Key,
        pod: &Pod,
        node: &str,
        claims: Vec<ResourceClaim>,
    ) -> Result<(), ObjectError> {
        self.forget(key);
        self.hold(&claims)?;
        let mut pod = pod.clone();
        pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
        self.usages.replace(None, Some(&pod));
        self.assumed.insert(key.clone(), Assumed { pod: Some(pod), claims });
        Ok(())
    }

    /// Replaces what is assumed of the claims of a pod of which something is assumed.
    ///
    /// # Errors
    /// A claim holds something that is not a quantity; nothing of the claims is then assumed.
    pub fn assume_claims(&mut self, key: &Key, claims: Vec<ResourceClaim>) -> Result<(), ObjectError> {
        self.forget_claims(key);
        if !self.assumed.contains_key(key) {
            return Ok(());
        }
        self.hold(&claims)?;
        if let Some(assumed) = self.assumed.get_mut(key) {
            assumed.claims = claims;
        }
        Ok(())
    }

    /// Holds the devices of all these claims, or of none.
    fn hold(&mut self, claims: &[ResourceClaim]) -> Result<(), ObjectError> {
        let held = Arc::make_mut(&mut self.held);
        for (count, claim) in claims.iter().enumerate() {
            if let Err(error) = held.add(&self.inventory, claim) {
                for claim in &claims[..count] {
                    let _ = held.remove(&self.inventory, claim);
                }
                return Err(ObjectError::of_claim(claim, error));
            }
        }
        Ok(())
    }

    /// No longer assumes that the pod takes room on the node: it was seen there. Its claims stay assumed.
    pub fn forget_room(&mut self, key: &Key) {
        if let Some(pod) = self.assumed.get_mut(key).and_then(|assumed| assumed.pod.take()) {
            self.usages.replace(Some(&pod), None);
        }
    }

    /// No longer assumes anything of the pod's claims: they are allocated by now.
    pub fn forget_claims(&mut self, key: &Key) {
        let Some(assumed) = self.assumed.get_mut(key) else { return };
        for claim in assumed.claims.drain(..) {
            // Cannot fail: the same quantities were parsed when the claim was assumed.
            let _ = Arc::make_mut(&mut self.held).remove(&self.inventory, &claim);
        }
    }

    /// No longer assumes anything of the pod.
    pub fn forget(&mut self, key: &Key) {
        self.forget_claims(key);
        self.forget_room(key);
        self.assumed.remove(key);
    }

    /// Counts these pods and claims as gone, until [`Self::put_back`] for the same ones: what would fit without them? Nothing may be
    /// applied or deleted meanwhile.
    pub fn set_aside(&mut self, pods: &[Key], claims: &[Key]) {
        for claim in claims.iter().filter_map(|claim| self.objects.claims.get(claim)) {
            // Cannot fail: the same quantities were parsed when the claim was added.
            let _ = Arc::make_mut(&mut self.held).remove(&self.inventory, claim);
        }
        for pod in pods.iter().filter_map(|pod| self.objects.pods.get(pod)) {
            self.usages.replace(Some(pod), None);
        }
    }

    /// Undoes [`Self::set_aside`].
    pub fn put_back(&mut self, pods: &[Key], claims: &[Key]) {
        for claim in claims.iter().filter_map(|claim| self.objects.claims.get(claim)) {
            // Cannot fail: the same quantities were parsed when the claim was added.
            let _ = Arc::make_mut(&mut self.held).add(&self.inventory, claim);
        }
        for pod in pods.iter().filter_map(|pod| self.objects.pods.get(pod)) {
            self.usages.replace(None, Some(pod));
        }
    }

    /// Counts the claim as if it were allocated so, whatever becomes of its pod, until [`Self::forget_claim`]. Replaces what was
    /// assumed of it before.
    ///
    /// # Errors
    /// The claim holds something that is not a quantity; nothing of it is then assumed.
    pub fn assume_claim(&mut self, claim: ResourceClaim) -> Result<(), ObjectError> {
        let key = Key::from(&claim.metadata);
        self.forget_claim(&key);
        self.hold(std::slice::from_ref(&claim))?;
        self.assumed_claims.insert(key, claim);
        Ok(())
    }

    /// No longer assumes anything of the claim itself.
    pub fn forget_claim(&mut self, key: &Key) {
        if let Some(claim) = self.assumed_claims.remove(key) {
            // Cannot fail: the same quantities were parsed when the claim was assumed.
            let _ = Arc::make_mut(&mut self.held).remove(&self.inventory, &claim);
        }
    }
}
