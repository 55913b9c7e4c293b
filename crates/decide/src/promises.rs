//! Devices that are being written to claims. They count as taken until it is known what became of the write, whatever becomes
//! of the pod.

use std::collections::{BTreeMap, BTreeSet};

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
    /// The claim's version for which the writes are, where it is a number.
    pub version: Option<u128>,
    /// The term's epoch, which is written first.
    pub epoch: String,
}

impl Promise {
    /// Whether a claim with this version and epoch shows that the devices cannot arrive any more: the writes are for a version
    /// that is gone.
    pub fn is_fenced_off(&self, version: Option<u128>, epoch: Option<&String>) -> bool {
        let is_later = self.version.zip(version).is_some_and(|(promised, seen)| seen > promised);
        is_later && epoch.is_some_and(|epoch| *epoch != self.epoch)
    }
}

/// Devices are being written to the claim already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("devices are being written to its ResourceClaim {0} already")]
pub(crate) struct AlreadyPromised(String);

/// Promises by claim.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub claims: BTreeMap<Key, Promise>,
}

impl Promises {
    /// Whether each of these claims may be promised devices.
    ///
    /// # Errors
    /// One of them is promised some, or is here twice: of two writes nobody could tell which devices it gets.
    pub fn may_promise<'c>(&self, claims: impl IntoIterator<Item = &'c Key>) -> Result<(), AlreadyPromised> {
        let mut seen = BTreeSet::new();
        for claim in claims {
            if self.claims.contains_key(claim) || !seen.insert(claim) {
                return Err(AlreadyPromised(claim.to_string()));
            }
        }
        Ok(())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Key {
        Key::new("team", name)
    }

    #[test]
    fn a_claim_is_promised_devices_once() {
        let mut promises = Promises::default();
        let (one, other) = (claim("one"), claim("other"));
        assert_eq!(promises.may_promise([&one, &other]), Ok(()));
        assert_eq!(
            promises.may_promise([&other, &one, &other]).unwrap_err().to_string(),
            "devices are being written to its ResourceClaim team/other already"
        );
        let promise = Promise {
            uid: String::new(),
            pod: PodReference { key: claim("pod"), uid: String::new() },
            written: Written::Unsure,
            node: "a".to_owned(),
            version: Some(1),
            epoch: String::new(),
        };
        promises.claims.insert(one.clone(), promise);
        assert_eq!(promises.may_promise([&other]), Ok(()));
        assert!(promises.may_promise([&other, &one]).is_err());
    }
}
