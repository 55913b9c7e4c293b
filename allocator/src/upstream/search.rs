//! The search: depth first, in upstream's order, without recursion.

use std::collections::HashMap;

use super::constraints::ConstraintState;
use super::counters::Counters;
use super::plan::{MOST_RESULTS, Slot, SlotsOfClaims, taint_prevents};
use super::pools::{self, Pool};
use super::prune::Pruning;
use super::{AllocateError, Allocator};
use crate::amount::Nanos;
use crate::claim::Claim;
use crate::inventory::DeviceRef;
use crate::names::Name;
use crate::node::Node;
use crate::selectors::SelectorCache;

/// A device that may be allocated on the node.
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

/// What one [`Search::take`] changed, to be undone.
#[derive(Debug, Clone, Copy)]
struct Undo {
    slot: u32,
    candidate: u32,
    has_counters: bool,
    is_marked: bool,
    is_shared: bool,
}

/// A choice that the search may come back to.
#[derive(Debug)]
enum Frame {
    /// A claim is complete.
    ClaimDone,
    /// The alternatives of a request.
    List { claim: u32, request: u32, alternative: u32, all_exceeded: bool },
    /// One device of a request.
    One(Box<One>),
    /// One device of a request for all.
    OfAll(Undo),
    /// A request begins in this state, see [`Pruning`].
    Begun(u128),
}

/// The search for one device of a request.
#[derive(Debug)]
struct One {
    slot: u32,
    device: i64,
    /// Where it began.
    start: u32,
    taken: Undo,
    /// What stands for the taken device and its like.
    alike: u128,
    /// What stands for those that failed.
    failed: Vec<u128>,
}

/// How a part of the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    NotFound,
    /// The claim would have more than 32 results.
    Exceeded,
}

enum Step {
    Request {
        claim: u32,
        request: u32,
    },
    Device {
        slot: u32,
        device: i64,
        start: u32,
    },
    /// A search for one device goes on after the candidate that failed.
    Next(Box<One>),
    Return(Outcome),
    Found,
}

/// What of a shared device's capacity the search has taken.
#[derive(Debug, Default)]
pub(crate) struct SharedUse {
    pub shares: u32,
    pub taken: Vec<(Name, Nanos)>,
}

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// The state of one allocation.
pub(crate) struct Search<'a, 's> {
    pub allocator: Allocator<'a>,
    pub node: &'a Node,
    pub claims: &'a [Claim],
    pub selectors: &'s mut SelectorCache,
    pub pools: Vec<Pool>,
    pub candidates: Vec<Candidate>,
    pub slots: Vec<Slot<'a>>,
    pub slots_of: SlotsOfClaims,
    /// By slot and candidate: whether the selectors match.
    pub matches: Vec<Vec<u8>>,
    pub constraints: Vec<Vec<ConstraintState>>,
    counters: Counters,
    /// By candidate: how often it is in use by this search.
    in_flight: Vec<u32>,
    shared: HashMap<u32, SharedUse>,
    pub results: Vec<Vec<Picked>>,
    /// By claim and request: the chosen alternative.
    pub chosen: Vec<Vec<u32>>,
    stack: Vec<Frame>,
    effort: u64,
    pruning: Option<Pruning>,
    has_begun_again: bool,
    has_admin_access: bool,
}

impl<'a, 's> Search<'a, 's> {
    pub fn new(
        allocator: Allocator<'a>,
        node: &'a Node,
        claims: &'a [Claim],
        selectors: &'s mut SelectorCache,
        pools: Vec<Pool>,
    ) -> Self {
        let inventory = allocator.inventory;
        let mut candidates = Vec::new();
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
        Search {
            allocator,
            node,
            claims,
            selectors,
            counters: Counters::new(pools.len()),
            pools,
            in_flight: vec![0; candidates.len()],
            candidates,
            slots: Vec::new(),
            slots_of: Vec::new(),
            matches: Vec::new(),
            constraints: Vec::new(),
            shared: HashMap::new(),
            results: vec![Vec::new(); claims.len()],
            chosen: claims.iter().map(|claim| vec![0; claim.requests.len()]).collect(),
            stack: Vec::new(),
            effort: 0,
            pruning: None,
            has_begun_again: false,
            has_admin_access: false,
        }
    }

