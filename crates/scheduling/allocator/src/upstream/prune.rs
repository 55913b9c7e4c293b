//! Skips parts of the search without a solution; used once a search turns out to be long.
//!
//! Only parts without a solution are skipped, so the first solution stays the first. Where upstream would find an error
//! in such a part, or would keep state from trying its devices, nothing is skipped (see [`Assignment::may_leave_out`]).
//!
//! - **Too few**: a request or a later one has fewer remaining candidates, each looked at alone, than
//!   needed; or fewer values remain than a distinctAttribute constraint needs.
//! - **Too little**: the remaining requests need more counters than remain, see [`super::bounds`].
//! - **Alike**: devices indistinguishable to every request and constraint, with the same consumption of counters which
//!   are themselves alike (two cards with the same partitions in use), fail alike.
//! - **Seen**: a request was begun before in the same state, up to devices alike, and failed.

use std::hash::Hash;

use hashbrown::{HashMap, HashSet};

use super::bounds::CounterSums;
use crate::amount::Nanos;
use crate::mix::mix;
use crate::validity::{Assignment, Pool};

/// Largest number of stored failed states; beyond, the search goes on without storing more.
const MOST_STATES: usize = 1 << 20;

/// Largest number of pairs of a request and a device. Beyond, checking all of them before the search would cost more
/// time and memory than most searches take.
const MOST_PAIRS: usize = 1 << 18;

/// Classes of devices alike, and failed states.
#[derive(Debug, Default)]
pub(super) struct Pruning {
    /// By candidate: its component.
    component: Vec<u32>,
    /// By candidate: its kind; candidates of one kind in one component differ only in their names.
    kind: Vec<u32>,
    /// By candidate: its index in the component.
    local: Vec<u32>,
    components: Vec<Component>,
    /// Sum of the hashes of all components' current states.
    total: u128,
    /// States in which a request was begun and failed.
    failed: HashSet<u128>,
    /// Sums of remaining counters.
    pub sums: CounterSums,
}

/// Candidates with shared counters; most often the partitions of one card.
#[derive(Debug, Default, Clone)]
struct Component {
    /// Equal for components whose candidates are alike, one by one.
    signature: u32,
    /// First of its candidates.
    first: u32,
    /// Hash of the parts in use.
    state: u128,
}

impl Component {
    fn look(&self) -> u128 {
        mix((self.signature, self.state))
    }
}

/// Numbers distinct values, in the order in which they are first seen.
struct Numbers<T>(HashMap<T, u32>);

impl<T: Eq + Hash> Numbers<T> {
    fn of(&mut self, thing: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(thing).or_insert(next)
    }
}

impl Pruning {
    /// Marks a device as taken or given back.
    pub fn change(&mut self, candidate: u32, what: (u32, bool), is_taken: bool) {
        let local = self.local[candidate as usize];
        let component = &mut self.components[self.component[candidate as usize] as usize];
        self.total = self.total.wrapping_sub(component.look());
        let mark = mix((local, what));
        component.state =
            if is_taken { component.state.wrapping_add(mark) } else { component.state.wrapping_sub(mark) };
        self.total = self.total.wrapping_add(component.look());
    }

    /// Hash of a candidate and all candidates like it, for a request whose search began at `start`.
    pub fn alike(&self, candidate: u32, device: i64, start: u32) -> u128 {
        let index = self.component[candidate as usize];
        let component = &self.components[index as usize];
        let kind = self.kind[candidate as usize];
        // Components can only be exchanged as a whole, so all of both must still be ahead.
        if device == 0 || component.first >= start {
            mix((component.signature, component.state, kind))
        } else {
            mix((index, kind, "same component"))
        }
    }

    /// Whether the request was begun in this state before, and failed.
    pub fn has_failed(&self, state: u128) -> bool {
        self.failed.contains(&state)
    }

    /// Stores the failed state, in which the request was begun.
    pub fn remember(&mut self, state: u128) {
        if self.failed.len() < MOST_STATES {
            self.failed.insert(state);
        }
    }
}

