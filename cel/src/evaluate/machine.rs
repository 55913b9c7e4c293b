//! Runs a program for one device.
//!
//! Nothing here recurses with the expression: what upstream keeps on its call stack is in vectors. Time and memory are
//! bounded by the cost limit, which is checked before anything expensive, and by a budget for what is allocated.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::compare::{self, Equality, Unordered};
use super::cost::{self, CostRule};
use super::list::List;
use super::map::Map;
use super::program::{
    CallSite, Comparison, ConstantSet, Op, OrderResult, PatternFunction, Program, Read, Target, Test,
};
use super::qualify::{self, Found};
use super::show::show;
use super::value::{Ref, Value};
use crate::check::types::Type;
use crate::device::DeviceView;
use crate::functions::pattern::PatternCache;
use crate::functions::time::zone::ZoneCache;
use crate::syntax::ast::NodeId;

/// Bytes that one evaluation may allocate in all. Upstream has no such limit; what it costs to get here is far beyond
/// what selectors do.
const MEMORY_BUDGET: usize = 128 << 20;

/// Values that one evaluation may compare in all: a list of lists that are all the same one has more elements than
/// time, and upstream goes through them uncounted.
const COMPARISON_BUDGET: u32 = 10_000_000;

/// Why an evaluation ended without a value.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The cost limit.
    Cost,
    /// The memory budget, or that of comparisons.
    Memory,
    /// What is a panic upstream.
    Internal(Box<str>),
}

/// A loop over a list or map.
enum Iterator<'v> {
    List { list: List<'v>, next: u64 },
    Entries { entries: Vec<(Value<'v>, Value<'v>)>, next: usize },
}

/// The part of the state that most selectors do not need.
#[derive(Default)]
struct Rare<'v> {
    /// Whether the open chains of selections deal with an optional.
    chains: Vec<bool>,
    loops: Vec<Iterator<'v>>,
    /// Where lazily computed variables return to.
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
}

