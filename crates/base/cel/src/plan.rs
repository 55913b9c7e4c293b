//! Turns a checked tree into a program: folds constants, resolves variables to slots, picks implementations.
//!
//! Folds exactly like upstream, because folding decides on refusals and on counted costs.

mod calls;
mod collections;
mod constants;
mod selections;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check::checker::{Checked, Reference};
use crate::check::types::Type;
use crate::evaluate::program::{Op, Program};
use crate::evaluate::value::Value;
use crate::syntax::ast::{Ast, Kind, NodeId, operators};

/// A selector's reads of a device: devices with equal values for all reads get the same answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// The driver's name.
    pub driver: bool,
    /// `allowMultipleAllocations`.
    pub allow_multiple_allocations: bool,
    /// Single attributes, by domain and name.
    pub attributes: BTreeSet<(String, String)>,
    /// Single capacities, by domain and name.
    pub capacity: BTreeSet<(String, String)>,
    /// Domains with possible reads of any attribute.
    pub attribute_domains: BTreeSet<String>,
    /// Domains with possible reads of any capacity.
    pub capacity_domains: BTreeSet<String>,
    /// Any attribute may be read.
    pub all_attributes: bool,
    /// Any capacity may be read.
    pub all_capacity: bool,
}

/// Plans a program. With `marks`, the program reports the value of every node with text.
pub(crate) fn plan(ast: &Ast, checked: &Checked, marks: bool) -> Result<(Program, Reads), String> {
    let mut planner = Planner {
        ast,
        checked,
        marks,
        program: Program { version: checked.version, ..Program::default() },
        reads: Reads::default(),
        constants: vec![None; ast.nodes.len()],
        labels: Vec::new(),
        scopes: Vec::new(),
        tasks: Vec::new(),
        lazy: Vec::new(),
    };
    planner.fold()?;
    planner.tasks.push(Task::Op(Op::Halt));
    planner.tasks.push(Task::Node { node: ast.root, scope: None, free: false });
    planner.run()?;
    while let Some((slot, node, scope)) = planner.lazy.pop() {
        let address = planner.program.ops.len() as u32;
        planner.program.lazy[slot as usize] = Some(address);
        planner.tasks.push(Task::Op(Op::Return(slot)));
        planner.tasks.push(Task::Node { node, scope, free: false });
        planner.run()?;
    }
    planner.link();
    Ok((planner.program, planner.reads))
}

type Scope = Option<u32>;

/// A visible variable.
struct Binding {
    name: Arc<str>,
    slot: u32,
    outer: Scope,
}

enum Task {
    /// `free`: read as part of another value, and not counted by upstream.
    Node {
        node: NodeId,
        scope: Scope,
        free: bool,
    },
    Op(Op),
    /// Sets the label to the next instruction's address.
    Label(u32),
}

struct Planner<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    marks: bool,
    program: Program,
    reads: Reads,
    /// Values of constant nodes.
    constants: Vec<Option<Value<'static>>>,
    /// Addresses by label; instructions name labels until they are linked.
    labels: Vec<u32>,
    scopes: Vec<Binding>,
    tasks: Vec<Task>,
    /// Variables whose code is still to be generated.
    lazy: Vec<(u32, NodeId, Scope)>,
}