impl Assignment<'_, '_> {
    /// Whether parts of the search may be skipped. Not where skipping could change the answer: a selector or capacity
    /// policy fails on some device, a request for all could end in an error, a distinctAttribute constraint drops values
    /// depending on earlier tries, or two drivers' pools share their counters; nor where there are too many pairs to
    /// check.
    pub(super) fn may_leave_out(&mut self) -> bool {
        let has_many = self.slots.len().saturating_mul(self.candidates.len()) > MOST_PAIRS;
        // The limit on picks may distinguish devices alike here.
        if has_many || self.is_limited() {
            return false;
        }
        let mut names = HashSet::new();
        let is_twice = |pool: &Pool| !names.insert(self.basis.inventory.pools[pool.pool as usize].name);
        if self.basis.bugs.counters_ignore_driver && self.pools.len() > 1 && self.pools.iter().any(is_twice) {
            return false;
        }
        for slot in 0..self.slots.len() {
            let (claim, request, alternative) = self.slots[slot].place();
            let of = &self.slots[slot];
            let (is_all, count) = (of.is_all, of.count);
            for constraint in &self.constraints[claim] {
                let is_about = constraint.is_about(request, alternative);
                if is_about && (is_all || (count > 1 && constraint.can_forget())) {
                    return false;
                }
            }
            for candidate in 0..self.candidates.len() as u32 {
                if self.is_selectable(slot, candidate).is_err() {
                    return false;
                }
                for cell in self.device(candidate).capacity_cells() {
                    match self.consumed(slot, *cell) {
                        Err(_) => return false,
                        Ok(amount) if amount.is_some_and(|amount| amount < 0) => return false,
                        Ok(_) => {}
                    }
                }
            }
        }
        (0..self.candidates.len() as u32)
            .all(|candidate| self.device(candidate).consumptions().all(|taken| taken.amount >= 0))
    }

