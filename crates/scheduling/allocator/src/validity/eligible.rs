//! Checks of a device for a request, before trying the device.

use super::assignment::{Assignment, NO, UNKNOWN, YES};
use super::capacity::{self, AmountError, CapacityError};
use super::pools;
use super::taints::untolerated;
use crate::amount::Nanos;
use crate::error::AllocateError;
use crate::inventory::DeviceRef;

/// Kubernetes' addition to the error about a missing key.
const HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with \
                    has() for optional fields";

/// The lesser of each number.
fn lesser(one: Option<[u64; 2]>, other: [u64; 2]) -> Option<[u64; 2]> {
    Some(one.map_or(other, |one| [one[0].min(other[0]), one[1].min(other[1])]))
}

impl<'a> Assignment<'a, '_> {
    /// Upstream's checks before it tries a device.
    pub fn is_available(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let is_in_use = if self.slots[slot].admin_access {
            self.is_in_flight_of(self.slots[slot].claim, candidate)
        } else {
            self.is_in_use(candidate)
        };
        if is_in_use || self.is_withheld(candidate) || !self.is_selectable(slot, candidate)? {
            return Ok(false);
        }
        if !self.basis.features.consumable_capacity {
            return Ok(true);
        }
        let has_capacity = self.has_capacity(slot, candidate).map_err(|error| {
            self.capacity_error(slot, "checking capacity", &self.device(candidate).id_text(), &error)
        });
        self.passed_over(has_capacity)
    }

    /// Whether the device is withheld.
    pub fn is_withheld(&self, candidate: u32) -> bool {
        self.withheld.get(candidate as usize) == Some(&true)
    }

    pub(super) fn is_in_use(&self, candidate: u32) -> bool {
        self.in_flight[candidate as usize] > 0
            || self.basis.held.is_whole(self.candidates[candidate as usize].device)
    }

    /// Whether this search has given the device to the claim; a shared device is never in use.
    pub(super) fn is_in_flight_of(&self, claim: u32, candidate: u32) -> bool {
        self.in_flight[candidate as usize] > 0
            && self.picked_for(claim as usize).iter().any(|picked| picked.candidate == candidate)
    }

    pub fn is_shareable(&self, candidate: u32) -> bool {
        self.basis.features.consumable_capacity && self.device(candidate).shape().allow_multiple_allocations
    }

    /// Whether class and request select the device.
    pub fn is_selectable(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let device = self.device(candidate);
        if !self.basis.features.device_binding_and_status
            && device.extra().is_some_and(|extra| {
                extra.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty())
            })
        {
            return Ok(false);
        }
        if self.slots[slot].matches.is_empty() {
            self.slots[slot].matches = self.matches_by_kind(slot);
        }
        match self.slots[slot].matches[candidate as usize] {
            UNKNOWN => {}
            known => return Ok(known == YES),
        }
        let is_match = self.selectors_match(slot, device);
        let is_match = is_match.and_then(|is_match| Ok(is_match && self.is_for_node(candidate)?));
        let is_match = self.passed_over(is_match)?;
        self.slots[slot].matches[candidate as usize] = if is_match { YES } else { NO };
        Ok(is_match)
    }

    /// By candidate: whether selectors match, where known for all slices of a kind.
    fn matches_by_kind(&mut self, slot: usize) -> Vec<u8> {
        let inventory = self.basis.inventory;
        let mut matches = Vec::with_capacity(self.candidates.len());
        let Some(chain) = self.slots[slot].chain.take() else { return vec![UNKNOWN; self.candidates.len()] };
        for pool in self.pools.iter().filter(|pool| pool.is_usable()) {
            for place in &pool.slices {
                let slice = &inventory.slices[*place as usize];
                let is_of_kind = slice.per_device != Some(true) && !slice.has_binding_conditions;
                let known =
                    is_of_kind.then(|| self.selectors.matches_of_slice(&chain, inventory, *place)).flatten();
                match known {
                    Some(known) => {
                        matches.extend(known.iter().map(|is_match| if *is_match { YES } else { NO }))
                    }
                    None => matches.resize(matches.len() + slice.device_count() as usize, UNKNOWN),
                }
            }
        }
        matches
    }

    /// Whether the slot's selectors are known not to match the device.
    pub fn is_ruled_out(&self, slot: usize, candidate: u32) -> bool {
        self.slots[slot].matches.get(candidate as usize) == Some(&NO)
    }

    /// Whether any device of the driver, free or not, satisfies a slot.
    pub fn has_what_is_asked(&mut self, driver: &str) -> Result<bool, AllocateError> {
        for slot in 0..self.slots.len() {
            for candidate in 0..self.candidates.len() as u32 {
                if !self.is_ruled_out(slot, candidate)
                    && self.device(candidate).driver_name() == driver
                    && self.is_selectable(slot, candidate)?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// For each claim, the least sums of the numbers of `worth` over possible devices of the driver for its requests, free or
    /// not. Requests for other devices, all devices, or administrative access count for nothing.
    pub fn least_worth(
        &mut self,
        driver: &str,
        worth: impl Fn(DeviceRef<'a>) -> [u64; 2],
    ) -> Result<Vec<[u64; 2]>, AllocateError> {
        let mut of_claims = vec![[0u64; 2]; self.slots_of.len()];
        for (claim, sums) in of_claims.iter_mut().enumerate() {
            for (first, count) in self.slots_of[claim].clone() {
                let mut least = None;
                for slot in first..first + count {
                    least = lesser(least, self.least_worth_of(slot as usize, driver, &worth)?);
                }
                let least = least.unwrap_or_default();
                *sums = [0, 1].map(|place| sums[place].saturating_add(least[place]));
            }
        }
        Ok(of_claims)
    }

    fn least_worth_of(
        &mut self,
        slot: usize,
        driver: &str,
        worth: &impl Fn(DeviceRef<'a>) -> [u64; 2],
    ) -> Result<[u64; 2], AllocateError> {
        if self.slots[slot].admin_access || self.slots[slot].is_all {
            return Ok([0; 2]);
        }
        let mut least = None;
        for candidate in 0..self.candidates.len() as u32 {
            let device = self.device(candidate);
            if device.driver_name() == driver && self.is_selectable(slot, candidate)? {
                least = lesser(least, worth(device));
            }
        }
        let count = u64::try_from(self.slots[slot].count).unwrap_or_default();
        Ok(least.unwrap_or_default().map(|worth| worth.saturating_mul(count)))
    }

    pub(super) fn selectors_match(
        &mut self,
        slot: usize,
        device: DeviceRef<'a>,
    ) -> Result<bool, AllocateError> {
        for place in 0..self.slots[slot].selectors.len() {
            let selector = self.slots[slot].selectors[place];
            let Some(index) = selector.selector else {
                return Err(AllocateError::Panic(
                    "runtime error: invalid memory address or nil pointer dereference".to_owned(),
                ));
            };
            let mut is_of_device = false;
            let fault = match self.selectors.selector(index) {
                Err(error) => format!("compile error: {error}"),
                Ok(_) => match self.selectors.matches(index, device) {
                    Ok(true) => continue,
                    Ok(false) => return Ok(false),
                    Err(error) => {
                        let error = error.to_string();
                        is_of_device = self.basis.rules.selector_errors_name_device;
                        let hint = if is_of_device && error.contains("no such key:") { HINT } else { "" };
                        format!("runtime error: {error}{hint}")
                    }
                },
            };
            let on_device =
                if is_of_device { format!(" on device {}", device.id_text()) } else { String::new() };
            let slot = &self.slots[slot];
            let owner = if selector.is_of_class {
                format!("class {}", slot.class.name)
            } else {
                format!("claim {}", self.claims[slot.claim as usize].reference())
            };
            return Err(AllocateError::Fatal(format!(
                "{owner}: selector #{}{on_device}: CEL {fault}",
                selector.place
            )));
        }
        Ok(true)
    }

    pub(super) fn is_for_node(&self, candidate: u32) -> Result<bool, AllocateError> {
        let slice = self.candidates[candidate as usize].slice as usize;
        if self.basis.inventory.slices[slice].per_device != Some(true) {
            return Ok(true);
        }
        pools::device_matches(self.node, self.device(candidate)).map_err(AllocateError::Fatal)
    }

    /// Whether the device has the capacity needed by the slot, in addition to the amounts already taken.
    pub fn has_capacity(&mut self, slot: usize, candidate: u32) -> Result<bool, CapacityError> {
        self.is_within_capacity(slot, candidate, true)
    }

    /// Whether the device has the capacity needed by the slot: in addition to the amounts already taken, or with nothing
    /// taken.
    pub(super) fn is_within_capacity(
        &mut self,
        slot: usize,
        candidate: u32,
        counts_taken: bool,
    ) -> Result<bool, CapacityError> {
        let device = self.device(candidate);
        let shape = device.shape();
        let has_all = self.slots[slot]
            .capacity
            .iter()
            .all(|(name, _)| name.is_some_and(|name| shape.capacities.contains(&name)));
        if !has_all {
            return Ok(false);
        }
        // An amount without a computable value ends the attempt, even if another amount does not fit.
        for cell in device.capacity_cells() {
            self.consumed(slot, *cell)?;
        }
        let inventory = self.basis.inventory;
        for cell in device.capacity_cells() {
            let Some(mut total) = self.consumed(slot, *cell)? else { return Ok(false) };
            let capacity = &inventory.values.capacities[*cell as usize];
            if !counts_taken {
                if total > capacity.amount.nanos() {
                    return Ok(false);
                }
                continue;
            }
            if let Some(held) = self.basis.held.get(device.index) {
                total = total.saturating_add(held.consumed(inventory.text(capacity.name)));
            }
            if let Some(shared) = self.shared.get(&candidate) {
                let of = shared.taken.iter().find(|(name, _)| *name == capacity.name);
                total = total.saturating_add(of.map_or(0, |(_, taken)| *taken));
            }
            if total > capacity.amount.nanos() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The slot's amount of a capacity; `None` where its policy forbids the amount.
    pub fn consumed(&mut self, slot: usize, cell: u32) -> Result<Option<Nanos>, CapacityError> {
        let capacity = &self.basis.inventory.values.capacities[cell as usize];
        let requested = self.slots[slot].capacity.iter().find(|(name, _)| *name == Some(capacity.name));
        let requested = requested.map(|(_, amount)| *amount);
        let arithmetic = self.basis.arithmetic();
        if capacity.policy.is_none() {
            let amount = requested.unwrap_or(&capacity.amount).nanos();
            if amount < 0 && !arithmetic.wraps {
                return Err(CapacityError { cell, error: AmountError::Negative });
            }
            return Ok(Some(amount));
        }
        if let Some(known) = self.slots[slot].consumed.get(&cell) {
            return Ok(*known);
        }
        let amount = capacity::consumed(requested, capacity, arithmetic)
            .map_err(|error| CapacityError { cell, error })?;
        let amount = amount.map(|amount| amount.nanos());
        self.slots[slot].consumed.insert(cell, amount);
        Ok(amount)
    }

    /// Whether the device has a taint not tolerated by the slot's request.
    pub fn is_tainted(&self, slot: usize, candidate: u32) -> bool {
        self.basis.features.device_taints
            && untolerated(self.device(candidate), self.slots[slot].ask, self.basis.tolerated).is_some()
    }
}