/// The value of a node, seen while tracing.
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
        }
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

    /// The list that a list value is; empty for anything else.
    pub(crate) fn as_list(&self, value: &Value<'v>) -> List<'v> {
        match value {
            Value::List(list) => list.clone(),
            Value::Growing(number) => List::from(self.growing(*number).to_vec()),
            _ => List::from(Vec::new()),
        }
    }

    /// Counts a cost without checking the limit: the caller ends the evaluation.
    pub(crate) fn exceed(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }

    /// Counts an allocation.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), Stop> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MEMORY_BUDGET { Err(Stop::Memory) } else { Ok(()) }
    }

    /// Counts a value that is compared or gone through.
    pub(crate) fn count_comparison(&self) -> Result<(), Stop> {
        let made = self.comparisons.get() + 1;
        self.comparisons.set(made);
        if made > COMPARISON_BUDGET { Err(Stop::Memory) } else { Ok(()) }
    }

    /// Counts a list of so many elements.
    pub(crate) fn allocate_elements(&mut self, count: u64) -> Result<(), Stop> {
        let bytes = count.saturating_mul(size_of::<Value<'v>>() as u64);
        self.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    fn rare(&mut self) -> &mut Rare<'v> {
        self.rare.get_or_insert_default()
    }

    fn in_optional_chain(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.chains.last() == Some(&true))
    }

    /// The patterns that this evaluation compiled.
    pub(crate) fn patterns(&mut self) -> &mut PatternCache {
        &mut self.rare().patterns
    }

    /// The time zones that this evaluation read.
    pub(crate) fn zones(&mut self) -> &mut ZoneCache {
        &mut self.rare().zones
    }

    fn charge(&mut self, cost: u64) -> Result<(), Stop> {
        // As Go adds.
        self.cost = self.cost.wrapping_add(cost);
        if self.cost > self.limit { Err(Stop::Cost) } else { Ok(()) }
    }

    /// As [`Self::charge`] for steps of one each: the cost then stops just above the limit.
    fn charge_steps(&mut self, count: u64) -> Result<(), Stop> {
        let result = self.charge(count);
        if result.is_err() {
            self.cost = self.limit + 1;
        }
        result
    }

    fn pop(&mut self) -> Value<'v> {
        // The planner balances pushes and pops.
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

    /// Runs the program to its end and gives the value of the expression, which may be an error value.
    pub(crate) fn run(&mut self) -> Result<Value<'v>, Stop> {
        let mut at = 0;
        loop {
            match self.step(at)? {
                Some(next) => at = next,
                None => return Ok(self.pop()),
            }
        }
    }

    /// As [`Self::run`], showing the value of every node to `observer`.
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

    /// Runs one instruction; the next one's address, `None` at the end.
    #[inline(always)]
    fn step(&mut self, at: u32) -> Result<Option<u32>, Stop> {
        let program = self.program;
        let next = at + 1;
        let goto = match &program.ops[at as usize] {
            Op::Constant(index) => {
                self.stack.push(program.constants[*index as usize].borrowed());
                next
            }
            Op::Read { read, free } => {
                let (value, cost) = self.read(*read);
                self.stack.push(value);
                self.charge_steps(if *free { cost - 1 } else { cost })?;
                next
            }
            Op::Test { read, constant, test, rule } => {
                let (value, cost) = self.read(*read);
                self.charge_steps(cost)?;
                let value = self.test(value, &program.constants[*constant as usize], *test, *rule)?;
                self.stack.push(value);
                next
            }
            Op::TestOrder { read, constant, parse_cost, site, then } => {
                let (value, cost) = self.read(*read);
                self.charge_steps(cost)?;
                self.charge(*parse_cost)?;
                self.charge(1)?;
                let constant = &program.constants[*constant as usize];
                let value = self.test_order(value, constant, &program.sites[*site as usize], *then)?;
                self.stack.push(value);
                next
            }
            Op::Device { free } => {
                self.stack.push(Value::Device);
                self.charge_steps(u64::from(!*free))?;
                next
            }
            Op::Variable { slot, free } => match self.read_variable(*slot, *free)? {
                Some(lazy) => {
                    self.rare().returns.push(at);
                    lazy
                }
                None => next,
            },
            Op::Equal => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = cost::cost(self, CostRule::Equals, &operands, None).unwrap_or(1);
                self.charge(cost)?;
                let [one, two] = operands;
                let value = self.equal(one, two, false)?;
                self.stack.push(value);
                next
            }
            Op::NotEqual => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = cost::cost(self, CostRule::TraverseSmaller, &operands, None).unwrap_or(1);
                self.charge(cost)?;
                let [one, two] = operands;
                let value = self.equal(one, two, true)?;
                self.stack.push(value);
                next
            }
            Op::Compare { comparison, rule } => {
                let two = self.pop();
                let operands = [self.pop(), two];
                let cost = match rule {
                    CostRule::Fixed(cost) => *cost,
                    rule => cost::cost(self, *rule, &operands, None).unwrap_or(1),
                };
                self.charge(cost)?;
                let [one, two] = operands;
                self.stack.push(compare(*comparison, one, two));
                next
            }
            Op::LogicBegin(and) => {
                self.stack.push(Value::Bool(*and));
                next
            }
            Op::LogicTerm { and, end } => self.logic_term(*and, *end).unwrap_or(next),
            Op::Not => {
                self.charge(1)?;
                let value = match self.pop() {
                    Value::Bool(value) => Value::Bool(!value),
                    Value::Error(message) => Value::Error(message),
                    _ => Value::error("no such overload"),
                };
                self.stack.push(value);
                next
            }
            Op::NotStrictlyFalse => {
                self.charge(1)?;
                let value = self.pop();
                self.stack.push(if matches!(value, Value::Bool(_)) { value } else { Value::Bool(true) });
                next
            }
            Op::Call(site) => {
                self.call(&program.sites[*site as usize])?;
                next
            }
            Op::Qualify { key, optional, test, chained, end } => {
                if self.top_is_error() {
                    *end
                } else {
                    let key = program.constants[*key as usize].borrowed();
                    self.qualify(&key, *optional, *test, *chained, *end)?.unwrap_or(next)
                }
            }
            Op::QualifyBy { optional, chained, end } => {
                self.qualify_by(*optional, *chained, *end)?.unwrap_or(next)
            }
            Op::ChainBegin { end } => match self.stack.last() {
                Some(Value::Optional(Some(inner))) => {
                    let inner = qualify::reread(inner);
                    self.pop();
                    let failed = inner.is_error();
                    self.stack.push(inner);
                    self.rare().chains.push(!failed);
                    if failed { *end } else { next }
                }
                Some(Value::Optional(None) | Value::Error(_)) => {
                    self.rare().chains.push(false);
                    *end
                }
                _ => {
                    self.rare().chains.push(false);
                    next
                }
            },
            Op::ChainEnd { chained, free } => {
                if *chained && self.rare().chains.pop() == Some(true) && !self.top_is_error() {
                    let value = self.pop();
                    self.stack.push(Value::some(value));
                }
                if !free {
                    self.charge(1)?;
                }
                next
            }
            Op::TestEnd { refund } => {
                if let Some(Value::Optional(found)) = self.stack.last() {
                    let present = found.is_some();
                    self.pop();
                    self.stack.push(Value::Bool(present));
                }
                if *refund {
                    self.cost = self.cost.saturating_sub(1);
                }
                next
            }
            Op::Reread => {
                if let Some(Value::Optional(Some(inner))) = self.stack.last() {
                    let inner = qualify::reread(inner);
                    self.pop();
                    self.stack.push(Value::some(inner));
                }
                next
            }
            Op::Jump(to) => *to,
            Op::Branch { otherwise, end } => match self.pop() {
                Value::Bool(true) => next,
                Value::Bool(false) => *otherwise,
                Value::Error(message) => {
                    self.stack.push(Value::Error(message));
                    *end
                }
                _ => {
                    self.stack.push(Value::error("no such overload"));
                    *end
                }
            },
            Op::Check { below, end } => self.check(*below, *end).unwrap_or(next),
            Op::CheckOptional { below, end, entry } => {
                self.check_optional(*below, *end, *entry).unwrap_or(next)
            }
            Op::MakeList { count } => {
                self.make_list(*count, None)?;
                next
            }
            Op::MakeListOptional { count, optional } => {
                self.make_list(*count, Some(optional))?;
                next
            }
            Op::MakeMap { count, optional } => {
                self.make_map(*count, optional.as_deref())?;
                next
            }
            Op::Charge(cost) => {
                self.charge(*cost)?;
                next
            }
            Op::Fail(message) => {
                self.stack.push(Value::Error(message.clone()));
                next
            }
            Op::InSet(set) => {
                let value = self.pop();
                let found = in_set(&program.sets[*set as usize], value)?;
                self.stack.push(found);
                next
            }
            Op::OrElse { value, end } => match self.stack.last() {
                Some(Value::Optional(None)) => {
                    self.pop();
                    next
                }
                Some(Value::Optional(Some(inner))) if *value => {
                    let inner = (**inner).clone();
                    self.pop();
                    self.stack.push(inner);
                    *end
                }
                _ => *end,
            },
            Op::FoldBegin { two, accumulator, end } => {
                self.fold_begin(*two, *accumulator, *end)?.unwrap_or(next)
            }
            Op::FoldNext { first, second, done } => self.fold_next(*first, *second, *done).unwrap_or(next),
            Op::FoldCondition { done } => match self.pop() {
                Value::Bool(false) => *done,
                _ => next,
            },
            Op::Store(slot) => {
                let value = self.pop();
                self.slots[*slot as usize] = Some(value);
                next
            }
            Op::FoldDone => {
                self.rare().loops.pop();
                next
            }
            Op::Freeze => {
                self.freeze();
                next
            }
            Op::Return(slot) => {
                let value = self.pop();
                let value = self.grow_if_empty(value);
                self.slots[*slot as usize] = Some(value);
                // Back to the read, which finds the value now.
                self.rare().returns.pop().unwrap_or(next)
            }
            Op::Forget(slot) => {
                self.slots[*slot as usize] = None;
                next
            }
            Op::Mark(_) => next,
            Op::Halt => return Ok(None),
        };
        Ok(Some(goto))
    }

    /// A value of the device, and what reading it costs.
    #[inline(always)]
    fn read(&self, read: Read) -> (Value<'v>, u64) {
        match read {
            Read::Driver => (Value::String(Ref::Borrowed(self.device.driver())), 2),
            Read::MultipleAllocations => (Value::Bool(self.device.allow_multiple_allocations()), 2),
            Read::Named { side, domain, name } => {
                let (domain, name) = (self.constant_text(domain), self.constant_text(name));
                let value = match qualify::named(self, side, domain, name) {
                    Some(value) => value,
                    None => Value::error(format!("no such key: {name}")),
                };
                (value, 4)
            }
        }
    }

    #[inline(always)]
    fn test(
        &mut self,
        value: Value<'v>,
        constant: &'v Value<'static>,
        test: Test,
        rule: CostRule,
    ) -> Result<Value<'v>, Stop> {
        if let (Value::String(one), Value::String(two), Test::Equal | Test::NotEqual) =
            (&value, constant, test)
        {
            self.charge(cost::of_equal_texts(one, two))?;
            return Ok(Value::Bool((**one == **two) == (test == Test::Equal)));
        }
        let operands = [value, constant.borrowed()];
        let cost = match rule {
            CostRule::Fixed(cost) => cost,
            rule => cost::cost(self, rule, &operands, None).unwrap_or(1),
        };
        self.charge(cost)?;
        let [one, two] = operands;
        match test {
            Test::Equal => self.equal(one, two, false),
            Test::NotEqual => self.equal(one, two, true),
            Test::Order(comparison) => Ok(compare(comparison, one, two)),
        }
    }

    #[inline(always)]
    fn test_order(
        &mut self,
        value: Value<'v>,
        constant: &'v Value<'static>,
        site: &CallSite,
        then: OrderResult,
    ) -> Result<Value<'v>, Stop> {
        let order = match (&value, constant) {
            (Value::Quantity { value: one, .. }, Value::Quantity { value: two, .. }) => (**one).cmp(two),
            (Value::Version(one), Value::Version(two)) => (**one).cmp(two),
            _ => {
                let operands = [value, constant.borrowed()];
                let result = match operands.iter().find(|operand| operand.is_error()) {
                    Some(error) => error.clone(),
                    None => self.invoke(site, &operands)?,
                };
                if let OrderResult::Compared(comparison, number) = then {
                    self.charge(1)?;
                    return Ok(compare(comparison, result, Value::Int(number)));
                }
                return Ok(result);
            }
        };
        Ok(match then {
            OrderResult::Number => Value::Int(order as i64),
            OrderResult::Greater => Value::Bool(order == std::cmp::Ordering::Greater),
            OrderResult::Less => Value::Bool(order == std::cmp::Ordering::Less),
            OrderResult::Compared(comparison, number) => {
                self.charge(1)?;
                compare(comparison, Value::Int(order as i64), Value::Int(number))
            }
        })
    }

    /// Pushes a variable. Not computed yet: the address of its code.
    fn read_variable(&mut self, slot: u32, free: bool) -> Result<Option<u32>, Stop> {
        let value = match &self.slots[slot as usize] {
            Some(Value::Optional(Some(inner))) => Value::some(qualify::reread(inner)),
            Some(value) => value.clone(),
            None => {
                if let Some(Some(lazy)) = self.program.lazy.get(slot as usize) {
                    return Ok(Some(*lazy));
                }
                Value::Null
            }
        };
        self.stack.push(value);
        if !free {
            self.charge(1)?;
        }
        Ok(None)
    }

    /// An empty list or map as the initial value of an accumulator grows in place, as upstream's does.
    fn grow_if_empty(&mut self, value: Value<'v>) -> Value<'v> {
        match &value {
            Value::List(list) if list.len() == 0 => {
                self.rare().growing.push(Vec::new());
                Value::Growing(self.rare().growing.len() as u32 - 1)
            }
            Value::Map(map) if map.len() == 0 => {
                self.rare().growing_maps.push(Map::default());
                Value::GrowingMap(self.rare().growing_maps.len() as u32 - 1)
            }
            _ => value,
        }
    }

    fn freeze(&mut self) {
        match self.stack.last() {
            Some(Value::Growing(number)) => {
                let number = *number as usize;
                // The newest one is nobody else's any more; an older one may be read again.
                let items = if number + 1 == self.rare().growing.len() {
                    self.rare().growing.pop()
                } else {
                    self.rare().growing.get(number).cloned()
                };
                self.pop();
                self.stack.push(Value::list(items.unwrap_or_default()));
            }
            Some(Value::GrowingMap(number)) => {
                let number = *number as usize;
                let map = if number + 1 == self.rare().growing_maps.len() {
                    self.rare().growing_maps.pop()
                } else {
                    self.rare().growing_maps.get(number).cloned()
                };
                self.pop();
                self.stack.push(Value::Map(Arc::new(map.unwrap_or_default())));
            }
            _ => {}
        }
    }

    fn logic_term(&mut self, and: bool, end: u32) -> Option<u32> {
        let term = self.pop();
        let outcome = self.stack.last_mut()?;
        match term {
            Value::Bool(value) if value != and => {
                *outcome = Value::Bool(value);
                return Some(end);
            }
            Value::Bool(_) => {}
            _ if outcome.is_error() => {}
            Value::Error(message) => *outcome = Value::Error(message),
            _ => *outcome = Value::error("no such overload"),
        }
        None
    }

    fn equal(&mut self, one: Value<'v>, two: Value<'v>, negate: bool) -> Result<Value<'v>, Stop> {
        if one.is_error() {
            return Ok(one);
        }
        if two.is_error() {
            return Ok(two);
        }
        let equality = compare::equal(self, &one, &two)?;
        Ok(match equality {
            Equality::Error if !negate => Value::error("no such overload"),
            equality => Value::Bool((equality == Equality::Equal) != negate),
        })
    }

    fn qualify(
        &mut self,
        key: &Value<'v>,
        optional: bool,
        test: bool,
        chained: bool,
        end: u32,
    ) -> Result<Option<u32>, Stop> {
        let in_chain = chained && self.in_optional_chain();
        let presence = optional || in_chain;
        let object = self.pop();
        let found = qualify::qualify(self, &object, key, presence || test)?;
        match found {
            Found::Error(message) => {
                self.stack.push(Value::Error(message));
                self.charge(u64::from(!presence))?;
                Ok(Some(end))
            }
            Found::Absent if presence => {
                self.stack.push(Value::Optional(None));
                if let Some(chain) = self.rare().chains.last_mut() {
                    *chain = false;
                }
                Ok(Some(end))
            }
            Found::Absent => {
                self.stack.push(Value::Bool(false));
                self.charge(1)?;
                Ok(None)
            }
            Found::Value(value) => {
                self.stack.push(if test && !presence { Value::Bool(true) } else { value });
                if presence && let Some(chain) = self.rare().chains.last_mut() {
                    *chain = true;
                }
                self.charge(1)?;
                Ok(None)
            }
        }
    }

    fn qualify_by(&mut self, optional: bool, chained: bool, end: u32) -> Result<Option<u32>, Stop> {
        let key = self.pop();
        if self.top_is_error() {
            return Ok(Some(end));
        }
        let key = match key {
            Value::Error(message) => Err(message),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) => Ok(key),
            other => Err(format!("invalid qualifier type: {}", other.go_type()).into()),
        };
        match key {
            Ok(key) => self.qualify(&key, optional, false, chained, end),
            Err(message) => {
                self.pop();
                self.stack.push(Value::Error(message));
                let presence = optional || (chained && self.in_optional_chain());
                self.charge(u64::from(!presence))?;
                Ok(Some(end))
            }
        }
    }

    fn check(&mut self, below: u32, end: u32) -> Option<u32> {
        if !self.top_is_error() {
            return None;
        }
        let error = self.pop();
        self.stack.truncate(self.stack.len() - below as usize);
        self.stack.push(error);
        Some(end)
    }

    fn check_optional(&mut self, below: u32, end: u32, entry: bool) -> Option<u32> {
        if let Some(Value::Error(_) | Value::Optional(_)) = self.stack.last() {
            return self.check(below, end);
        }
        let value = self.pop();
        let shown = show(self, &value);
        let message = match self.stack.last() {
            Some(key) if entry => {
                format!(
                    "cannot initialize optional entry '{}' from non-optional value {shown}",
                    show(self, key)
                )
            }
            _ => format!("cannot initialize optional list element from non-optional value {shown}"),
        };
        self.stack.push(Value::error(message));
        self.check(below, end)
    }

    fn make_list(&mut self, count: u32, optional: Option<&[bool]>) -> Result<(), Stop> {
        self.allocate_elements(u64::from(count))?;
        let first = self.stack.len() - count as usize;
        let items: Vec<Value<'v>> = self.stack.drain(first..).collect();
        let items = items.into_iter().enumerate().filter_map(|(index, value)| {
            match (optional.is_some_and(|optional| optional[index]), value) {
                (true, Value::Optional(inner)) => inner.map(|inner| (*inner).clone()),
                (_, value) => Some(value),
            }
        });
        let items: Vec<Value<'v>> = items.collect();
        let items = items.into_iter().map(|value| self.settle(value)).collect();
        self.stack.push(Value::list(items));
        Ok(())
    }

    /// What still grows is copied before it becomes part of something else.
    fn settle(&self, value: Value<'v>) -> Value<'v> {
        match value {
            Value::Growing(number) => Value::list(self.growing(number).to_vec()),
            Value::GrowingMap(number) => Value::Map(Arc::new(self.growing_map(number).clone())),
            other => other,
        }
    }

    fn make_map(&mut self, count: u32, optional: Option<&[bool]>) -> Result<(), Stop> {
        self.allocate_elements(u64::from(count) * 3)?;
        let first = self.stack.len() - 2 * count as usize;
        let mut parts: Vec<Value<'v>> = self.stack.drain(first..).collect();
        let mut map = Map::default();
        for index in 0..count as usize {
            let key = std::mem::replace(&mut parts[2 * index], Value::Null);
            let value = std::mem::replace(&mut parts[2 * index + 1], Value::Null);
            let value = match (optional.is_some_and(|optional| optional[index]), value) {
                (true, Value::Optional(None)) => {
                    map.remove(&key)?;
                    continue;
                }
                (true, Value::Optional(Some(inner))) => (*inner).clone(),
                (_, value) => value,
            };
            let value = self.settle(value);
            map.set(key, value)?;
        }
        self.stack.push(Value::Map(Arc::new(map)));
        Ok(())
    }

    fn fold_begin(&mut self, two: bool, accumulator: u32, end: u32) -> Result<Option<u32>, Stop> {
        let range = self.pop();
        self.slots[accumulator as usize] = None;
        let iterator = match &range {
            Value::List(list) => Iterator::List { list: list.clone(), next: 0 },
            Value::Growing(_) => Iterator::List { list: self.as_list(&range), next: 0 },
            map if qualify::is_map(map) => {
                let entries = qualify::map_entries(self, map);
                self.allocate_elements(2 * entries.len() as u64)?;
                Iterator::Entries { entries, next: 0 }
            }
            Value::Error(_) => {
                self.stack.push(range);
                return Ok(Some(end));
            }
            other => {
                let found = other.go_type();
                let message = if two {
                    format!("unsupported comprehension range type: {found}")
                } else {
                    format!("got '{found}', expected iterable type")
                };
                self.stack.push(Value::error(message));
                return Ok(Some(end));
            }
        };
        self.rare().loops.push(iterator);
        Ok(None)
    }

    fn fold_next(&mut self, first: u32, second: Option<u32>, done: u32) -> Option<u32> {
        let (one, two) = match self.rare().loops.last_mut() {
            Some(Iterator::List { list, next }) => {
                let Some(item) = list.get(*next) else { return Some(done) };
                let index = *next as i64;
                *next += 1;
                match second {
                    Some(_) => (Value::Int(index), item.clone()),
                    None => (item.clone(), Value::Null),
                }
            }
            Some(Iterator::Entries { entries, next }) => {
                let Some((key, value)) = entries.get(*next) else { return Some(done) };
                *next += 1;
                (key.clone(), value.clone())
            }
            None => return Some(done),
        };
        self.slots[first as usize] = Some(one);
        if let Some(second) = second {
            self.slots[second as usize] = Some(two);
        }
        None
    }

    fn call(&mut self, site: &'v CallSite) -> Result<(), Stop> {
        let first = self.stack.len() - site.arguments as usize;
        let arguments: SmallVec<[Value<'v>; 3]> = self.stack.drain(first..).collect();
        let result = self.call_with(site, &arguments)?;
        self.stack.push(result);
        Ok(())
    }

    /// Makes a call outside a program.
    pub(crate) fn call_constant(
        &mut self,
        site: &CallSite,
        arguments: &[Value<'v>],
    ) -> Result<Value<'v>, Stop> {
        self.call_with(site, arguments)
    }

    fn call_with(&mut self, site: &CallSite, arguments: &[Value<'v>]) -> Result<Value<'v>, Stop> {
        let needs_result = matches!(site.rule, CostRule::NewList | CostRule::TraverseResultTwice);
        if !needs_result {
            let cost = match site.rule {
                CostRule::Fixed(cost) => cost,
                rule => {
                    cost::cost(self, rule, arguments, None).map_err(|reason| Stop::Internal(reason.into()))?
                }
            };
            self.charge(cost)?;
        }
        let result = match arguments.iter().find(|argument| argument.is_error()) {
            Some(error) => error.clone(),
            None => self.invoke(site, arguments)?,
        };
        if needs_result {
            let cost = cost::cost(self, site.rule, arguments, Some(&result))
                .map_err(|reason| Stop::Internal(reason.into()))?;
            self.charge(cost)?;
        }
        Ok(result)
    }

    fn invoke(&mut self, site: &CallSite, arguments: &[Value<'v>]) -> Result<Value<'v>, Stop> {
        match &site.target {
            Target::Direct(implementation) => implementation(self, arguments),
            Target::Overload(overload, implementation) => {
                if fits(self, &overload.arguments, arguments) {
                    implementation(self, arguments)
                } else {
                    Ok(no_such_overload(site.function, arguments))
                }
            }
            Target::Dispatch(candidates) => {
                for (overload, implementation) in candidates {
                    if fits(self, &overload.arguments, arguments) {
                        return implementation(self, arguments);
                    }
                }
                Ok(no_such_overload(site.function, arguments))
            }
            Target::Pattern(function, pattern) => {
                let Value::String(text) = &arguments[0] else { return Ok(Value::error("no such overload")) };
                match function {
                    PatternFunction::Matches => Ok(Value::Bool(pattern.is_match(text))),
                    PatternFunction::Find => crate::functions::pattern::find(self, pattern, text),
                    PatternFunction::FindAll => {
                        crate::functions::pattern::find_all(self, pattern, text, arguments.get(2))
                    }
                }
            }
            Target::Missing => Ok(Value::error(format!("no such overload: {}", site.function))),
        }
    }

    /// Adds to a list that is being built, `None` where the left operand is no such list.
    pub(crate) fn grow(&mut self, target: &Value<'v>, other: &Value<'v>) -> Result<Option<Value<'v>>, Stop> {
        let Value::Growing(number) = target else { return Ok(None) };
        let added = match other {
            Value::List(_) | Value::Growing(_) => self.as_list(other),
            _ => return Ok(Some(Value::error("no such overload"))),
        };
        self.allocate_elements(added.len())?;
        if let Some(items) = self.rare().growing.get_mut(*number as usize) {
            items.extend(added.iter().cloned());
        }
        Ok(Some(target.clone()))
    }

    /// Inserts into a map that is being built.
    pub(crate) fn insert(
        &mut self,
        target: &Value<'v>,
        key: Value<'v>,
        value: Value<'v>,
    ) -> Result<Value<'v>, Stop> {
        self.allocate_elements(3)?;
        if qualify::map_find(self, target, &key)?.is_some() {
            return Ok(Value::error(format!("insert failed: key {} already exists", show(self, &key))));
        }
        let value = self.settle(value);
        match target {
            Value::GrowingMap(number) => {
                self.rare().growing_maps[*number as usize].set(key, value)?;
                Ok(target.clone())
            }
            _ => {
                let mut copy = Map::default();
                let entries = qualify::map_entries(self, target);
                self.allocate_elements(3 * entries.len() as u64)?;
                for (key, value) in entries {
                    copy.set(key, value)?;
                }
                copy.set(key, value)?;
                Ok(Value::Map(Arc::new(copy)))
            }
        }
    }
}

/// The error of a call that no overload takes.
pub(crate) fn no_such_overload<'v>(function: &str, arguments: &[Value<'v>]) -> Value<'v> {
    let types: Vec<&str> = arguments.iter().map(Value::type_name).collect();
    Value::error(format!("no such overload: {function}({})", types.join(", ")))
}

