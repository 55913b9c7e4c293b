//! Devices that are being written to claims. They count as taken until it is known what became of the write, whatever becomes
//! of the pod.

use std::collections::BTreeMap;

use tessera_cluster::Key;

use crate::intent::PodReference;

/// What became of the write to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is under way.
    NotYet,
    /// It was done, and the claim has this version.
    Done(String),
    /// It failed, or nobody answered: it may still arrive. To be settled by a write of another kind, after which it cannot.
    Unsure,
}

/// Devices that are being written to a claim.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    /// The claim's uid.
    pub uid: String,
    /// The pod for which it is done.
    pub pod: PodReference,
    pub written: Written,
    pub node: String,
}

/// Promises by claim.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub claims: BTreeMap<Key, Promise>,
}

impl Promises {
    /// Notes what became of the writes for a pod.
    pub fn carried(&mut self, pod: &PodReference, versions: &[(Key, String)]) {
        for (key, promise) in self.claims.iter_mut().filter(|(_, promise)| promise.pod == *pod) {
            if promise.written == Written::NotYet {
                let version = versions.iter().find(|(claim, _)| claim == key);
                promise.written =
                    version.map_or(Written::Unsure, |(_, version)| Written::Done(version.clone()));
            }
        }
    }

    /// Claims of which it is not known what became.
    pub fn unsure(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().filter(|(_, promise)| promise.written == Written::Unsure).map(|(key, _)| key)
    }
}