impl Planner<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Op(op) => self.program.ops.push(op),
                Task::Label(label) => self.labels[label as usize] = self.program.ops.len() as u32,
                Task::Node { node, scope, free } => self.node(node, scope, free)?,
            }
        }
        Ok(())
    }

    fn label(&mut self) -> u32 {
        self.labels.push(0);
        self.labels.len() as u32 - 1
    }

    /// Queues tasks so that the first one runs first.
    fn queue(&mut self, tasks: Vec<Task>) {
        self.tasks.extend(tasks.into_iter().rev());
    }

    fn link(&mut self) {
        let labels = &self.labels;
        for op in &mut self.program.ops {
            let addresses: Vec<&mut u32> = match op {
                Op::ChainBegin { end }
                | Op::Qualify { end, .. }
                | Op::QualifyBy { end, .. }
                | Op::LogicTerm { end, .. }
                | Op::Check { end, .. }
                | Op::CheckOptional { end, .. }
                | Op::CheckField { end, .. }
                | Op::OrElse { end, .. }
                | Op::FoldBegin { end, .. } => vec![end],
                Op::Branch { otherwise, end } => vec![otherwise, end],
                Op::Jump(to) => vec![to],
                Op::FoldNext { done, .. } | Op::FoldCondition { done } => vec![done],
                _ => Vec::new(),
            };
            for address in addresses {
                *address = labels[*address as usize];
            }
        }
    }

    fn constant_index(&mut self, value: Value<'static>) -> u32 {
        self.program.constants.push(value);
        self.program.constants.len() as u32 - 1
    }

    fn text_index(&mut self, text: &str) -> u32 {
        let known = self
            .program
            .constants
            .iter()
            .position(|constant| matches!(constant, Value::String(known) if **known == *text));
        match known {
            Some(known) => known as u32,
            None => self.constant_index(Value::shared_string(text)),
        }
    }

    fn type_of(&self, node: NodeId) -> &Type {
        &self.checked.types[node as usize]
    }

    /// Whether a value may turn out to be an optional.
    fn may_be_optional(&self, node: NodeId) -> bool {
        matches!(self.type_of(node), Type::Opaque(..) | Type::Dyn | Type::Any | Type::Parameter(_))
    }

    fn find(&self, scope: Scope, name: &str) -> Option<u32> {
        let mut scope = scope;
        while let Some(binding) = scope.and_then(|index| self.scopes.get(index as usize)) {
            if *binding.name == *name {
                return Some(binding.slot);
            }
            scope = binding.outer;
        }
        None
    }

    fn bind(&mut self, scope: Scope, name: &Arc<str>) -> (u32, Scope) {
        let slot = self.program.slots;
        self.program.slots += 1;
        self.program.lazy.push(None);
        self.scopes.push(Binding { name: name.clone(), slot, outer: scope });
        (slot, Some(self.scopes.len() as u32 - 1))
    }

    fn node(&mut self, node: NodeId, scope: Scope, free: bool) -> Result<(), String> {
        let syntax = &self.ast.nodes[node as usize];
        if self.marks && syntax.end > syntax.start {
            self.tasks.push(Task::Op(Op::Mark(node)));
        }
        if let Some(value) = self.constants[node as usize].clone() {
            let index = self.constant_index(value);
            self.program.ops.push(Op::Constant(index));
            return Ok(());
        }
        if let Reference::Variable(name) = &self.checked.references[node as usize] {
            let op = match self.find(scope, name) {
                Some(slot) => Op::Variable { slot, free },
                None if is_device_variable(name) => {
                    self.reads_everything();
                    Op::Device { free }
                }
                None => Op::Fail(format!("no such attribute(s): {name}").into()),
            };
            self.program.ops.push(op);
            return Ok(());
        }
        match self.ast.kind(node) {
            Kind::Select { .. } => self.chain(node, scope, free),
            Kind::Call { function, arguments, target } => {
                if matches!(
                    &**function,
                    operators::INDEX | operators::OPTIONAL_INDEX | operators::OPTIONAL_SELECT
                ) && target.is_none()
                {
                    return self.chain(node, scope, free);
                }
                let (arguments, target) = (arguments.clone(), *target);
                self.call(node, scope, &arguments, target)
            }
            Kind::List { elements, optional } => {
                let (elements, optional) = (elements.clone(), optional.clone());
                self.list(&elements, &optional, scope);
                Ok(())
            }
            Kind::Map { .. } => {
                self.map(node, scope);
                Ok(())
            }
            Kind::Message { .. } => {
                self.message(node, scope);
                Ok(())
            }
            Kind::Comprehension(comprehension) => {
                let comprehension = comprehension.clone();
                self.comprehension(&comprehension, scope);
                Ok(())
            }
            // Literals are constants and identifiers are references.
            Kind::Literal(_) | Kind::Identifier(_) => Err("unresolved name".to_owned()),
        }
    }
}

/// Whether a name not declared by a loop is the device's.
fn is_device_variable(name: &str) -> bool {
    name.strip_prefix('.').unwrap_or(name) == "device"
}
