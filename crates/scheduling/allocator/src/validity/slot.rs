//! A request, or an alternative of one, with its references resolved.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::amount::{Amount, Nanos};
use crate::claim::{Class, DeviceRequest};
use crate::names::Name;
use crate::selectors::{Chain, SelectorIndex};

/// Largest number of results of a claim.
pub(crate) const MOST_RESULTS: i64 = 32;

/// A request, or an alternative of one, with all data for the search.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    pub claim: u32,
    pub request: u32,
    /// Index of the alternative; 0 for a request without alternatives.
    pub alternative: u32,
    pub is_alternative: bool,
    pub ask: &'a DeviceRequest,
    pub class: &'a Class,
    pub admin_access: bool,
    pub is_all: bool,
    /// Devices to allocate.
    pub count: i64,
    /// The devices of a request for all: indexes of candidates.
    pub all: Vec<u32>,
    pub selectors: SmallVec<[SlotSelector; 4]>,
    /// The same, where all are known and compile.
    pub chain: Option<Chain>,
    /// By candidate: whether the selectors match; empty until the first is checked.
    pub matches: Vec<u8>,
    /// Requested capacities; the name is `None` if no device has the capacity.
    pub capacity: SmallVec<[(Option<Name>, &'a Amount); 2]>,
    /// The amount taken of each capacity; `None` where the policy forbids the amount.
    pub consumed: HashMap<u32, Option<Nanos>>,
}

/// A selector of a slot's class or of the request itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotSelector {
    pub is_of_class: bool,
    /// Index in the class or request.
    pub place: u32,
    pub selector: Option<SelectorIndex>,
}

/// The slots of each claim's requests: index of the first one, and their number.
pub(crate) type SlotsOfClaims = SmallVec<[SmallVec<[(u32, u32); 4]>; 2]>;

impl Slot<'_> {
    /// Claim, request and alternative.
    pub fn place(&self) -> (usize, usize, usize) {
        (self.claim as usize, self.request as usize, self.alternative as usize)
    }
}