fn fits<'v>(machine: &Machine<'v>, wanted: &[Type], arguments: &[Value<'v>]) -> bool {
    wanted.len() == arguments.len()
        && wanted.iter().zip(arguments).all(|(wanted, argument)| is_assignable(machine, wanted, argument))
}

/// Whether a value is of a type; of lists and maps only the first element is looked at.
fn is_assignable<'v>(machine: &Machine<'v>, wanted: &Type, value: &Value<'v>) -> bool {
    match (wanted, value) {
        (Type::Dyn | Type::Any | Type::Parameter(_), _) => true,
        (Type::List(element), Value::List(list)) => {
            list.get(0).is_none_or(|first| is_assignable(machine, element, first))
        }
        (Type::List(element), Value::Growing(number)) => {
            machine.growing(*number).first().is_none_or(|first| is_assignable(machine, element, first))
        }
        (Type::Map(pair), map) if qualify::is_map(map) => {
            let fit = |(key, value): &(Value<'v>, Value<'v>)| {
                is_assignable(machine, &pair.0, key) && is_assignable(machine, &pair.1, value)
            };
            match map {
                Value::Map(map) => map.entries().first().is_none_or(fit),
                Value::GrowingMap(number) => machine.growing_map(*number).entries().first().is_none_or(fit),
                other => qualify::map_entries(machine, other).first().is_none_or(fit),
            }
        }
        (Type::List(_) | Type::Map(_), _) => false,
        (wanted, value) => super::value::runtime_name(wanted) == value.type_name(),
    }
}

