//! Who takes devices and room.

use std::fmt;

use tessera_allocator::held::HolderId;

use crate::key::Key;

/// Who takes devices, or room on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A ResourceClaim.
    Claim(Key),
    /// A ResourceClaim that does not exist yet: of this pod, and how many of its claims come before.
    FutureClaim(Key, usize),
    /// A pod, which takes room on its node.
    Pod(Key),
    /// A pod for which devices and room are kept until others have left them.
    Nominated(Key),
}

impl Holder {
    /// The claim, if it is one that exists.
    #[must_use]
    pub fn claim(&self) -> Option<&Key> {
        match self {
            Holder::Claim(claim) => Some(claim),
            Holder::FutureClaim(..) | Holder::Pod(_) | Holder::Nominated(_) => None,
        }
    }

    /// Its name for the allocator. No two holders have the same: blanks are in no name of an object.
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
