//! The search: depth first, in upstream's order, without recursion.

use super::prune::Pruning;
use crate::error::AllocateError;
use crate::validity::{Assignment, MOST_RESULTS, Undo};

/// Limits of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// See [`super::Allocator::effort_limit`].
    pub effort: u64,
    /// See [`super::Allocator::patience`].
    pub patience: u64,
}

/// A choice to which the search may return.
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
    /// A request was begun in this state, see [`Pruning`].
    Begun(u128),
}

/// The search for one device of a request.
#[derive(Debug)]
struct One {
    slot: u32,
    device: i64,
    /// Position of the first candidate.
    start: u32,
    taken: Undo,
    /// Hash of the taken device and of devices like it.
    alike: u128,
    /// Hashes of failed devices.
    failed: Vec<u128>,
}

/// Outcome of a part of the search.
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
    /// Continue the search for one device after the failed candidate.
    Next(One),
    Return(Outcome),
    Found,
}

/// The search for the first complete assignment.
pub(crate) struct Search<'a, 's> {
    pub assignment: Assignment<'a, 's>,
    limits: Limits,
    stack: Vec<Frame>,
    effort: u64,
    pruning: Option<Pruning>,
    has_begun_again: bool,
    has_admin_access: bool,
}

impl<'a, 's> Search<'a, 's> {
    /// `assignment` is prepared, and has no device yet.
    pub fn new(assignment: Assignment<'a, 's>, limits: Limits) -> Self {
        Search {
            has_admin_access: assignment.slots.iter().any(|slot| slot.admin_access),
            assignment,
            limits,
            stack: Vec::new(),
            effort: 0,
            pruning: None,
            has_begun_again: false,
        }
    }

    /// Whether a solution exists; the assignment then has its devices.
    pub fn run(&mut self) -> Result<bool, AllocateError> {
        let mut step = Step::Request { claim: 0, request: 0 };
        if self.limits.patience < u64::MAX
            && self.assignment.is_much_constrained()
            && self.assignment.may_leave_out()
            && self.assignment.count_up().is_none()
        {
            return Ok(false);
        }
        loop {
            if self.effort > self.limits.patience && !self.has_begun_again {
                step = self.begin_again();
            }
            if self.effort > self.limits.effort {
                return Err(AllocateError::TooLong(self.effort));
            }
            step = match step {
                Step::Found => {
                    for frame in &self.stack {
                        if let Frame::List { claim, request, alternative, .. } = frame {
                            self.assignment.chosen.push((*claim, *request, *alternative));
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

    fn take(&mut self, slot: u32, candidate: u32, must: bool) -> Result<Option<Undo>, AllocateError> {
        self.effort += 1;
        let taken = self.assignment.take(slot, candidate, must)?;
        if let Some(undo) = taken {
            self.note(undo, true);
        }
        Ok(taken)
    }

    fn undo(&mut self, undo: Undo) {
        self.assignment.undo(undo);
        self.note(undo, false);
    }

    /// Updates the pruning after devices were taken or given back.
    fn note(&mut self, undo: Undo, is_taken: bool) {
        let Some(pruning) = &mut self.pruning else { return };
        let by = if undo.is_shared {
            undo.slot
        } else if self.has_admin_access {
            self.assignment.slots[undo.slot as usize].claim
        } else {
            0
        };
        pruning.change(undo.candidate, (by, undo.is_shared), is_taken);
        if undo.has_counters {
            pruning.sums.change(undo.candidate, is_taken);
        }
    }

    /// Undoes everything.
    fn unwind(&mut self) {
        while let Some(frame) = self.stack.pop() {
            match frame {
                Frame::One(one) => self.undo(one.taken),
                Frame::OfAll(undo) => self.undo(undo),
                Frame::ClaimDone | Frame::List { .. } | Frame::Begun(_) => {}
            }
        }
        self.assignment.chosen.clear();
    }

    /// The assignment, empty again, and the number of devices tried.
    pub fn release(mut self) -> (Assignment<'a, 's>, u64) {
        self.unwind();
        (self.assignment, self.effort)
    }

    /// Undoes everything and starts again, where possible without the parts known to fail.
    fn begin_again(&mut self) -> Step {
        self.unwind();
        self.has_begun_again = true;
        if self.assignment.may_leave_out() {
            let Some(sums) = self.assignment.count_up() else { return Step::Return(Outcome::NotFound) };
            self.pruning = Some(self.assignment.begin_pruning(sums));
        }
        Step::Request { claim: 0, request: 0 }
    }

    fn enter_request(&mut self, claim: u32, request: u32) -> Step {
        let Some(slots) = self.assignment.slots_of.get(claim as usize) else { return Step::Found };
        let Some((slot, _)) = slots.get(request as usize).copied() else {
            self.stack.push(Frame::ClaimDone);
            return Step::Request { claim: claim + 1, request: 0 };
        };
        if self.assignment.slots[slot as usize].is_alternative {
            self.stack.push(Frame::List { claim, request, alternative: 0, all_exceeded: true });
        }
        Step::Device { slot, device: 0, start: 0 }
    }

    fn enter_device(&mut self, slot_index: u32, device: i64, start: u32) -> Result<Step, AllocateError> {
        let slot = &self.assignment.slots[slot_index as usize];
        if slot.is_all && slot.all.is_empty() {
            return Ok(Step::Return(Outcome::NotFound));
        }
        if device >= slot.count {
            return Ok(Step::Request { claim: slot.claim, request: slot.request + 1 });
        }
        let results = i64::from(self.assignment.counts[slot.claim as usize]);
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

    /// Whether a request, or the rest of one, can be skipped.
    fn leaves_out(&mut self, slot: u32, device: i64, start: u32) -> bool {
        let Some(pruning) = &self.pruning else { return false };
        if pruning.sums.rule_out(slot, self.assignment.slots[slot as usize].count - device) {
            return true;
        }
        if !self.assignment.slots[slot as usize].is_all && self.assignment.has_too_few(slot, device, start) {
            return true;
        }
        if device > 0 {
            return false;
        }
        let Some(pruning) = &self.pruning else { return false };
        let state = self.assignment.state_at(pruning, slot);
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
                let (first, count) = self.assignment.slots_of[claim as usize][request as usize];
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

    /// Takes the next possible device for the request, at or after `next`.
    fn next_device(
        &mut self,
        (slot, device, start): (u32, i64, u32),
        next: u32,
        failed: Vec<u128>,
    ) -> Result<Step, AllocateError> {
        for candidate in next..self.assignment.candidates.len() as u32 {
            let is_ruled_out = self.assignment.is_ruled_out(slot as usize, candidate);
            if is_ruled_out || !self.assignment.is_available(slot as usize, candidate)? {
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
