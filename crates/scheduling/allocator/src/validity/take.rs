//! Takes and gives back a device of a request.

use smallvec::SmallVec;

use super::assignment::{Assignment, Picked, Undo};
use super::basis::Basis;
use crate::amount::Nanos;
use crate::error::AllocateError;
use crate::held::HeldDevice;
use crate::names::Name;

impl Assignment<'_, '_> {
    /// Takes the device for the slot if counters, taints, constraints and capacity allow.
    pub fn take(
        &mut self,
        slot_index: u32,
        candidate: u32,
        must: bool,
    ) -> Result<Option<Undo>, AllocateError> {
        let slot = &self.slots[slot_index as usize];
        let (claim, request, alternative) =
            (slot.claim as usize, slot.request as usize, slot.alternative as usize);
        let is_shareable = self.is_shareable(candidate);
        let is_in_use = if slot.admin_access {
            !is_shareable && self.is_in_flight_of(slot.claim, candidate)
        } else {
            self.is_in_use(candidate)
        };
        let next = Picked { slot: slot_index, candidate };
        if is_in_use || self.is_withheld(candidate) || !self.may_take_besides(next) {
            return Ok(None);
        }
        let device = self.device(candidate);
        let pool = self.candidates[candidate as usize].pool;
        let consumes = device.has_consumptions();
        if consumes && !self.basis.features.partitionable_devices {
            return Ok(None);
        }
        let mut undo =
            Undo { slot: slot_index, candidate, has_counters: false, is_marked: false, is_shared: false };
        // Only the first share of a device takes counters.
        if consumes && !(is_shareable && self.is_capacity_in_use(candidate)) {
            let Basis { inventory, held, bugs, .. } = self.basis;
            if !self.counters.take((inventory, held, &self.pools), pool, device, bugs) {
                return Ok(None);
            }
            undo.has_counters = true;
        }
        if self.is_tainted(slot_index as usize, candidate) {
            self.undo_part(undo, 0);
            return Ok(None);
        }
        for place in 0..self.constraints[claim].len() {
            if !self.constraints[claim][place].add(request, alternative, device) {
                self.undo_part(undo, place);
                if must && !self.is_lenient() {
                    return Err(AllocateError::Fatal(format!(
                        "claim {}, request {}: cannot add device {}/{}/{} because a claim constraint would not be \
                         satisfied",
                        self.claims[claim].reference(),
                        self.slots[slot_index as usize].ask.name,
                        device.driver_name(),
                        device.pool(),
                        device.name()
                    )));
                }
                return Ok(None);
            }
        }
        if !is_shareable {
            self.in_flight[candidate as usize] += 1;
            undo.is_marked = true;
        }
        if self.basis.features.consumable_capacity {
            let has_capacity = self.has_capacity(slot_index as usize, candidate).map_err(|error| {
                let device = device.id_text();
                self.capacity_error(slot_index as usize, "rechecking capacity", &device, &error)
            });
            if !self.passed_over(has_capacity)? {
                self.undo_part(undo, self.constraints[claim].len());
                return Ok(None);
            }
            if is_shareable {
                self.share(slot_index as usize, candidate, true);
                undo.is_shared = true;
            }
        }
        self.picked.push(next);
        self.counts[claim] += 1;
        Ok(Some(undo))
    }

    /// Whether the slot could take a candidate now.
    pub fn is_possible(&mut self, slot: usize, candidate: u32) -> bool {
        if !matches!(self.is_available(slot, candidate), Ok(true)) {
            return false;
        }
        let (claim, request, alternative) = self.slots[slot].place();
        let device = self.device(candidate);
        let is_allowed = self.constraints[claim]
            .iter_mut()
            .all(|constraint| constraint.would_accept(request, alternative, device));
        is_allowed && self.counter_shortage(candidate).is_none()
    }

