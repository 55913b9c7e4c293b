//! Writes to claims: allocations, deallocations, and the epoch of a term.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;

use crate::intent::PodReference;

/// Progress of an allocation's write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not answered yet.
    Sent,
    /// Succeeded: the claim has this version.
    Acknowledged(String),
    /// Failed or unanswered: may still arrive until another write has changed the claim's version.
    Uncertain,
}

/// Devices being written to a claim.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    /// The claim's uid.
    pub uid: String,
    /// The pod for which the devices are allocated.
    pub pod: PodReference,
    pub node: String,
    /// The claim's version before the writes, if numeric.
    pub version: Option<u128>,
    /// The term's epoch, written first.
    pub epoch: String,
    pub progress: Progress,
    /// Whether an epoch is being written on the claim, as a fence against a late arrival of this allocation.
    pub is_fencing: bool,
}

impl Allocation {
    /// Whether a claim with this version and epoch rules out a later arrival of the devices: the writes require an outdated
    /// version.
    pub fn is_fenced_off(&self, version: Option<u128>, epoch: Option<&String>) -> bool {
        let is_later = self.version.zip(version).is_some_and(|(written, seen)| seen > written);
        is_later && epoch.is_some_and(|epoch| *epoch != self.epoch)
    }
}

/// The single write in flight to a claim.
#[derive(Debug)]
enum Write {
    Allocate(Box<Allocation>),
    /// Its devices are being deallocated.
    Clear,
    /// The epoch of this term is being written.
    Fence,
}

/// The claim has a write in flight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("devices are being written to its ResourceClaim {0} already")]
pub(crate) struct AlreadyWritten(String);

/// Writes by claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimWrites {
    rows: BTreeMap<Key, Write>,
}

