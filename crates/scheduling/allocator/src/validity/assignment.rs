//! A partial assignment of devices to the requests of claims.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::basis::Basis;
use super::constraints::ConstraintState;
use super::counters::Counters;
use super::pick::{MayTake, Pick};
use super::pools::{self, Pool};
use super::slot::{Slot, SlotsOfClaims};
use crate::amount::Nanos;
use crate::claim::Claim;
use crate::error::AllocateError;
use crate::inventory::DeviceRef;
use crate::names::Name;
use crate::node::Node;
use crate::selectors::SelectorCache;

/// A device open to allocation on the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub device: u32,
    /// Index in the search's pools.
    pub pool: u32,
    pub slice: u32,
}

/// A device picked for a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picked {
    pub slot: u32,
    pub candidate: u32,
}

/// The changes of one [`Assignment::take`], for undoing it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    pub slot: u32,
    pub candidate: u32,
    pub has_counters: bool,
    pub is_marked: bool,
    pub is_shared: bool,
}

/// The capacity of a shared device taken by the assignment.
#[derive(Debug, Default)]
pub(crate) struct SharedUse {
    pub shares: u32,
    pub taken: Vec<(Name, Nanos)>,
}

pub(super) const UNKNOWN: u8 = 0;
pub(crate) const NO: u8 = 1;
pub(super) const YES: u8 = 2;

/// A partial assignment on one node, empty at first: takes devices and checks whether more may be taken.
pub(crate) struct Assignment<'a, 's> {
    pub basis: Basis<'a>,
    pub node: &'a Node,
    pub claims: &'a [Claim],
    pub selectors: &'s mut SelectorCache,
    pub pools: Vec<Pool>,
    pub candidates: Vec<Candidate>,
    pub slots: Vec<Slot<'a>>,
    pub slots_of: SlotsOfClaims,
    pub constraints: Vec<Vec<ConstraintState>>,
    pub(super) counters: Counters,
    /// By candidate: how often this assignment uses it.
    pub(super) in_flight: Vec<u32>,
    pub(super) shared: HashMap<u32, SharedUse>,
    /// The picked devices, claim by claim.
    pub picked: Vec<Picked>,
    /// By claim: the number of picked devices.
    pub counts: SmallVec<[u32; 4]>,
    /// Alternatives other than the first: claim, request, alternative.
    pub chosen: Vec<(u32, u32, u32)>,
    /// By candidate: whether withheld despite being free; empty if no device is withheld.
    pub(super) withheld: Vec<bool>,
    /// Whether picks may be had together; `None` where all may.
    pub(super) may_take: Option<MayTake<'a>>,
    /// Whether a device whose selector fails is passed over, and a request for all forbidden by a constraint does
    /// not end the search. kube-scheduler ends its attempt with the error.
    is_lenient: bool,
    /// The first error passed over.
    fault: Option<AllocateError>,
}

impl<'a, 's> Assignment<'a, 's> {
    /// The empty assignment; call [`Self::prepare`] next.
    ///
    /// # Errors
    /// The node's pools cannot be determined; see [`AllocateError`].
    pub fn new(
        basis: Basis<'a>,
        node: &'a Node,
        claims: &'a [Claim],
        selectors: &'s mut SelectorCache,
    ) -> Result<Self, AllocateError> {
        let inventory = basis.inventory;
        selectors.begin(inventory);
        let pools = pools::gather(&basis, node)?;
        let slices = pools.iter().filter(|pool| pool.is_usable()).flat_map(|pool| &pool.slices);
        let count: u32 = slices.map(|index| inventory.slices[*index as usize].device_count()).sum();
        let mut candidates = Vec::with_capacity(count as usize);
        for (place, pool) in pools.iter().enumerate().filter(|(_, pool)| pool.is_usable()) {
            for index in &pool.slices {
                let slice = &inventory.slices[*index as usize];
                candidates.extend((slice.first_device..slice.end_device).map(|device| Candidate {
                    device,
                    pool: place as u32,
                    slice: *index,
                }));
            }
        }
        Ok(Assignment {
            basis,
            node,
            claims,
            selectors,
            counters: Counters::default(),
            pools,
            in_flight: vec![0; candidates.len()],
            candidates,
            slots: Vec::new(),
            slots_of: SlotsOfClaims::new(),
            constraints: Vec::new(),
            shared: HashMap::new(),
            picked: Vec::new(),
            counts: SmallVec::from_elem(0, claims.len()),
            chosen: Vec::new(),
            withheld: Vec::new(),
            may_take: None,
            is_lenient: false,
            fault: None,
        })
    }

