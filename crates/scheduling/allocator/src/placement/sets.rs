//! Walks the sets of devices of one combination of alternatives, least cost first: depth first, without
//! recursion.
//!
//! At each level the possible devices are ordered by the cost of the assignment with them. A tried
//! device is left out of all later sets on its level, so each set comes up once, whatever the order of its devices.
//! The same goes for interchangeable requests.

use hashbrown::HashMap;

use super::Pick;
use super::alike::are_alike;
use crate::error::AllocateError;
use crate::validity::{Assignment, Picked, Undo};

/// A device to be picked.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    slot: u32,
    /// Devices still needed by its request, this one included.
    left: usize,
    from: Source,
}

/// Candidates of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// All.
    All,
    /// Devices after the device of the previous level, of the same request.
    Rest,
    /// Devices from the device of the previous level on, whose request is like this one: the same device may be had twice.
    RestAndSame,
    /// This device: the request is for all devices.
    One(u32),
}

/// One level of the search.
struct Level<C> {
    /// Devices, with the cost of the assignment including each, least first.
    options: Vec<(C, u32)>,
    next: usize,
    taken: Option<Undo>,
}

/// The best assignment so far.
struct Best<C> {
    cost: C,
    /// In published order, for comparing.
    key: Vec<(u32, u32)>,
    /// In an order valid for taking.
    picked: Vec<Picked>,
}

/// The search.
pub(super) struct Sets<'a, 's, C, F> {
    assignment: Assignment<'a, 's>,
    cost: F,
    wanted: Vec<Wanted>,
    /// By slot: selected and tolerated devices, in published order.
    suitable: HashMap<u32, Vec<u32>>,
    levels: Vec<Level<C>>,
    picks: Vec<Pick<'a>>,
    best: Best<C>,
    steps: u64,
    step_limit: u64,
}

/// Result of the search.
pub(super) struct Found<'a, 's, C> {
    /// The best assignment, taken.
    pub assignment: Assignment<'a, 's>,
    pub cost: C,
    /// Whether all sets were tried.
    pub is_best: bool,
    pub steps: u64,
}

