//! Runs a program for one device.
//!
//! No recursion over the expression: upstream's call stack is replaced by vectors. Time and memory are
//! bounded by the cost limit, which is checked before anything expensive, and by a budget for allocations.

mod budget;
mod calls;
mod collections;
mod comparisons;
mod loops;
mod messages;
pub(crate) mod patterns;
mod selections;
mod step;

use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

use crate::device::DeviceView;
use crate::environment::is_1_37;
use crate::evaluate::compared::Compared;
use crate::evaluate::list::List;
use crate::evaluate::map::Map;
use crate::evaluate::program::{Op, Program};
use crate::evaluate::value::Value;
use crate::syntax::ast::NodeId;
use crate::values::pattern::PatternCache;
use crate::values::time::ZoneCache;
pub(crate) use budget::Stop;
use loops::Iterator;

/// The part of the state unused by most selectors.
#[derive(Default)]
struct Rare<'v> {
    /// Whether the open chains of selections contain an optional.
    chains: Vec<bool>,
    loops: Vec<Iterator<'v>>,
    /// Return addresses of lazily computed variables.
    returns: Vec<u32>,
    growing: Vec<Vec<Value<'v>>>,
    growing_maps: Vec<Map<'v>>,
    patterns: PatternCache,
    zones: ZoneCache,
}

/// The state of an evaluation.
pub(crate) struct Machine<'v> {
    device: &'v dyn DeviceView,
    program: &'v Program,
    stack: SmallVec<[Value<'v>; 8]>,
    slots: Vec<Option<Value<'v>>>,
    rare: Option<Box<Rare<'v>>>,
    cost: u64,
    limit: u64,
    memory: usize,
    comparisons: Cell<u32>,
    compared: RefCell<Compared<'v>>,
}

/// Receives the value of each node while tracing.
pub(crate) type Observer<'o, 'v> = &'o mut dyn FnMut(NodeId, &Machine<'v>, &Value<'v>);

impl<'v> Machine<'v> {
    pub(crate) fn new(device: &'v dyn DeviceView, program: &'v Program, limit: u64) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(program.slots as usize, || None);
        Machine {
            device,
            program,
            stack: SmallVec::new(),
            slots,
            rare: None,
            cost: 0,
            limit,
            memory: 0,
            comparisons: Cell::new(0),
            compared: RefCell::default(),
        }
    }

    /// Whether the rules are from Kubernetes 1.37.
    pub(crate) fn is_1_37(&self) -> bool {
        is_1_37(self.program.version)
    }

    pub(crate) fn device(&self) -> &'v dyn DeviceView {
        self.device
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    pub(crate) fn growing(&self, number: u32) -> &[Value<'v>] {
        self.rare.as_ref().and_then(|rare| rare.growing.get(number as usize)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn growing_map(&self, number: u32) -> &Map<'v> {
        static EMPTY: std::sync::LazyLock<Map<'static>> = std::sync::LazyLock::new(Map::default);
        self.rare.as_ref().and_then(|rare| rare.growing_maps.get(number as usize)).unwrap_or(&EMPTY)
    }

    /// The list in a value; empty for anything else.
    pub(crate) fn as_list(&self, value: &Value<'v>) -> List<'v> {
        match value {
            Value::List(list) => list.clone(),
            Value::Growing(number) => List::from(self.growing(*number).to_vec()),
            _ => List::from(Vec::new()),
        }
    }

    fn rare(&mut self) -> &mut Rare<'v> {
        self.rare.get_or_insert_default()
    }

    fn in_optional_chain(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.chains.last() == Some(&true))
    }

    /// The patterns compiled by this evaluation.
    pub(crate) fn patterns(&mut self) -> &mut PatternCache {
        &mut self.rare().patterns
    }

    /// The time zones read by this evaluation.
    pub(crate) fn zones(&mut self) -> &mut ZoneCache {
        &mut self.rare().zones
    }

    fn pop(&mut self) -> Value<'v> {
        // Never empty: the planner balances pushes and pops.
        self.stack.pop().unwrap_or(Value::Null)
    }

    fn top_is_error(&self) -> bool {
        matches!(self.stack.last(), Some(Value::Error(_)))
    }

    fn constant_text(&self, index: u32) -> &'v str {
        match &self.program.constants[index as usize] {
            Value::String(text) => text,
            _ => "",
        }
    }

    /// Runs the program to its end and returns the expression's value, possibly an error value.
    pub(crate) fn run(&mut self) -> Result<Value<'v>, Stop> {
        let mut at = 0;
        loop {
            match self.step(at)? {
                Some(next) => at = next,
                None => return Ok(self.pop()),
            }
        }
    }

    /// Like [`Self::run`], and passes the value of every node to `observer`.
    pub(crate) fn trace(&mut self, observer: Observer<'_, 'v>) -> Result<Value<'v>, Stop> {
        let mut at = 0;
        loop {
            if let Op::Mark(node) = &self.program.ops[at as usize]
                && let Some(value) = self.stack.last()
            {
                observer(*node, self, value);
            }
            match self.step(at)? {
                Some(next) => at = next,
                None => return Ok(self.pop()),
            }
        }
    }
}
