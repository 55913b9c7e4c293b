//! Programs, made by the planner and run by the machine: instructions over a stack of values.

use std::collections::HashSet;
use std::sync::Arc;

use regex::Regex;
use tessera_api::kubernetes::KubernetesVersion;

use super::cost::CostRule;
use super::machine::{Machine, Stop};
use super::value::{Side, Value};
use crate::check::declarations::Overload;
use crate::check::messages::{FieldKind, Message};
use crate::syntax::ast::NodeId;

/// Index of an instruction.
pub(crate) type Address = u32;

/// The implementation of a function.
pub(crate) type Implementation = for<'m, 'v> fn(&'m mut Machine<'v>, &[Value<'v>]) -> Result<Value<'v>, Stop>;

/// An instruction. "Free" variants of reads are not counted by upstream.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Pushes a constant.
    Constant(u32),
    /// Pushes a variable.
    Variable {
        slot: u32,
        free: bool,
    },
    /// Pushes the variable `device`.
    Device {
        free: bool,
    },
    /// Pushes a value of the device.
    Read {
        read: Read,
        free: bool,
    },
    /// Reads and compares with a constant, like most terms of a selector.
    Test {
        read: Read,
        constant: u32,
        test: Test,
        rule: CostRule,
    },
    /// Reads a quantity or version and orders it against one parsed from a constant text, like most other terms.
    TestOrder {
        read: Read,
        constant: u32,
        parse_cost: u64,
        site: u32,
        then: OrderResult,
    },
    /// Unpacks an optional before a chain of selections.
    ChainBegin {
        end: Address,
    },
    /// Selects by a constant.
    Qualify {
        key: u32,
        optional: bool,
        test: bool,
        chained: bool,
        end: Address,
    },
    /// Selects by the value on top.
    QualifyBy {
        optional: bool,
        chained: bool,
        end: Address,
    },
    /// Packs the optional again.
    ChainEnd {
        chained: bool,
        free: bool,
    },
    /// Turns the result of a test into a bool; `refund` where upstream counts one too few.
    TestEnd {
        refund: bool,
    },
    /// Conversion of an optional read as an attribute by cel-go 0.26.
    Reread,
    Jump(Address),
    /// Pops a condition. An error replaces the whole conditional.
    Branch {
        otherwise: Address,
        end: Address,
    },
    /// Starts `&&` (`true`) or `||` (`false`).
    LogicBegin(bool),
    /// Takes one term into account.
    LogicTerm {
        and: bool,
        end: Address,
    },
    Not,
    NotStrictlyFalse,
    Equal,
    NotEqual,
    /// `<`, `<=`, `>`, `>=`, with a call site for its cost.
    Compare {
        comparison: Comparison,
        rule: CostRule,
    },
    /// Calls a function with the topmost values.
    Call(u32),
    /// After an argument or element: an error replaces the `below` values under it, and evaluation goes on
    /// at `end`.
    Check {
        below: u32,
        end: Address,
    },
    /// Like [`Op::Check`] for an optional element; `entry` is whether a key lies below.
    CheckOptional {
        below: u32,
        end: Address,
        entry: bool,
    },
    MakeList {
        count: u32,
    },
    /// A constant list of bools marks the optional elements.
    MakeListOptional {
        count: u32,
        optional: Arc<[bool]>,
    },
    MakeMap {
        count: u32,
        optional: Option<Arc<[bool]>>,
    },
    /// Like `CheckOptional`, for a message's field.
    CheckField {
        below: u32,
        end: Address,
        name: Arc<str>,
    },
    /// Makes a well-known message of the fields on the stack; the bools mark the optional ones.
    MakeMessage {
        message: &'static Message,
        fields: Arc<[(FieldKind, &'static str, bool)]>,
    },
    /// Charges for a list or map, even if its creation failed.
    Charge(u64),
    /// Pushes an error.
    Fail(Arc<str>),
    /// Whether the value on top is one of a set of constants.
    InSet(u32),
    /// `optional.or` and `optional.orValue` after their left operand.
    OrElse {
        value: bool,
        end: Address,
    },
    /// Pops a range and starts a loop over the range; on error goes to `end`.
    FoldBegin {
        two: bool,
        accumulator: u32,
        end: Address,
    },
    /// Next element into its slots, or on to `done`.
    FoldNext {
        first: u32,
        second: Option<u32>,
        done: Address,
    },
    /// Pops the loop's condition.
    FoldCondition {
        done: Address,
    },
    /// Pops into a slot.
    Store(u32),
    /// Leaves the loop.
    FoldDone,
    /// Ends the growth of a list or map built by a comprehension.
    Freeze,
    /// Ends the code of a lazily computed variable: stores the value and goes back to the read.
    Return(u32),
    /// Makes the next read of a variable compute the value again.
    Forget(u32),
    /// Reports the value on top as a node's.
    Mark(NodeId),
    /// Ends the program.
    Halt,
}

/// A value read from the device directly: `device.driver`, `device.allowMultipleAllocations`,
/// `device.attributes["domain"].name` or the same of `device.capacity`; both texts are constants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read {
    Driver,
    MultipleAllocations,
    Named { side: Side, domain: u32, name: u32 },
}

/// How a value is compared with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    Equal,
    NotEqual,
    Order(Comparison),
}

/// Use of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderResult {
    /// `compareTo`
    Number,
    /// `compareTo(…) >= 0` and the like
    Compared(Comparison, i64),
    /// `isGreaterThan`
    Greater,
    /// `isLessThan`
    Less,
}

/// An ordering comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
}

/// How a call finds its implementation.
#[derive(Debug)]
pub(crate) enum Target {
    /// One implementation for all arguments.
    Direct(Implementation),
    /// One overload, whose argument types are checked at the call.
    Overload(&'static Overload, Implementation),
    /// The first overload matching the arguments.
    Dispatch(Vec<(&'static Overload, Implementation)>),
    /// A function with a constant regular expression.
    Pattern(PatternFunction, Box<Regex>),
    /// Declared, without an implementation.
    Missing,
}

/// The functions whose constant patterns are compiled once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternFunction {
    Matches,
    Find,
    FindAll,
}

/// One call in a program.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub function: &'static str,
    pub arguments: u32,
    pub rule: CostRule,
    pub target: Target,
}

/// Sets of constants for `in`, with look-ups without cost.
#[derive(Debug, Default)]
pub(crate) struct ConstantSet {
    pub strings: HashSet<Box<str>>,
    pub bools: [bool; 2],
    pub ints: HashSet<i64>,
    pub uints: HashSet<u64>,
    /// By bits, with zero made positive.
    pub doubles: HashSet<u64>,
}

/// A compiled expression.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// The release of the applied rules.
    pub version: KubernetesVersion,
    pub ops: Vec<Op>,
    pub constants: Vec<Value<'static>>,
    pub sites: Vec<CallSite>,
    pub sets: Vec<ConstantSet>,
    pub slots: u32,
    /// Address of the code of each lazily computed variable, by slot.
    pub lazy: Vec<Option<Address>>,
}
