//! Rules out a solution by counting, which is much faster than searching.
//!
//! A bound counts at least the available devices (each device alone, before anything is taken) and at most the
//! requested ones (of alternatives the smallest), so a failed bound proves the absence of a solution. Bounds must not be used
//! where upstream would find an error on the way to "no solution": see [`Assignment::may_leave_out`].

use hashbrown::HashMap;

use crate::amount::Nanos;
use crate::validity::{Assignment, NO, Slot};

/// Beyond this many candidates, counters are not summed up.
const MOST_CANDIDATES: usize = 1 << 16;

/// Largest number of cached sums.
const MOST_SUMS: usize = 8;

/// Weight of each kind of counter in the sum over all kinds.
const WEIGHT: i128 = 1_000_000_000_000;

/// A sum of counters: remaining amount, consumption by devices, and demand of requests.
#[derive(Debug)]
struct CounterSum {
    /// Upper bound of the remaining amount.
    left: i128,
    /// By candidate: lower bound of its consumption.
    taken: Vec<i128>,
    /// By slot: lower bound of the consumption of each of its devices.
    least: Vec<i128>,
    /// By slot: lower bound of the consumption of all later requests.
    after: Vec<i128>,
}

/// Sums of counters, kept up to date while the search takes and gives back.
#[derive(Debug, Default)]
pub(super) struct CounterSums(Vec<CounterSum>);

impl CounterSums {
    /// Updates the sums after a device's counters were taken or given back.
    pub fn change(&mut self, candidate: u32, is_taken: bool) {
        for sum in &mut self.0 {
            let taken = sum.taken[candidate as usize];
            sum.left += if is_taken { -taken } else { taken };
        }
    }

    /// Whether a slot still needing this many devices, and all requests after the slot, need more than the remainder.
    pub fn rule_out(&self, slot: u32, needed: i64) -> bool {
        let slot = slot as usize;
        self.0.iter().any(|sum| {
            sum.least[slot].saturating_mul(needed.into()).saturating_add(sum.after[slot]) > sum.left
        })
    }
}

/// By slot: the candidates available to the slot before anything is taken.
type Possible = Vec<Vec<u32>>;

impl Slot<'_> {
    /// The number of this slot's devices in every solution, if known.
    fn certain_count(&self) -> Option<i64> {
        (!self.is_alternative && !self.is_all).then_some(self.count)
    }
}