    /// The first counter with less left than the device needs: set, counter, needed, left.
    pub fn counter_shortage(&mut self, candidate: u32) -> Option<(Name, Name, Nanos, Nanos)> {
        let device = self.device(candidate);
        let is_first_share = !(self.is_shareable(candidate) && self.is_capacity_in_use(candidate));
        if !is_first_share || !device.has_consumptions() {
            return None;
        }
        let Basis { inventory, held, bugs, .. } = self.basis;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.shortage((inventory, held, &self.pools), pool, device, bugs)
    }

    fn is_capacity_in_use(&self, candidate: u32) -> bool {
        let device = self.candidates[candidate as usize].device;
        let charges_again = self.basis.bugs.shares_without_capacity_charge_again;
        let shares = |held: &HeldDevice| if charges_again { held.capacity_shares } else { held.shares };
        self.basis.held.get(device).is_some_and(|held| shares(held) > 0)
            || self.shared.get(&candidate).is_some_and(|shared| shared.shares > 0)
    }

    /// Takes or gives back a share of a device's capacity.
    fn share(&mut self, slot: usize, candidate: u32, is_taken: bool) {
        let cells = self.device(candidate).capacity_cells();
        let mut amounts: SmallVec<[_; 4]> = SmallVec::with_capacity(cells.len());
        for cell in cells {
            let name = self.basis.inventory.values.capacities[*cell as usize].name;
            // The amounts were computed during the capacity check.
            amounts.push((name, self.consumed(slot, *cell).ok().flatten().unwrap_or(0)));
        }
        let shared = self.shared.entry(candidate).or_default();
        shared.shares = if is_taken { shared.shares + 1 } else { shared.shares.saturating_sub(1) };
        for (name, amount) in amounts {
            let amount = if is_taken { amount } else { -amount };
            match shared.taken.iter_mut().find(|(other, _)| *other == name) {
                Some((_, taken)) => *taken = taken.saturating_add(amount),
                None => shared.taken.push((name, amount)),
            }
        }
    }

    /// A device's consumption of counters, by their index in its pool.
    pub fn counter_places(&mut self, candidate: u32) -> Vec<(u32, Nanos)> {
        let device = self.device(candidate);
        if device.consumption_cells().is_empty() {
            return Vec::new();
        }
        let Basis { inventory, held, bugs, .. } = self.basis;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.places((inventory, held, &self.pools), pool, device, bugs)
    }

    /// A counter's index in its pool, and its remaining amount; `None` if the pool has no such counter.
    pub fn counter_left(&mut self, pool: u32, cell: u32) -> Option<(u32, Nanos)> {
        let Basis { inventory, held, bugs, .. } = self.basis;
        self.counters.left_of((inventory, held, &self.pools), pool, cell, bugs)
    }

    /// Remaining amounts of these counters of a candidate's pool, and whether any may be taken.
    pub fn counters_left(&mut self, candidate: u32, places: &[u32]) -> (bool, Vec<Nanos>) {
        if !self.device(candidate).has_consumptions() {
            return (false, Vec::new());
        }
        let Basis { inventory, held, bugs, .. } = self.basis;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.left((inventory, held, &self.pools), pool, places, bugs)
    }

    /// Undoes the last [`Self::take`].
    pub fn undo(&mut self, undo: Undo) {
        let claim = self.slots[undo.slot as usize].claim as usize;
        self.picked.pop();
        self.counts[claim] -= 1;
        if undo.is_shared {
            self.share(undo.slot as usize, undo.candidate, false);
        }
        self.undo_part(undo, self.constraints[claim].len());
    }

    fn undo_part(&mut self, undo: Undo, constraints: usize) {
        let slot = &self.slots[undo.slot as usize];
        let (claim, request, alternative) =
            (slot.claim as usize, slot.request as usize, slot.alternative as usize);
        if undo.is_marked {
            self.in_flight[undo.candidate as usize] -= 1;
        }
        for constraint in self.constraints[claim][..constraints].iter_mut().rev() {
            constraint.remove(request, alternative);
        }
        if undo.has_counters {
            let device = self.device(undo.candidate);
            let pool = self.candidates[undo.candidate as usize].pool;
            self.counters.give_back(self.basis.inventory, pool, device);
        }
    }
}
