//! Holders of devices and room.

use std::fmt;

use tessera_allocator::held::HolderId;

use crate::key::Key;

/// Holder of devices, or of room on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A ResourceClaim.
    Claim(Key),
    /// A ResourceClaim to be created: its pod, and its index among the pod's claims.
    FutureClaim(Key, usize),
    /// A pod, taking room on its node.
    Pod(Key),
    /// A pod nominated for devices and room still in use by others.
    Nominated(Key),
}

impl Holder {
    /// The claim, if this is an existing claim.
    #[must_use]
    pub fn claim(&self) -> Option<&Key> {
        match self {
            Holder::Claim(claim) => Some(claim),
            Holder::FutureClaim(..) | Holder::Pod(_) | Holder::Nominated(_) => None,
        }
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Holder::Claim(key) | Holder::FutureClaim(key, _) | Holder::Pod(key) | Holder::Nominated(key) => {
                &key.namespace
            }
        }
    }

    /// Id for the allocator. Ids are unique because object names contain no blanks.
    pub(crate) fn id(&self) -> HolderId {
        HolderId::from(self.to_string())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Claim(claim) => claim.fmt(f),
            Holder::FutureClaim(pod, before) => write!(f, "claim {} of pod {pod}", before + 1),
            Holder::Pod(pod) => write!(f, "pod {pod}"),
            Holder::Nominated(pod) => write!(f, "nomination of pod {pod}"),
        }
    }
}