fn compare<'v>(comparison: Comparison, one: Value<'v>, two: Value<'v>) -> Value<'v> {
    use std::cmp::Ordering;
    if one.is_error() {
        return one;
    }
    if two.is_error() {
        return two;
    }
    match compare::order(&one, &two) {
        Ok(order) => Value::Bool(match comparison {
            Comparison::Less => order == Ordering::Less,
            Comparison::LessEquals => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterEquals => order != Ordering::Less,
        }),
        Err(Unordered::NotANumber) => Value::error("NaN values cannot be ordered"),
        Err(Unordered::Other) => Value::error("no such overload"),
        Err(Unordered::Type) => Value::error(match comparison {
            Comparison::Less => "no such overload: _<_",
            Comparison::LessEquals => "no such overload: _<=_",
            Comparison::Greater => "no such overload: _>_",
            Comparison::GreaterEquals => "no such overload: _>=_",
        }),
    }
}

fn in_set<'v>(set: &ConstantSet, value: Value<'v>) -> Result<Value<'v>, Stop> {
    Ok(Value::Bool(match &value {
        Value::Error(_) => return Ok(value),
        Value::String(text) => set.strings.contains(&**text),
        Value::Bool(value) => set.bools[usize::from(*value)],
        Value::Int(value) => set.ints.contains(value),
        Value::Uint(value) => set.uints.contains(value),
        Value::Double(value) => !value.is_nan() && set.doubles.contains(&(value + 0.0).to_bits()),
        Value::Bytes(_) => return Err(super::map::Unhashable("types.Bytes").into()),
        Value::Version(_) => return Err(super::map::Unhashable("cel.Semver").into()),
        Value::Format(_) => return Err(super::map::Unhashable("cel.Format").into()),
        _ => false,
    }))
}
