//! Limits of an evaluation: cost, allocations, comparisons.

use std::cell::RefMut;

use super::Machine;
use crate::evaluate::compared::Compared;
use crate::evaluate::value::Value;

/// Total bytes allocated by one evaluation. Upstream has no such limit; real selectors stay far below.
pub(super) const MEMORY_BUDGET: usize = 128 << 20;

/// Total values compared or iterated over by one evaluation. Upstream has no such limit: it charges a tenth of a
/// list's length for its comparison, and nothing for lists inside or for texts shorter than ten bytes in a searched
/// list. So the cost limit ends an evaluation comparing ten million elements of lists themselves; only their
/// contents can reach this limit.
pub(super) const COMPARISON_BUDGET: u32 = 20_000_000;

/// Why an evaluation ended without a value.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The cost limit.
    Cost,
    /// The budget of memory, or of comparisons.
    Memory,
    /// Where upstream panics.
    Internal(Box<str>),
}

impl<'v> Machine<'v> {
    /// Counts a cost without checking the limit: the caller ends the evaluation.
    pub(crate) fn exceed(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }

    /// Counts an allocation.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), Stop> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MEMORY_BUDGET { Err(Stop::Memory) } else { Ok(()) }
    }

    /// Counts a compared or iterated value.
    pub(crate) fn count_comparison(&self) -> Result<(), Stop> {
        let made = self.comparisons.get() + 1;
        self.comparisons.set(made);
        if made > COMPARISON_BUDGET { Err(Stop::Memory) } else { Ok(()) }
    }

    /// Number of values compared or iterated over so far.
    pub(crate) fn comparisons(&self) -> u32 {
        self.comparisons.get()
    }

    /// Pairs of lists compared so far.
    pub(crate) fn compared(&self) -> RefMut<'_, Compared<'v>> {
        self.compared.borrow_mut()
    }

    /// Counts a list of `count` elements.
    pub(crate) fn allocate_elements(&mut self, count: u64) -> Result<(), Stop> {
        let bytes = count.saturating_mul(size_of::<Value<'v>>() as u64);
        self.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Stop> {
        // Wraps around like Go's addition.
        self.cost = self.cost.wrapping_add(cost);
        if self.cost > self.limit { Err(Stop::Cost) } else { Ok(()) }
    }

    /// Like [`Self::charge`], for steps of cost one: the cost then stops just above the limit.
    pub(super) fn charge_steps(&mut self, count: u64) -> Result<(), Stop> {
        let result = self.charge(count);
        if result.is_err() {
            self.cost = self.limit + 1;
        }
        result
    }
}