    /// Withholds the devices for which `may_give` is false. A request for all cannot be met if it selects one of them.
    pub fn withhold(&mut self, may_give: impl Fn(DeviceRef<'a>) -> bool) {
        let candidates = 0..self.candidates.len() as u32;
        self.withheld = candidates.map(|candidate| !may_give(self.device(candidate))).collect();
    }

    /// From now on takes only picks allowed together with the earlier picks.
    pub fn limit(&mut self, may_take: Option<MayTake<'a>>) {
        self.may_take = may_take;
    }

    /// The pick in the form for callers.
    pub fn pick(&self, picked: Picked) -> Pick<'a> {
        let slot = &self.slots[picked.slot as usize];
        Pick {
            claim: slot.claim as usize,
            request: slot.request as usize,
            has_admin_access: slot.admin_access,
            ask: slot.ask,
            device: self.device(picked.candidate),
        }
    }

    /// Whether the device may be had besides the earlier picks.
    pub(super) fn may_take_besides(&self, next: Picked) -> bool {
        self.may_take.is_none_or(|may_take| {
            let picks = self.picked.iter().chain([&next]).map(|picked| self.pick(*picked));
            may_take(&picks.collect::<Vec<_>>())
        })
    }

    /// Whether picks of otherwise free devices are limited.
    pub fn is_limited(&self) -> bool {
        self.may_take.is_some()
    }

    /// From now on passes over errors on which kube-scheduler would end its attempt. For an enumeration of devices
    /// not reached by kube-scheduler.
    pub fn be_lenient(&mut self) {
        self.is_lenient = true;
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    /// `false` instead of an error, where errors are passed over.
    pub(super) fn passed_over(&mut self, result: Result<bool, AllocateError>) -> Result<bool, AllocateError> {
        match result {
            Err(error) if self.is_lenient => {
                self.fault.get_or_insert(error);
                Ok(false)
            }
            result => result,
        }
    }

    /// The reason for no solution, other than lack of room.
    pub fn why_none(self) -> Option<AllocateError> {
        let is_faulty = self.pools.iter().any(|pool| pool.fault.is_some());
        self.fault.or_else(|| is_faulty.then_some(AllocateError::InvalidPools))
    }

    pub fn device(&self, candidate: u32) -> DeviceRef<'a> {
        DeviceRef { inventory: self.basis.inventory, index: self.candidates[candidate as usize].device }
    }

    /// The devices picked for a claim.
    pub fn picked_for(&self, claim: usize) -> &[Picked] {
        let start: u32 = self.counts[..claim].iter().sum();
        &self.picked[start as usize..(start + self.counts[claim]) as usize]
    }

    /// The slot of a request in the solution: of several alternatives, the chosen one.
    pub fn chosen_slot(&self, claim: usize, request: usize) -> &Slot<'a> {
        let (first, _) = self.slots_of[claim][request];
        let of = |(at, of, _): &&(u32, u32, u32)| (*at as usize, *of as usize) == (claim, request);
        let alternative = self.chosen.iter().find(of).map_or(0, |(.., alternative)| *alternative);
        &self.slots[(first + alternative) as usize]
    }

    /// `request`, or `request/alternative`.
    pub fn slot_name(&self, slot: &Slot<'_>) -> String {
        if !slot.is_alternative {
            return slot.ask.name.clone();
        }
        let request = &self.claims[slot.claim as usize].requests[slot.request as usize];
        format!("{}/{}", request.name, slot.ask.name)
    }
}