impl ClaimWrites {
    /// Whether devices may be written to each of these claims.
    ///
    /// # Errors
    /// One of them has a write in flight, or is listed twice: the result of two writes would be undetermined.
    pub fn may_allocate<'c>(&self, claims: impl IntoIterator<Item = &'c Key>) -> Result<(), AlreadyWritten> {
        let mut seen = BTreeSet::new();
        for claim in claims {
            if self.rows.contains_key(claim) || !seen.insert(claim) {
                return Err(AlreadyWritten(claim.to_string()));
            }
        }
        Ok(())
    }

    /// Records an allocation being written to the claim; see [`Self::may_allocate`].
    pub fn allocate(&mut self, claim: Key, allocation: Allocation) {
        self.rows.insert(claim, Write::Allocate(Box::new(allocation)));
    }

    /// Records a deallocation of the claim; `false` if another write is in flight.
    pub fn clear(&mut self, claim: &Key) -> bool {
        self.insert(claim, Write::Clear)
    }

    /// Records a write of the epoch to the claim, in addition to an allocation in flight. `false` if the epoch is already being
    /// written or the claim is being deallocated.
    pub fn fence(&mut self, claim: &Key) -> bool {
        match self.rows.get_mut(claim) {
            Some(Write::Allocate(allocation)) => !std::mem::replace(&mut allocation.is_fencing, true),
            _ => self.insert(claim, Write::Fence),
        }
    }

    fn insert(&mut self, claim: &Key, write: Write) -> bool {
        let is_free = !self.rows.contains_key(claim);
        if is_free {
            self.rows.insert(claim.clone(), write);
        }
        is_free
    }

    /// The allocation being written to the claim.
    pub fn allocation(&self, claim: &Key) -> Option<&Allocation> {
        match self.rows.get(claim)? {
            Write::Allocate(allocation) => Some(allocation),
            Write::Clear | Write::Fence => None,
        }
    }

    /// The claims with an allocation in flight for the pod.
    pub fn of_pod(&self, pod: &PodReference) -> Vec<Key> {
        let allocations = self.allocations().filter(|(_, allocation)| allocation.pod == *pod);
        allocations.map(|(claim, _)| claim.clone()).collect()
    }

    /// All allocations in flight.
    pub fn allocations(&self) -> impl Iterator<Item = (&Key, &Allocation)> {
        self.rows.keys().filter_map(|claim| Some((claim, self.allocation(claim)?)))
    }

    /// Whether the claim is being allocated or deallocated.
    pub fn changes_devices(&self, claim: &Key) -> bool {
        matches!(self.rows.get(claim), Some(Write::Allocate(_) | Write::Clear))
    }

    /// Removes an allocation once observed or certain never to arrive: its devices count no longer.
    pub fn end_allocation(&mut self, claim: &Key) -> Option<Allocation> {
        self.allocation(claim)?;
        match self.rows.remove(claim)? {
            Write::Allocate(allocation) => Some(*allocation),
            Write::Clear | Write::Fence => None,
        }
    }

    /// Handles the answer for the pod: `versions` lists the claims with a written allocation. All others become uncertain.
    pub fn acknowledge(&mut self, pod: &PodReference, versions: &[(Key, String)]) {
        for (claim, write) in &mut self.rows {
            let Write::Allocate(allocation) = write else { continue };
            if allocation.pod == *pod && allocation.progress == Progress::Sent {
                let version = versions.iter().find(|(written, _)| written == claim);
                allocation.progress = match version {
                    Some((_, version)) => Progress::Acknowledged(version.clone()),
                    None => Progress::Uncertain,
                };
            }
        }
    }

    /// Handles the answer to an epoch's write. Returns whether one was in flight.
    pub fn end_fence(&mut self, claim: &Key) -> bool {
        match self.rows.get_mut(claim) {
            Some(Write::Fence) => self.rows.remove(claim).is_some(),
            Some(Write::Allocate(allocation)) => std::mem::replace(&mut allocation.is_fencing, false),
            _ => false,
        }
    }

    /// Handles the answer to a deallocation, or the claim's deletion. Returns whether a deallocation was in flight.
    pub fn end_clear(&mut self, claim: &Key) -> bool {
        let is_it = matches!(self.rows.get(claim), Some(Write::Clear));
        is_it && self.rows.remove(claim).is_some()
    }

    /// Drops all writes but allocations at the beginning of a term: each is decided again.
    pub fn forget_clears_and_fences(&mut self) {
        self.forget_fences();
        self.rows.retain(|_, write| !matches!(write, Write::Clear));
    }

    /// Drops epoch writes, at the end of a term.
    pub fn forget_fences(&mut self) {
        self.rows.retain(|_, write| match write {
            Write::Fence => false,
            Write::Allocate(allocation) => {
                allocation.is_fencing = false;
                true
            }
            Write::Clear => true,
        });
    }

    /// Whether fencing more claims has to wait for a pending answer.
    pub fn delays_fences(&self) -> bool {
        self.rows.values().any(|write| match write {
            Write::Fence | Write::Clear => true,
            Write::Allocate(allocation) => allocation.is_fencing,
        })
    }

    /// Uncertain allocations without a fence in flight.
    pub fn to_settle(&self) -> impl Iterator<Item = (&Key, &Allocation)> {
        let is_open =
            |allocation: &Allocation| allocation.progress == Progress::Uncertain && !allocation.is_fencing;
        self.allocations().filter(move |(_, allocation)| is_open(allocation))
    }

    /// Whether the outcome of the claim's allocation is unknown.
    pub fn is_uncertain(&self, claim: &Key) -> bool {
        self.allocation(claim).is_some_and(|allocation| allocation.progress == Progress::Uncertain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Key {
        Key::new("team", name)
    }

    fn allocation() -> Allocation {
        Allocation {
            uid: String::new(),
            pod: PodReference { key: claim("pod"), uid: String::new() },
            node: "a".to_owned(),
            version: Some(1),
            epoch: "e".to_owned(),
            progress: Progress::Sent,
            is_fencing: false,
        }
    }

    #[test]
    fn a_claim_is_written_once() {
        let mut writes = ClaimWrites::default();
        let (one, other) = (claim("one"), claim("other"));
        assert_eq!(writes.may_allocate([&one, &other]), Ok(()));
        assert_eq!(
            writes.may_allocate([&other, &one, &other]).unwrap_err().to_string(),
            "devices are being written to its ResourceClaim team/other already"
        );
        writes.allocate(one.clone(), allocation());
        assert_eq!(writes.may_allocate([&other]), Ok(()));
        assert!(writes.may_allocate([&other, &one]).is_err());
        assert!(!writes.clear(&one));
        assert!(writes.clear(&other) && !writes.clear(&other) && !writes.fence(&other));
        assert!(writes.may_allocate([&other]).is_err());
        assert!(writes.end_clear(&other) && !writes.end_clear(&other));
    }

    #[test]
    fn an_answer_without_the_claim_leaves_it_uncertain() {
        let mut writes = ClaimWrites::default();
        let (one, other) = (claim("one"), claim("other"));
        writes.allocate(one.clone(), allocation());
        writes.allocate(other.clone(), allocation());
        writes.acknowledge(&allocation().pod, &[(one.clone(), "7".to_owned())]);
        assert_eq!(writes.allocation(&one).unwrap().progress, Progress::Acknowledged("7".to_owned()));
        assert!(writes.is_uncertain(&other) && !writes.is_uncertain(&one));
        assert_eq!(writes.to_settle().map(|(claim, _)| claim).collect::<Vec<_>>(), [&other]);
    }

    #[test]
    fn an_uncertain_allocation_is_fenced_once_and_outlives_the_term() {
        let mut writes = ClaimWrites::default();
        let one = claim("one");
        writes.allocate(one.clone(), allocation());
        writes.acknowledge(&allocation().pod, &[]);
        assert!(writes.fence(&one) && !writes.fence(&one) && writes.delays_fences());
        assert_eq!(writes.to_settle().count(), 0);
        writes.forget_fences();
        assert!(!writes.delays_fences() && writes.is_uncertain(&one));
        assert!(writes.fence(&one) && writes.end_fence(&one) && !writes.end_fence(&one));
        assert!(writes.end_allocation(&one).is_some() && writes.end_allocation(&one).is_none());
    }
}
