//! The search: depth first, in upstream's order, without recursion.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::constraints::ConstraintState;
use super::counters::Counters;
use super::plan::{MOST_RESULTS, Slot, SlotsOfClaims};
use super::pools::Pool;
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
pub(super) struct Undo {
    pub slot: u32,
    pub candidate: u32,
    pub has_counters: bool,
    pub is_marked: bool,
    pub is_shared: bool,
}

/// A choice that the search may come back to.
#[derive(Debug)]
enum Frame {
    /// A claim is complete.
    ClaimDone,
    /// The alternatives of a request.
    List { claim: u32, request: u32, alternative: u32, all_exceeded: bool },
    /// One device of a request.
    One(One),
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
    Next(One),
    Return(Outcome),
    Found,
}

/// What of a shared device's capacity the search has taken.
#[derive(Debug, Default)]
pub(crate) struct SharedUse {
    pub shares: u32,
    pub taken: Vec<(Name, Nanos)>,
}

pub(super) const UNKNOWN: u8 = 0;
pub(super) const NO: u8 = 1;
pub(super) const YES: u8 = 2;

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
    pub constraints: Vec<Vec<ConstraintState>>,
    pub(super) counters: Counters,
    /// By candidate: how often it is in use by this search.
    pub(super) in_flight: Vec<u32>,
    pub(super) shared: HashMap<u32, SharedUse>,
    /// What is picked, claim by claim.
    pub picked: Vec<Picked>,
    /// By claim: how many devices are picked for it.
    pub counts: SmallVec<[u32; 4]>,
    /// Alternatives of a solution other than the first: claim, request, alternative.
    pub chosen: Vec<(u32, u32, u32)>,
    stack: Vec<Frame>,
    pub(super) effort: u64,
    pub(super) pruning: Option<Pruning>,
    has_begun_again: bool,
    pub(super) has_admin_access: bool,
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
        Search {
            allocator,
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

    /// What is picked for a claim.
    pub fn picked_for(&self, claim: usize) -> &[Picked] {
        let start: u32 = self.counts[..claim].iter().sum();
        &self.picked[start as usize..(start + self.counts[claim]) as usize]
    }

    /// The slot of a request in the solution: of several alternatives the chosen one.
    pub fn chosen_slot(&self, claim: usize, request: usize) -> &Slot<'a> {
        let (first, _) = self.slots_of[claim][request];
        let of = |(at, of, _): &&(u32, u32, u32)| (*at as usize, *of as usize) == (claim, request);
        let alternative = self.chosen.iter().find(of).map_or(0, |(.., alternative)| *alternative);
        &self.slots[(first + alternative) as usize]
    }

    /// Whether there is a solution; it is then in `picked`.
    pub fn run(&mut self) -> Result<bool, AllocateError> {
        self.has_admin_access = self.slots.iter().any(|slot| slot.admin_access);
        let mut step = Step::Request { claim: 0, request: 0 };
        if self.allocator.patience < u64::MAX
            && self.is_much_constrained()
            && self.may_leave_out()
            && self.count_up().is_none()
        {
            return Ok(false);
        }
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
                            self.chosen.push((*claim, *request, *alternative));
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
        if self.may_leave_out() {
            let Some(sums) = self.count_up() else { return Step::Return(Outcome::NotFound) };
            self.pruning = Some(self.begin_pruning(sums));
        }
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
        let results = i64::from(self.counts[slot.claim as usize]);
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
        let Some(pruning) = &self.pruning else { return false };
        if pruning.sums.rule_out(slot, self.slots[slot as usize].count - device) {
            return true;
        }
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
                self.stack.push(Frame::One(One { slot, device, start, taken, alike, failed }));
                return Ok(Step::Device { slot, device: device + 1, start: candidate + 1 });
            }
        }
        Ok(Step::Return(Outcome::NotFound))
    }
}
