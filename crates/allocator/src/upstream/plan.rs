//! The requests of all claims, checked and looked up before the search.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::capacity;
use super::constraints::ConstraintState;
use super::search::Search;
use super::{AllocateError, Allocator};
use crate::amount::{Amount, Nanos};
use crate::claim::{Ask, Claim, Class, DeviceRequest};
use crate::inventory::Taint;
use crate::names::Name;
use crate::selectors::SelectorIndex;

/// Most results of a claim.
pub(crate) const MOST_RESULTS: i64 = 32;

/// A request, or an alternative of one, with all that the search needs of it.
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
    /// By candidate: whether the selectors match; empty before the first is asked about.
    pub matches: Vec<u8>,
    /// Requested capacities; without a name for what no device has.
    pub capacity: SmallVec<[(Option<Name>, &'a Amount); 2]>,
    /// What is taken of each capacity; None where the policy forbids it.
    pub consumed: HashMap<u32, Option<Nanos>>,
}

/// A selector of a slot's class or of the request itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotSelector {
    pub is_of_class: bool,
    /// Place in the class or request.
    pub place: u32,
    pub selector: Option<SelectorIndex>,
}

/// The slots of each claim's requests: the first one's index and how many there are.
pub(crate) type SlotsOfClaims = SmallVec<[SmallVec<[(u32, u32); 4]>; 2]>;

fn fatal<T>(text: String) -> Result<T, AllocateError> {
    Err(AllocateError::Fatal(text))
}