impl<'a, 's, C: Ord + Clone, F: FnMut(&[Pick<'a>]) -> C> Sets<'a, 's, C, F> {
    /// `assignment` is narrowed to one combination of alternatives, and empty; `first` can be taken.
    pub fn new(assignment: Assignment<'a, 's>, first: Vec<Picked>, mut cost: F) -> Self {
        let wanted = wanted(&assignment);
        let picks: Vec<Pick<'a>> = first.iter().map(|picked| assignment.pick(*picked)).collect();
        let best = Best { cost: cost(&picks), key: in_published_order(&wanted, &first), picked: first };
        Sets {
            assignment,
            cost,
            wanted,
            suitable: HashMap::new(),
            levels: Vec::new(),
            picks: Vec::new(),
            best,
            steps: 0,
            step_limit: 0,
        }
    }

    /// Looks for the assignment of least cost.
    pub fn run(mut self, step_limit: u64) -> Result<Found<'a, 's, C>, AllocateError> {
        self.step_limit = step_limit;
        let is_best = self.search()?;
        while let Some(level) = self.levels.pop() {
            if let Some(undo) = level.taken {
                self.assignment.undo(undo);
            }
        }
        for picked in &self.best.picked {
            if self.assignment.take(picked.slot, picked.candidate, false)?.is_none() {
                return Err(AllocateError::Fatal("an assignment cannot be taken again".to_owned()));
            }
        }
        let key = self.best.key.iter();
        self.assignment.picked =
            key.map(|(slot, candidate)| Picked { slot: *slot, candidate: *candidate }).collect();
        Ok(Found { assignment: self.assignment, cost: self.best.cost, is_best, steps: self.steps })
    }

    /// Whether all sets were tried before the steps were used up.
    fn search(&mut self) -> Result<bool, AllocateError> {
        if self.wanted.is_empty() {
            return Ok(true);
        }
        if !self.enter() {
            return Ok(false);
        }
        while let Some(level) = self.levels.last_mut() {
            if let Some(undo) = level.taken.take() {
                self.assignment.undo(undo);
                self.picks.pop();
            }
            let depth = self.levels.len();
            let wanted = self.wanted[depth - 1];
            let level = &mut self.levels[depth - 1];
            let is_last = depth == self.wanted.len();
            let rest = &level.options[level.next..];
            let is_worse = is_last && rest.first().is_some_and(|(cost, _)| *cost > self.best.cost);
            if rest.len() < wanted.left || is_worse {
                self.levels.pop();
                continue;
            }
            let candidate = rest[0].1;
            level.next += 1;
            let Some(undo) = self.assignment.take(wanted.slot, candidate, false)? else { continue };
            if is_last {
                self.compare(depth - 1);
                self.assignment.undo(undo);
                continue;
            }
            self.picks.push(self.assignment.pick(Picked { slot: wanted.slot, candidate }));
            self.levels[depth - 1].taken = Some(undo);
            if !self.enter() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins the next level; `false` if the steps are used up.
    fn enter(&mut self) -> bool {
        let wanted = self.wanted[self.levels.len()];
        let mut candidates = match wanted.from {
            Source::All => self.suitable(wanted.slot),
            Source::Rest => self.rest(0),
            Source::RestAndSame => self.rest(1),
            Source::One(candidate) => vec![candidate],
        };
        self.steps += candidates.len() as u64;
        if self.steps > self.step_limit {
            return false;
        }
        let slot = wanted.slot as usize;
        candidates.retain(|candidate| {
            self.assignment.is_possible(slot, *candidate) && !self.assignment.is_tainted(slot, *candidate)
        });
        let mut options = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            self.picks.push(self.assignment.pick(Picked { slot: wanted.slot, candidate }));
            options.push(((self.cost)(&self.picks), candidate));
            self.picks.pop();
        }
        options.sort();
        self.levels.push(Level { options, next: 0, taken: None });
        true
    }

    /// The devices selected and tolerated by the slot.
    fn suitable(&mut self, slot: u32) -> Vec<u32> {
        if let Some(known) = self.suitable.get(&slot) {
            return known.clone();
        }
        let mut suitable: Vec<u32> = (0..self.assignment.candidates.len() as u32).collect();
        self.steps += suitable.len() as u64;
        suitable.retain(|candidate| {
            matches!(self.assignment.is_selectable(slot as usize, *candidate), Ok(true))
                && !self.assignment.is_withheld(*candidate)
                && !self.assignment.is_tainted(slot as usize, *candidate)
        });
        self.suitable.insert(slot, suitable.clone());
        suitable
    }

    /// The last level's remaining devices, preceded by its last `tried` devices.
    fn rest(&self, tried: usize) -> Vec<u32> {
        let options = self.levels.last().map_or(&[][..], |level| &level.options[level.next - tried..]);
        options.iter().map(|(_, candidate)| *candidate).collect()
    }

    /// Keeps the current complete assignment if better than the best; its last device is of level `last`.
    fn compare(&mut self, last: usize) {
        let level = &self.levels[last];
        let cost = &level.options[level.next - 1].0;
        let key = in_published_order(&self.wanted, &self.assignment.picked);
        if (cost, &key) < (&self.best.cost, &self.best.key) {
            self.best = Best { cost: cost.clone(), key, picked: self.assignment.picked.clone() };
        }
    }
}

/// The devices to be picked, in the order of the requests.
fn wanted(assignment: &Assignment<'_, '_>) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for (slot, _) in assignment.slots_of.iter().flatten() {
        let of = &assignment.slots[*slot as usize];
        let count = usize::try_from(of.count).unwrap_or(0);
        let is_like_last = all.last().is_some_and(|last| are_alike(assignment, last.slot, *slot));
        for place in 0..count {
            let from = match of.all.get(place) {
                Some(candidate) if of.is_all => Source::One(*candidate),
                _ if place > 0 => Source::Rest,
                _ if is_like_last => Source::RestAndSame,
                _ => Source::All,
            };
            let left = if of.is_all { 1 } else { count - place };
            all.push(Wanted { slot: *slot, left, from });
        }
    }
    all
}

/// Slots and candidates. Those of one request, and of interchangeable requests, are in published order.
fn in_published_order(wanted: &[Wanted], picked: &[Picked]) -> Vec<(u32, u32)> {
    let mut ordered = Vec::with_capacity(picked.len());
    let mut start = 0;
    for place in 0..picked.len() {
        let is_run_over =
            wanted.get(place + 1).is_none_or(|next| matches!(next.from, Source::All | Source::One(_)));
        if is_run_over {
            let mut candidates: Vec<u32> =
                picked[start..=place].iter().map(|picked| picked.candidate).collect();
            candidates.sort_unstable();
            ordered.extend(wanted[start..=place].iter().map(|wanted| wanted.slot).zip(candidates));
            start = place + 1;
        }
    }
    ordered
}