    pub fn device(&self, candidate: u32) -> DeviceRef<'a> {
        DeviceRef { inventory: self.allocator.inventory, index: self.candidates[candidate as usize].device }
    }

    /// Whether there is a solution; it is then in `results`.
    pub fn run(&mut self) -> Result<bool, AllocateError> {
        self.has_admin_access = self.slots.iter().any(|slot| slot.admin_access);
        let mut step = Step::Request { claim: 0, request: 0 };
        loop {
            if self.effort > self.allocator.patience && !self.has_begun_again {
                step = self.begin_again();
            }
            if self.effort > self.allocator.effort_limit {
                return Err(AllocateError::TooLong(self.effort));
            }
            step = match step {
                Step::Found => {
                    for frame in &self.stack {
                        if let Frame::List { claim, request, alternative, .. } = frame {
                            self.chosen[*claim as usize][*request as usize] = *alternative;
                        }
                    }
                    return Ok(true);
                }
                Step::Request { claim, request } => self.enter_request(claim, request),
                Step::Device { slot, device, start } => self.enter_device(slot, device, start)?,
                Step::Next(one) => {
                    let next = one.taken.candidate + 1;
                    self.next_device((one.slot, one.device, one.start), next, one.failed)?
                }
                Step::Return(outcome) => match self.stack.pop() {
                    None => return Ok(false),
                    Some(frame) => self.come_back(frame, outcome),
                },
            };
        }
    }

    /// Takes everything back and begins again, leaving out what cannot succeed where that is possible.
    fn begin_again(&mut self) -> Step {
        while let Some(frame) = self.stack.pop() {
            match frame {
                Frame::One(one) => self.undo(one.taken),
                Frame::OfAll(undo) => self.undo(undo),
                Frame::ClaimDone | Frame::List { .. } | Frame::Begun(_) => {}
            }
        }
        self.has_begun_again = true;
        self.pruning = self.begin_pruning();
        Step::Request { claim: 0, request: 0 }
    }

    fn enter_request(&mut self, claim: u32, request: u32) -> Step {
        let Some(slots) = self.slots_of.get(claim as usize) else { return Step::Found };
        let Some((slot, _)) = slots.get(request as usize).copied() else {
            self.stack.push(Frame::ClaimDone);
            return Step::Request { claim: claim + 1, request: 0 };
        };
        if self.slots[slot as usize].is_alternative {
            self.stack.push(Frame::List { claim, request, alternative: 0, all_exceeded: true });
        }
        Step::Device { slot, device: 0, start: 0 }
    }

    fn enter_device(&mut self, slot_index: u32, device: i64, start: u32) -> Result<Step, AllocateError> {
        let slot = &self.slots[slot_index as usize];
        if slot.is_all && slot.all.is_empty() {
            return Ok(Step::Return(Outcome::NotFound));
        }
        if device >= slot.count {
            return Ok(Step::Request { claim: slot.claim, request: slot.request + 1 });
        }
        let results = self.results[slot.claim as usize].len() as i64;
        if (results - device).saturating_add(slot.count) > MOST_RESULTS {
            return Ok(Step::Return(Outcome::Exceeded));
        }
        let (is_all, candidate) = (slot.is_all, slot.all.get(device as usize).copied());
        if self.pruning.is_some() && self.leaves_out(slot_index, device, start) {
            return Ok(Step::Return(Outcome::NotFound));
        }
        let candidate = match candidate {
            Some(candidate) if is_all => candidate,
            _ => return self.next_device((slot_index, device, start), start, Vec::new()),
        };
        Ok(match self.take(slot_index, candidate, true)? {
            None => Step::Return(Outcome::NotFound),
            Some(undo) => {
                self.stack.push(Frame::OfAll(undo));
                Step::Device { slot: slot_index, device: device + 1, start: 0 }
            }
        })
    }

    /// Whether a request, or the rest of one, need not be tried.
    fn leaves_out(&mut self, slot: u32, device: i64, start: u32) -> bool {
        if !self.slots[slot as usize].is_all && self.has_too_few(slot, device, start) {
            return true;
        }
        if device > 0 {
            return false;
        }
        let Some(pruning) = &self.pruning else { return false };
        let state = self.state_at(pruning, slot);
        if pruning.has_failed(state) {
            return true;
        }
        self.stack.push(Frame::Begun(state));
        false
    }

    fn come_back(&mut self, frame: Frame, outcome: Outcome) -> Step {
        match frame {
            // Another alternative of an earlier claim may leave room.
            Frame::ClaimDone => Step::Return(Outcome::NotFound),
            Frame::List { claim, request, alternative, all_exceeded } => {
                let all_exceeded = all_exceeded && outcome == Outcome::Exceeded;
                let (first, count) = self.slots_of[claim as usize][request as usize];
                let alternative = alternative + 1;
                if alternative < count {
                    self.stack.push(Frame::List { claim, request, alternative, all_exceeded });
                    Step::Device { slot: first + alternative, device: 0, start: 0 }
                } else {
                    Step::Return(if all_exceeded { Outcome::Exceeded } else { Outcome::NotFound })
                }
            }
            Frame::OfAll(undo) => {
                self.undo(undo);
                Step::Return(outcome)
            }
            Frame::Begun(state) => {
                if let Some(pruning) = &mut self.pruning {
                    pruning.remember(state);
                }
                Step::Return(outcome)
            }
            Frame::One(mut one) => {
                self.undo(one.taken);
                if self.pruning.is_some() {
                    one.failed.push(one.alike);
                }
                match outcome {
                    Outcome::Exceeded => Step::Return(outcome),
                    Outcome::NotFound => Step::Next(one),
                }
            }
        }
    }

    /// Takes the next device, at or after `next`, that the request can have.
    fn next_device(
        &mut self,
        (slot, device, start): (u32, i64, u32),
        next: u32,
        failed: Vec<u128>,
    ) -> Result<Step, AllocateError> {
        for candidate in next..self.candidates.len() as u32 {
            if !self.is_available(slot as usize, candidate)? {
                continue;
            }
            let mut alike = 0;
            if let Some(pruning) = &self.pruning {
                alike = pruning.alike(candidate, device, start);
                if failed.contains(&alike) {
                    continue;
                }
            }
            if let Some(taken) = self.take(slot, candidate, false)? {
                self.stack.push(Frame::One(Box::new(One { slot, device, start, taken, alike, failed })));
                return Ok(Step::Device { slot, device: device + 1, start: candidate + 1 });
            }
        }
        Ok(Step::Return(Outcome::NotFound))
    }

    /// What upstream checks before it tries a device.
    pub fn is_available(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let is_in_use = if self.slots[slot].admin_access {
            self.is_in_flight_of(self.slots[slot].claim, candidate)
        } else {
            self.is_in_use(candidate)
        };
        Ok(!is_in_use
            && self.is_selectable(slot, candidate)?
            && (!self.allocator.features.consumable_capacity || self.has_capacity(slot, candidate)?))
    }

    fn is_in_use(&self, candidate: u32) -> bool {
        self.in_flight[candidate as usize] > 0
            || self.allocator.held.is_whole(self.candidates[candidate as usize].device)
    }

    /// Whether this search has given the device to the claim; a shared device is never in use.
    fn is_in_flight_of(&self, claim: u32, candidate: u32) -> bool {
        self.in_flight[candidate as usize] > 0
            && self.results[claim as usize].iter().any(|picked| picked.candidate == candidate)
    }

    pub fn is_shareable(&self, candidate: u32) -> bool {
        self.allocator.features.consumable_capacity
            && self.device(candidate).shape().allow_multiple_allocations
    }

    /// Whether class and request select the device.
    pub fn is_selectable(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let device = self.device(candidate);
        if !self.allocator.features.device_binding_and_status
            && device.extra().is_some_and(|extra| {
                extra.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty())
            })
        {
            return Ok(false);
        }
        if self.matches[slot].is_empty() {
            self.matches[slot] = vec![UNKNOWN; self.candidates.len()];
        }
        match self.matches[slot][candidate as usize] {
            UNKNOWN => {}
            known => return Ok(known == YES),
        }
        let is_match = self.selectors_match(slot, device)? && self.is_for_node(candidate)?;
        self.matches[slot][candidate as usize] = if is_match { YES } else { NO };
        Ok(is_match)
    }

    fn selectors_match(&mut self, slot: usize, device: DeviceRef<'a>) -> Result<bool, AllocateError> {
        for place in 0..self.slots[slot].selectors.len() {
            let selector = self.slots[slot].selectors[place];
            let Some(index) = selector.selector else {
                return Err(AllocateError::Panic(
                    "runtime error: invalid memory address or nil pointer dereference".to_owned(),
                ));
            };
            let fault = match self.selectors.selector(index) {
                Err(error) => format!("compile error: {error}"),
                Ok(_) => match self.selectors.matches(index, device) {
                    Ok(true) => continue,
                    Ok(false) => return Ok(false),
                    Err(error) => format!("runtime error: {error}"),
                },
            };
            let slot = &self.slots[slot];
            let owner = if selector.is_of_class {
                format!("class {}", slot.class.name)
            } else {
                format!("claim {}", self.claims[slot.claim as usize].reference())
            };
            return Err(AllocateError::Fatal(format!("{owner}: selector #{}: CEL {fault}", selector.place)));
        }
        Ok(true)
    }

    fn is_for_node(&self, candidate: u32) -> Result<bool, AllocateError> {
        let slice = self.candidates[candidate as usize].slice as usize;
        if self.allocator.inventory.slices[slice].per_device != Some(true) {
            return Ok(true);
        }
        pools::device_matches(self.node, self.device(candidate)).map_err(AllocateError::Fatal)
    }

    /// Whether the device has the capacity that the slot would take, beyond what is taken already.
    pub fn has_capacity(&mut self, slot: usize, candidate: u32) -> Result<bool, AllocateError> {
        let device = self.device(candidate);
        let shape = device.shape();
        let has_all = self.slots[slot]
            .capacity
            .iter()
            .all(|(name, _)| name.is_some_and(|name| shape.capacities.contains(&name)));
        if !has_all {
            return Ok(false);
        }
        let inventory = self.allocator.inventory;
        for cell in device.capacity_cells() {
            let Some(mut total) = self.consumed(slot, *cell)? else { return Ok(false) };
            let capacity = &inventory.values.capacities[*cell as usize];
            if let Some(held) = self.allocator.held.get(device.index) {
                let of = held.consumed.iter().find(|(name, ..)| *name == capacity.name);
                total = total.saturating_add(of.map_or(0, |(_, taken, _)| *taken));
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

    /// Gives the device to the slot if counters, taints, constraints and capacity allow it.
    fn take(&mut self, slot_index: u32, candidate: u32, must: bool) -> Result<Option<Undo>, AllocateError> {
        self.effort += 1;
        let slot = &self.slots[slot_index as usize];
        let (claim, request, alternative) =
            (slot.claim as usize, slot.request as usize, slot.alternative as usize);
        let is_shareable = self.is_shareable(candidate);
        let is_in_use = if slot.admin_access {
            !is_shareable && self.is_in_flight_of(slot.claim, candidate)
        } else {
            self.is_in_use(candidate)
        };
        if is_in_use {
            return Ok(None);
        }
        let device = self.device(candidate);
        let pool = self.candidates[candidate as usize].pool;
        let consumes = device.has_consumptions();
        if consumes && !self.allocator.features.partitionable_devices {
            return Ok(None);
        }
        let mut undo =
            Undo { slot: slot_index, candidate, has_counters: false, is_marked: false, is_shared: false };
        // Only the first share of a device takes counters.
        if consumes && !(is_shareable && self.is_capacity_in_use(candidate)) {
            let Allocator { inventory, held, bugs, .. } = self.allocator;
            if !self.counters.take((inventory, held, &self.pools), pool, device, bugs) {
                return Ok(None);
            }
            undo.has_counters = true;
        }
        let ask = slot.ask;
        let is_tainted = self.allocator.features.device_taints
            && device
                .extra()
                .is_some_and(|extra| extra.taints.iter().any(|taint| taint_prevents(taint, ask)));
        if is_tainted {
            self.undo_part(undo, 0);
            return Ok(None);
        }
        for place in 0..self.constraints[claim].len() {
            if !self.constraints[claim][place].add(request, alternative, device) {
                self.undo_part(undo, place);
                if must {
                    return Err(AllocateError::Fatal(format!(
                        "claim {}, request {}: cannot add device {}/{}/{} because a claim constraint would not be \
                         satisfied",
                        self.claims[claim].reference(),
                        ask.name,
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
        if self.allocator.features.consumable_capacity {
            if !self.has_capacity(slot_index as usize, candidate)? {
                self.undo_part(undo, self.constraints[claim].len());
                return Ok(None);
            }
            if is_shareable {
                self.share(slot_index as usize, candidate, true)?;
                undo.is_shared = true;
            }
        }
        self.results[claim].push(Picked { slot: slot_index, candidate });
        self.note(undo, true);
        Ok(Some(undo))
    }

    /// The first counter of which the device needs more than is left: set, counter, needed, left.
    pub fn counter_shortage(&mut self, candidate: u32) -> Option<(Name, Name, Nanos, Nanos)> {
        let device = self.device(candidate);
        let is_first_share = !(self.is_shareable(candidate) && self.is_capacity_in_use(candidate));
        if !is_first_share || !device.has_consumptions() {
            return None;
        }
        let Allocator { inventory, held, bugs, .. } = self.allocator;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.shortage((inventory, held, &self.pools), pool, device, bugs)
    }

    fn is_capacity_in_use(&self, candidate: u32) -> bool {
        let device = self.candidates[candidate as usize].device;
        self.allocator.held.get(device).is_some_and(|held| held.capacity_shares > 0)
            || self.shared.get(&candidate).is_some_and(|shared| shared.shares > 0)
    }

    /// Takes or gives back a share of a device's capacity.
    fn share(&mut self, slot: usize, candidate: u32, is_taken: bool) -> Result<(), AllocateError> {
        let cells = self.device(candidate).capacity_cells();
        let mut amounts = Vec::with_capacity(cells.len());
        for cell in cells {
            let name = self.allocator.inventory.values.capacities[*cell as usize].name;
            amounts.push((name, self.consumed(slot, *cell)?.unwrap_or(0)));
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
        Ok(())
    }

    /// Tells the pruning what was taken or given back.
    fn note(&mut self, undo: Undo, is_taken: bool) {
        if let Some(pruning) = &mut self.pruning {
            let by = if undo.is_shared {
                undo.slot
            } else if self.has_admin_access {
                self.slots[undo.slot as usize].claim
            } else {
                0
            };
            pruning.change(undo.candidate, (by, undo.is_shared), is_taken);
        }
    }

    /// The counters that a device takes of and how much: by place among its pool's counters.
    pub fn counter_places(&mut self, candidate: u32) -> Vec<(u32, Nanos)> {
        let device = self.device(candidate);
        if device.consumption_cells().is_empty() {
            return Vec::new();
        }
        let Allocator { inventory, held, bugs, .. } = self.allocator;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.places((inventory, held, &self.pools), pool, device, bugs)
    }

    /// What is left of counters of a candidate's pool, and whether any may be taken.
    pub fn counters_left(&mut self, candidate: u32, places: &[u32]) -> (bool, Vec<Nanos>) {
        if !self.device(candidate).has_consumptions() {
            return (false, Vec::new());
        }
        let Allocator { inventory, held, bugs, .. } = self.allocator;
        let pool = self.candidates[candidate as usize].pool;
        self.counters.left((inventory, held, &self.pools), pool, places, bugs)
    }

    fn undo(&mut self, undo: Undo) {
        let claim = self.slots[undo.slot as usize].claim as usize;
        self.results[claim].pop();
        self.note(undo, false);
        if undo.is_shared {
            // What was taken can be given back: the amounts are known by now.
            let _ = self.share(undo.slot as usize, undo.candidate, false);
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
            self.counters.give_back(self.allocator.inventory, pool, device);
        }
    }
}
