//! Checks and resolves the requests of all claims before the search.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::assignment::Assignment;
use super::basis::Basis;
use super::constraints::ConstraintState;
use super::slot::{MOST_RESULTS, Slot, SlotSelector};
use crate::claim::{Ask, Claim, DeviceRequest};
use crate::error::AllocateError;

fn fatal<T>(text: String) -> Result<T, AllocateError> {
    Err(AllocateError::Fatal(text))
}

impl<'a> Assignment<'a, '_> {
    /// Checks all claims as upstream does before it searches, in the same order: the first error is the answer.
    pub(crate) fn prepare(&mut self) -> Result<(), AllocateError> {
        for claim in 0..self.claims.len() {
            self.prepare_claim(claim)?;
        }
        Ok(())
    }

    fn prepare_claim(&mut self, claim_index: usize) -> Result<(), AllocateError> {
        let claim: &'a Claim = &self.claims[claim_index];
        let features = self.basis.features;
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
            if self.basis.rules.limit_names_request && fewest > MOST_RESULTS.wrapping_sub(least) {
                return fatal(format!(
                    "{}: adding {fewest} devices exceeds the claim limit of {MOST_RESULTS}, with {least} already \
                     accounted for",
                    at(&request.name)
                ));
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
            let state = ConstraintState::new(self.basis.inventory, claim, constraint, self.basis.bugs);
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
        let Basis { inventory, classes, features, rules, .. } = self.basis;
        let at = || format!("claim {}, request {}", claim.reference(), ask.name);
        if ask.has_derived_attributes && !rules.alpha_fields_are_unknown {
            return fatal(format!(
                "{}: cannot handle request with derived attributes, the feature is disabled",
                at()
            ));
        }
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
        let mut selectors =
            SmallVec::<[SlotSelector; 4]>::with_capacity(class.selectors.len() + ask.selectors.len());
        for (is_of_class, all) in [(true, &class.selectors), (false, &ask.selectors)] {
            for (place, expression) in all.iter().enumerate() {
                let selector =
                    expression.as_ref().map(|expression: &Arc<str>| self.selectors.compile(expression));
                selectors.push(SlotSelector { is_of_class, place: place as u32, selector });
            }
        }
        let chain =
            selectors.iter().map(|all| all.selector.filter(|index| self.selectors.selector(*index).is_ok()));
        let chain = chain.collect();
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
            chain,
            matches: Vec::new(),
            capacity,
            consumed: HashMap::new(),
        });
        if is_all { self.gather_all(&at()) } else { Ok(()) }
    }

    /// Whether the device has enough capacity to count among all devices of a slot.
    fn is_large_enough(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let counts_taken = self.basis.rules.all_leaves_out_full_devices;
        Ok(!self.basis.features.consumable_capacity
            || self.is_within_capacity(slot, candidate, counts_taken).map_err(|error| {
                self.capacity_error(slot, "checking capacity", self.device(candidate).name(), &error)
            })?)
    }

    /// Determines the devices of the last slot, a request for all.
    fn gather_all(&mut self, at: &str) -> Result<(), AllocateError> {
        let inventory = self.basis.inventory;
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
                    if self.is_selectable(slot, candidate)? && self.is_large_enough(slot, candidate)? {
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
}