impl<'a> Search<'a, '_> {
    /// Checks all claims as upstream does before it searches, in its order: the first fault is the answer.
    pub(crate) fn prepare(&mut self) -> Result<(), AllocateError> {
        for claim in 0..self.claims.len() {
            self.prepare_claim(claim)?;
        }
        Ok(())
    }

    fn prepare_claim(&mut self, claim_index: usize) -> Result<(), AllocateError> {
        let claim: &'a Claim = &self.claims[claim_index];
        let features = self.allocator.features;
        let at = |request: &str| format!("claim {}, request {request}", claim.reference());
        let mut least = 0i64;
        let mut slots_of_requests = SmallVec::with_capacity(claim.requests.len());
        for (request_index, request) in claim.requests.iter().enumerate() {
            let first = self.slots.len() as u32;
            let alternatives: &'a [DeviceRequest] = match &request.ask {
                Ask::Exactly(ask) => std::slice::from_ref(ask),
                Ask::FirstAvailable(alternatives) => alternatives,
                Ask::Unknown => {
                    return Err(AllocateError::Panic(
                        "runtime error: invalid memory address or nil pointer dereference".to_owned(),
                    ));
                }
            };
            let is_list = matches!(&request.ask, Ask::FirstAvailable(_));
            if is_list && !features.prioritized_list {
                return fatal(format!(
                    "{}: has subrequests, but the DRAPrioritizedList feature is disabled",
                    at(&request.name)
                ));
            }
            if !features.consumable_capacity
                && let Some(ask) = alternatives.iter().find(|ask| ask.capacity.is_some())
            {
                let kind = if is_list { "subrequest" } else { "request" };
                return fatal(format!(
                    "claim {}, {kind} {}: has capacity requests, but the DRAConsumableCapacity feature is disabled",
                    claim.reference(),
                    ask.name
                ));
            }
            let mut fewest = i64::MAX;
            for (alternative, ask) in alternatives.iter().enumerate() {
                let place = (claim_index as u32, request_index as u32, alternative as u32);
                self.prepare_slot(claim, place, is_list, ask)?;
                fewest = fewest.min(self.slots.last().map_or(0, |slot| slot.count));
            }
            least = least.wrapping_add(fewest);
            slots_of_requests.push((first, alternatives.len() as u32));
        }
        if least > MOST_RESULTS {
            return fatal(format!(
                "claim {}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}",
                claim.reference()
            ));
        }
        if least < 0 {
            return Err(AllocateError::Panic("runtime error: makeslice: cap out of range".to_owned()));
        }
        let mut constraints = Vec::with_capacity(claim.constraints.len());
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let state =
                ConstraintState::new(self.allocator.inventory, claim, constraint, self.allocator.bugs);
            let Some(state) = state else {
                return fatal(format!(
                    "claim {}, constraint #{index}: empty constraint (unsupported constraint type?)",
                    claim.reference()
                ));
            };
            constraints.push(state);
        }
        self.constraints.push(constraints);
        self.slots_of.push(slots_of_requests);
        Ok(())
    }

    fn prepare_slot(
        &mut self,
        claim: &'a Claim,
        (claim_index, request, alternative): (u32, u32, u32),
        is_alternative: bool,
        ask: &'a DeviceRequest,
    ) -> Result<(), AllocateError> {
        let Allocator { inventory, classes, features, .. } = self.allocator;
        let at = || format!("claim {}, request {}", claim.reference(), ask.name);
        if let Some(place) = ask.selectors.iter().position(Option::is_none) {
            return fatal(format!(
                "{}, selector #{place}: CEL expression empty (unsupported selector type?)",
                at()
            ));
        }
        if !features.admin_access && ask.admin_access.is_some() {
            return fatal(format!("{}: admin access is requested, but the feature is disabled", at()));
        }
        if ask.class.is_empty() {
            return fatal(format!("{}: missing device class name (unsupported request type?)", at()));
        }
        let Some(class) = classes.get(&ask.class) else {
            return fatal(format!(
                "{}: could not retrieve device class {}: deviceclass.resource.k8s.io \"{}\" not found",
                at(),
                ask.class,
                ask.class
            ));
        };
        let mut selectors = SmallVec::with_capacity(class.selectors.len() + ask.selectors.len());
        for (is_of_class, all) in [(true, &class.selectors), (false, &ask.selectors)] {
            for (place, expression) in all.iter().enumerate() {
                let selector =
                    expression.as_ref().map(|expression: &Arc<str>| self.selectors.compile(expression));
                selectors.push(SlotSelector { is_of_class, place: place as u32, selector });
            }
        }
        let capacity = ask.capacity.iter().flatten();
        let capacity = capacity.map(|(name, amount)| (inventory.names.find(name), amount)).collect();
        let is_all = ask.is_all();
        if !is_all && ask.allocation_mode != "ExactCount" {
            return fatal(format!("{}: unsupported count mode {}", at(), ask.allocation_mode));
        }
        self.slots.push(Slot {
            claim: claim_index,
            request,
            alternative,
            is_alternative,
            ask,
            class,
            admin_access: ask.has_admin_access(),
            is_all,
            count: ask.count,
            all: Vec::new(),
            selectors,
            matches: Vec::new(),
            capacity,
            consumed: HashMap::new(),
        });
        if is_all { self.gather_all(&at()) } else { Ok(()) }
    }

    /// Fixes the devices of the last slot, a request for all.
    fn gather_all(&mut self, at: &str) -> Result<(), AllocateError> {
        let inventory = self.allocator.inventory;
        let slot = self.slots.len() - 1;
        let mut all = Vec::new();
        let mut candidate = 0u32;
        for place in 0..self.pools.len() {
            let pool = &self.pools[place];
            let of_pool = &inventory.pools[pool.pool as usize];
            let state = if pool.is_incomplete {
                "being updated"
            } else if pool.fault.is_some() {
                "invalid"
            } else {
                while self.candidates.get(candidate as usize).is_some_and(|other| other.pool == place as u32)
                {
                    let is_usable = self.is_selectable(slot, candidate)?
                        && (!self.allocator.features.consumable_capacity
                            || self.has_capacity(slot, candidate)?);
                    if is_usable {
                        all.push(candidate);
                    }
                    candidate += 1;
                }
                continue;
            };
            return fatal(format!(
                "{at}: asks for all devices, but resource pool {}/{} is currently {state}",
                inventory.text(of_pool.driver),
                inventory.text(of_pool.name)
            ));
        }
        self.slots[slot].count = all.len() as i64;
        self.slots[slot].all = all;
        Ok(())
    }

    /// What the slot takes of a capacity; None where its policy forbids that.
    pub(crate) fn consumed(&mut self, slot: usize, cell: u32) -> Result<Option<Nanos>, AllocateError> {
        let capacity = &self.allocator.inventory.values.capacities[cell as usize];
        let requested = self.slots[slot].capacity.iter().find(|(name, _)| *name == Some(capacity.name));
        let requested = requested.map(|(_, amount)| *amount);
        if capacity.policy.is_none() {
            return Ok(Some(requested.unwrap_or(&capacity.amount).nanos()));
        }
        if let Some(known) = self.slots[slot].consumed.get(&cell) {
            return Ok(*known);
        }
        let as_written = self.allocator.bugs.default_compared_as_written;
        let amount = capacity::consumed(requested, capacity, as_written)?;
        let amount = amount.map(|amount| amount.nanos());
        self.slots[slot].consumed.insert(cell, amount);
        Ok(amount)
    }
}

/// Whether a taint keeps the request from the device.
pub(crate) fn taint_prevents(taint: &Taint, ask: &DeviceRequest) -> bool {
    if taint.effect != "NoSchedule" && taint.effect != "NoExecute" {
        return false;
    }
    let is_tolerated = ask.tolerations.iter().any(|toleration| {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        let (effect, key) = (text(&toleration.effect), text(&toleration.key));
        (effect.is_empty() || effect == taint.effect)
            && (key.is_empty() || key == taint.key)
            && match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value,
                "Exists" => true,
                _ => false,
            }
    });
    !is_tolerated
}
