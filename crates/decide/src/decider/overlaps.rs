//! Claims that hold the same device, because kube-scheduler and this controller, or two of either, did not know of each other.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_allocator::overlap::overlaps;
use tessera_cluster::{Key, display, key};

use super::Decider;
use super::claim::{has_devices, reference_of, users};
use super::pod::uses;
use crate::intent::{Intent, PodReference, Topic};

impl Decider {
    /// Of two claims for the same device, or for more of a card than there is, takes back the one that nobody has reserved,
    /// else the newer; where that is reserved its pods are told, for nobody can take it back.
    pub(super) fn resolve_overlaps(&mut self) -> Vec<Intent> {
        // While a list is read, claims of before and after it stand side by side.
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
                let names = self.cluster.held().holders(device).iter();
                holders.extend(names.filter_map(|name| name.split_once('/')));
            }
        }
        let claims = holders.iter().filter_map(|(namespace, name)| {
            self.cluster.objects().claims.get(&((*namespace).to_owned(), (*name).to_owned()))
        });
        let mut claims: Vec<&ResourceClaim> =
            claims.filter(|claim| has_devices(claim)).map(AsRef::as_ref).collect();
        if claims.len() < 2 {
            return Vec::new();
        }
        claims.sort_by_cached_key(|claim| {
            (Reverse(users(claim).count() > 0), age(claim), key(&claim.metadata))
        });
        let found = overlaps(self.cluster.inventory(), &self.driver, &claims);
        let losers: Vec<(ResourceClaim, String)> =
            found.into_iter().map(|overlap| (claims[overlap.claim].clone(), overlap.device)).collect();
        losers.iter().flat_map(|(claim, device)| self.resolve(claim, device)).collect()
    }

    fn resolve(&mut self, claim: &ResourceClaim, device: &str) -> Vec<Intent> {
        let name = key(&claim.metadata);
        let is_reserved = users(claim).count() > 0;
        let why = format!("{device} of its claim {} is also held by another claim", display(&name));
        if is_reserved {
            // Once, and not with every change on the node.
            if !self.told_overlaps.insert(claim.metadata.uid.clone().unwrap_or_default()) {
                return Vec::new();
            }
            let told = users(claim).map(|user| Intent::Tell {
                pod: PodReference { key: (name.0.clone(), user.name.clone()), uid: user.uid.clone() },
                topic: Topic::Overlap,
                message: format!(
                    "{why}, which had it before; delete the pod, so that a new one gets another"
                ),
            });
            return told.collect();
        }
        if !self.clearing.insert(name.clone()) {
            return Vec::new();
        }
        let pods = self.steers.keys().filter(|pod| {
            let object = self.cluster.objects().pods.get(*pod);
            pod.0 == name.0 && object.is_some_and(|object| uses(object, &name.1))
        });
        let pods: Vec<Key> = pods.cloned().collect();
        // The node is not to blame.
        pods.iter().for_each(|pod| self.forget_steer(pod));
        let pod = pods.first().and_then(|pod| self.cluster.objects().pods.get(pod));
        let pod = pod.map(|pod| super::pod::reference(pod));
        self.queue.extend(pods.into_iter().filter(|pod| self.waiting.contains_key(pod)));
        vec![Intent::Clear { pod, claims: vec![reference_of(claim)], why }]
    }
}

/// When the claim got its devices: the older has the better right.
fn age(claim: &ResourceClaim) -> i64 {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let since = allocation.and_then(|allocation| allocation.allocation_timestamp.as_ref());
    since.map_or(i64::MIN, |since| since.0.as_second())
}