    /// Finds out which devices are alike. Only for a search without taken devices.
    pub(super) fn begin_pruning(&mut self, sums: CounterSums) -> Pruning {
        let (component, local, firsts) = self.components();
        let mut pruning = Pruning {
            component,
            local,
            components: firsts.into_iter().map(|first| Component { first, ..Component::default() }).collect(),
            sums,
            ..Pruning::default()
        };
        let mut kinds = Numbers(HashMap::new());
        let mut signatures = Numbers(HashMap::new());
        // By component: the kinds of its candidates, and its counters in the order in which these name them.
        let mut seen: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); pruning.components.len()];
        for candidate in 0..self.candidates.len() as u32 {
            let (members, counters) = &mut seen[pruning.component[candidate as usize] as usize];
            let places = self.counter_places(candidate);
            let taken: Vec<(usize, Nanos)> = places
                .iter()
                .map(|(place, amount)| {
                    let known = counters.iter().position(|other| other == place);
                    let index = known.unwrap_or_else(|| {
                        counters.push(*place);
                        counters.len() - 1
                    });
                    (index, *amount)
                })
                .collect();
            let local = pruning.local[candidate as usize];
            let kind = kinds.of((self.traits(candidate, local), taken));
            pruning.kind.push(kind);
            members.push(kind);
        }
        for (index, (members, counters)) in seen.into_iter().enumerate() {
            let first = pruning.components[index].first;
            let left = self.counters_left(first, &counters);
            pruning.components[index].signature = signatures.of((members, left));
            pruning.total = pruning.total.wrapping_add(pruning.components[index].look());
        }
        pruning
    }

    /// Groups candidates with shared counters: for each candidate its group and index in the group, for each group its first
    /// candidate.
    fn components(&mut self) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let mut parent: Vec<u32> = (0..self.candidates.len() as u32).collect();
        fn root(parent: &mut [u32], mut of: u32) -> u32 {
            while parent[of as usize] != of {
                parent[of as usize] = parent[parent[of as usize] as usize];
                of = parent[of as usize];
            }
            of
        }
        let mut first_with: HashMap<(u32, u32), u32> = HashMap::new();
        for candidate in 0..self.candidates.len() as u32 {
            let pool = self.candidates[candidate as usize].pool;
            for (place, _) in self.counter_places(candidate) {
                let other = *first_with.entry((pool, place)).or_insert(candidate);
                let (one, two) = (root(&mut parent, candidate), root(&mut parent, other));
                parent[one.max(two) as usize] = one.min(two);
            }
        }
        let (mut component, mut local, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        let mut sizes: Vec<u32> = Vec::new();
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        for candidate in 0..parent.len() as u32 {
            let root = root(&mut parent, candidate);
            let number = *numbers.entry(root).or_insert_with(|| {
                firsts.push(candidate);
                sizes.push(0);
                firsts.len() as u32 - 1
            });
            component.push(number);
            local.push(sizes[number as usize]);
            sizes[number as usize] += 1;
        }
        (component, local, firsts)
    }

    /// All traits of a candidate visible to requests and constraints, except its counters.
    fn traits(&mut self, candidate: u32, local: u32) -> Vec<u64> {
        let device = self.device(candidate);
        // A device with room for two allocations differs from others like it after the first.
        let can_be_had_twice =
            self.is_shareable(candidate) || self.slots.iter().any(|slot| slot.admin_access);
        let held = self.basis.held.get(device.index);
        let mut traits = vec![
            u64::from(self.is_shareable(candidate)),
            if can_be_had_twice { u64::from(local) + 1 } else { 0 },
            u64::from(device.has_consumptions()) | u64::from(self.is_withheld(candidate)) << 1,
            // Consumed capacities of two devices never count as equal.
            held.map_or(0, |held| if held.shares > 0 { u64::from(candidate) + 2 } else { 1 }),
        ];
        for slot in 0..self.slots.len() {
            let is_match = matches!(self.is_selectable(slot, candidate), Ok(true));
            let is_tainted = self.is_tainted(slot, candidate);
            traits.push(u64::from(is_match) | u64::from(is_tainted) << 1);
        }
        traits.extend(device.capacity_cells().iter().map(|cell| u64::from(*cell)));
        for claim in &mut self.constraints {
            for constraint in claim {
                traits.push(constraint.value_of(device).map_or(u64::MAX, u64::from));
            }
        }
        traits
    }

    /// The state in which a request begins, up to devices alike.
    pub(super) fn state_at(&self, pruning: &Pruning, slot: u32) -> u128 {
        let of_constraints: Vec<_> =
            self.constraints.iter().flatten().map(|constraint| constraint.state()).collect();
        let claim = self.slots[slot as usize].claim as usize;
        mix((slot, pruning.total, of_constraints, self.counts[claim]))
    }

    /// Whether a request, or a later one, can no longer be satisfied.
    pub(super) fn has_too_few(&mut self, slot: u32, device: i64, start: u32) -> bool {
        let needed = self.slots[slot as usize].count - device;
        if !self.has_candidates(slot as usize, needed, start) {
            return true;
        }
        if device > 0 {
            return false;
        }
        let (claim, request) = (self.slots[slot as usize].claim, self.slots[slot as usize].request);
        for later in slot as usize + 1..self.slots.len() {
            let of = &self.slots[later];
            let is_certain = !of.is_alternative && !of.is_all && (of.claim, of.request) > (claim, request);
            let count = of.count;
            if is_certain && !self.has_candidates(later, count, 0) {
                return true;
            }
        }
        self.has_too_few_values(slot as usize)
    }

    /// Whether the slot could take at least this many candidates, each alone.
    fn has_candidates(&mut self, slot: usize, needed: i64, start: u32) -> bool {
        let mut found = 0;
        let mut candidate = start;
        while found < needed {
            if candidate as usize >= self.candidates.len() {
                return false;
            }
            found += i64::from(self.is_possible(slot, candidate));
            candidate += 1;
        }
        true
    }

    /// Whether a distinctAttribute constraint needs more values than exist.
    fn has_too_few_values(&mut self, from: usize) -> bool {
        let claim = self.slots[from].claim as usize;
        for constraint in 0..self.constraints[claim].len() {
            if self.constraints[claim][constraint].is_match() {
                continue;
            }
            let mut needed = 0;
            let mut values = HashSet::new();
            for slot in from..self.slots.len() {
                let (of_claim, request, alternative) = self.slots[slot].place();
                let of = &self.slots[slot];
                let is_certain = slot == from || !of.is_alternative;
                if of_claim != claim
                    || !is_certain
                    || !self.constraints[claim][constraint].is_about(request, alternative)
                {
                    continue;
                }
                needed += of.count;
                for candidate in 0..self.candidates.len() as u32 {
                    if self.is_possible(slot, candidate) {
                        let device = self.device(candidate);
                        values.extend(self.constraints[claim][constraint].value_of(device));
                    }
                }
            }
            if needed > values.len() as i64 {
                return true;
            }
        }
        false
    }
}