impl<'a> Assignment<'a, '_> {
    /// Whether a constraint covers enough devices for counting before searching to pay.
    pub(super) fn is_much_constrained(&self) -> bool {
        const MUCH: i64 = 4;
        self.constraints.iter().enumerate().any(|(claim, constraints)| {
            (0..constraints.len()).any(|constraint| {
                let counts = self.constrained(claim, constraint).filter_map(|slot| slot.certain_count());
                counts.fold(0, i64::saturating_add) >= MUCH
            })
        })
    }

    fn constrained(&self, claim: usize, constraint: usize) -> impl Iterator<Item = &Slot<'a>> {
        let state = &self.constraints[claim][constraint];
        self.slots.iter().filter(move |slot| {
            slot.claim as usize == claim && state.is_about(slot.request as usize, slot.alternative as usize)
        })
    }

    /// The sums of counters to continue with; `None` if there is no solution. Only for a search without taken devices.
    pub(super) fn count_up(&mut self) -> Option<CounterSums> {
        // The selectors have been evaluated by now, and often they suffice.
        let selected = self.selected();
        if self.lacks_any_values(&selected) {
            return None;
        }
        let possible = self.possible();
        for slots in self.slots_of.iter().flatten() {
            let mut alternatives = slots.0..slots.0 + slots.1;
            if alternatives.all(|slot| self.lacks_devices(slot as usize, &possible)) {
                return None;
            }
        }
        if self.lacks_any_values(&possible) {
            return None;
        }
        let sums = self.counter_sums(&possible);
        let first = self.slots_of.iter().flatten().next();
        let whole = first.is_some_and(|(first, count)| {
            (*first..first + count).all(|slot| sums.rule_out(slot, self.slots[slot as usize].count.max(0)))
        });
        (!whole).then_some(sums)
    }

    /// The candidates selected by selectors, in use or not; all candidates for a slot with unknown answers.
    fn selected(&self) -> Possible {
        let all = |slot: &Slot<'_>| {
            (0..self.candidates.len() as u32)
                .filter(|candidate| slot.matches.get(*candidate as usize) != Some(&NO))
                .collect()
        };
        self.slots.iter().map(all).collect()
    }

    fn lacks_any_values(&mut self, possible: &Possible) -> bool {
        (0..self.constraints.len()).any(|claim| {
            (0..self.constraints[claim].len())
                .any(|constraint| self.lacks_values(claim, constraint, possible))
        })
    }

    fn possible(&mut self) -> Possible {
        (0..self.slots.len())
            .map(|slot| {
                if self.slots[slot].is_all {
                    return self.slots[slot].all.clone();
                }
                (0..self.candidates.len() as u32)
                    .filter(|candidate| {
                        self.is_possible(slot, *candidate) && !self.is_tainted(slot, *candidate)
                    })
                    .collect()
            })
            .collect()
    }

    fn lacks_devices(&self, slot: usize, possible: &Possible) -> bool {
        let of = &self.slots[slot];
        let found = possible[slot].len() as i64;
        !of.is_all
            && found < of.count
            && (found == 0 || !possible[slot].iter().any(|one| self.is_shareable(*one)))
    }

    /// Whether the devices of a constraint cannot all have one value, or cannot all have different ones.
    fn lacks_values(&mut self, claim: usize, constraint: usize, possible: &Possible) -> bool {
        let mut found: Vec<(u32, u32, u32)> = Vec::with_capacity(self.candidates.len());
        let mut counts: Vec<(usize, i64)> = Vec::new();
        for (slot, candidates) in possible.iter().enumerate() {
            let of = &self.slots[slot];
            let is_about = of.claim as usize == claim
                && self.constraints[claim][constraint].is_about(of.request as usize, of.alternative as usize);
            let Some(count) = of.certain_count().filter(|count| is_about && *count > 0) else { continue };
            for candidate in candidates {
                let device = self.device(*candidate);
                let value = self.constraints[claim][constraint].value_of(device);
                found.extend(value.map(|value| (value, *candidate, counts.len() as u32)));
            }
            counts.push((slot, count));
        }
        if counts.is_empty() {
            return false;
        }
        let needed = counts.iter().fold(0i64, |sum, (_, count)| sum.saturating_add(*count));
        found.sort_unstable();
        if !self.constraints[claim][constraint].is_match() {
            return needed > found.chunk_by(|one, two| one.0 == two.0).count() as i64;
        }
        !found.chunk_by(|one, two| one.0 == two.0).any(|alike| {
            if alike.iter().any(|(_, candidate, _)| self.is_shareable(*candidate)) {
                return (0..counts.len()).all(|place| alike.iter().any(|found| found.2 as usize == place));
            }
            let devices = alike.chunk_by(|one, two| one.1 == two.1).count() as i64;
            let of = |place: usize| alike.iter().filter(|found| found.2 as usize == place).count() as i64;
            devices >= needed
                && (counts.len() == 1
                    || counts.iter().enumerate().all(|(place, (_, count))| of(place) >= *count))
        })
    }

    /// Sums of the counters of one kind, and one sum over all kinds in which each kind has the same weight. Counters
    /// are of one kind if their names differ only in digits at the end.
    fn counter_sums(&mut self, possible: &Possible) -> CounterSums {
        let mut used: Vec<u32> = possible.iter().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        used.retain(|candidate| !self.device(*candidate).consumption_cells().is_empty());
        if used.is_empty() || self.candidates.len() > MOST_CANDIDATES {
            return CounterSums::default();
        }
        let (kinds, counters, taken) = self.counters_of(&used);
        let mut sums = Vec::new();
        let alone = (0..kinds).map(Some).take(MOST_SUMS - 1);
        for kind in alone.chain((kinds > 1).then_some(None)) {
            sums.extend(self.counter_sum(kind, &counters, &taken, possible));
        }
        CounterSums(sums)
    }

    /// The number of kinds, the counters (kind, remaining amount), and their consumption by candidates in use.
    #[expect(clippy::type_complexity, reason = "three lists that are used in one place")]
    fn counters_of(&mut self, used: &[u32]) -> (usize, Vec<(usize, Nanos)>, Vec<(u32, Vec<(usize, Nanos)>)>) {
        let inventory = self.basis.inventory;
        let mut kinds: HashMap<&str, usize> = HashMap::new();
        let mut kind_of_name = HashMap::new();
        let mut index_of: HashMap<(u32, u32), usize> = HashMap::new();
        let mut counters: Vec<(usize, Nanos)> = Vec::new();
        let mut taken = Vec::with_capacity(used.len());
        for candidate in used {
            let pool = self.candidates[*candidate as usize].pool;
            let cells = self.device(*candidate).consumption_cells();
            let mut of = Vec::with_capacity(cells.len());
            for cell in cells {
                let consumption = inventory.values.consumptions.items[*cell as usize];
                let Some((place, left)) = self.counter_left(pool, *cell) else { continue };
                let index = *index_of.entry((pool, place)).or_insert_with(|| {
                    let next = kinds.len();
                    let kind = *kind_of_name.entry(consumption.counter).or_insert_with(|| {
                        let name = inventory.text(consumption.counter);
                        *kinds.entry(name.trim_end_matches(|c: char| c.is_ascii_digit())).or_insert(next)
                    });
                    counters.push((kind, left.max(0)));
                    counters.len() - 1
                });
                of.push((index, consumption.amount));
            }
            // A further share of a shared device takes no counters.
            if self.is_shareable(*candidate) {
                of.clear();
            }
            taken.push((*candidate, of));
        }
        (kinds.len(), counters, taken)
    }

    /// The sum over one kind of counters, or over all; `None` on overflow.
    fn counter_sum(
        &self,
        kind: Option<usize>,
        counters: &[(usize, Nanos)],
        taken: &[(u32, Vec<(usize, Nanos)>)],
        possible: &Possible,
    ) -> Option<CounterSum> {
        let kinds = counters.iter().map(|(kind, _)| kind + 1).max().unwrap_or(0);
        let mut most = vec![1i128; kinds];
        for (kind, left) in counters {
            most[*kind] = most[*kind].max(*left);
        }
        // Remaining amounts are rounded up, consumption is rounded down.
        let weigh = |of: usize, amount: Nanos, is_left: bool| match kind {
            Some(kind) => Some(if kind == of { amount } else { 0 }),
            None => {
                let scaled = amount.checked_mul(WEIGHT)?;
                Some(scaled / most[of] + i128::from(is_left && scaled % most[of] != 0))
            }
        };
        let mut left = 0i128;
        for (of, amount) in counters {
            left = left.checked_add(weigh(*of, *amount, true)?)?;
        }
        let mut of_candidate = vec![0i128; self.candidates.len()];
        for (candidate, all) in taken {
            for (counter, amount) in all {
                let weight = weigh(counters[*counter].0, *amount, false)?;
                let sum = &mut of_candidate[*candidate as usize];
                *sum = sum.checked_add(weight)?;
            }
        }
        let least: Vec<i128> = (0..self.slots.len())
            .map(|slot| {
                let all = possible[slot].iter().map(|candidate| of_candidate[*candidate as usize]);
                if self.slots[slot].is_all { 0 } else { all.min().unwrap_or(0) }
            })
            .collect();
        let mut after = vec![0i128; self.slots.len()];
        let mut sum = 0i128;
        for (first, count) in self.slots_of.iter().flatten().rev() {
            let slots = *first as usize..(first + count) as usize;
            after[slots.clone()].fill(sum);
            let needed =
                slots.map(|slot| least[slot].saturating_mul(self.slots[slot].count.max(0).into())).min();
            sum = sum.saturating_add(needed.unwrap_or(0));
        }
        Some(CounterSum { left, taken: of_candidate, least, after })
    }
}
