//! From checked tree to program: folds constants, resolves variables to slots, picks implementations.
//!
//! What upstream folds decides what it refuses and what it counts, so exactly that is folded here.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use crate::check::checker::{Checked, Reference};
use crate::check::declarations::{Function, Overload, is_runtime_type, named_type};
use crate::check::types::Type;
use crate::check::validators::collect_children;
use crate::device::Device;
use crate::evaluate::cost;
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::map::Map;
use crate::evaluate::program::{
    CallSite, Comparison, ConstantSet, Op, OrderResult, PatternFunction, Program, Read, Target, Test,
};
use crate::evaluate::show;
use crate::evaluate::value::{Ref, Side, Value, runtime_name};
use crate::functions::{self, pattern};
use crate::syntax::ast::{Ast, Comprehension, Kind, Literal, NodeId, operators};

/// What a selector reads of a device: two devices that agree in this get the same answer.
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
    /// Domains of which any attribute may be read.
    pub attribute_domains: BTreeSet<String>,
    /// Domains of which any capacity may be read.
    pub capacity_domains: BTreeSet<String>,
    /// Any attribute may be read.
    pub all_attributes: bool,
    /// Any capacity may be read.
    pub all_capacity: bool,
}

/// Plans a program. With `marks` it shows the value of every node that has text.
pub(crate) fn plan(ast: &Ast, checked: &Checked, marks: bool) -> Result<(Program, Reads), String> {
    let mut planner = Planner {
        ast,
        checked,
        marks,
        program: Program::default(),
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

/// A variable that is visible.
struct Binding {
    name: Arc<str>,
    slot: u32,
    outer: Scope,
}

enum Task {
    /// `free`: read as a part of something else, which upstream does not count.
    Node {
        node: NodeId,
        scope: Scope,
        free: bool,
    },
    Op(Op),
    /// Names the next instruction's address.
    Label(u32),
}

/// One step of a chain of selections.
enum Step {
    Constant { key: Value<'static>, optional: bool, test: bool },
    Dynamic { index: NodeId, optional: bool },
}

struct Planner<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    marks: bool,
    program: Program,
    reads: Reads,
    /// Values of the nodes that are constants.
    constants: Vec<Option<Value<'static>>>,
    /// Addresses by label; instructions name labels until they are linked.
    labels: Vec<u32>,
    scopes: Vec<Binding>,
    tasks: Vec<Task>,
    /// Variables whose code is yet to be made.
    lazy: Vec<(u32, NodeId, Scope)>,
}

static NO_DEVICE: LazyLock<Device> = LazyLock::new(Device::default);
static NO_PROGRAM: LazyLock<Program> = LazyLock::new(Program::default);

/// Runs something outside any evaluation.
fn with_machine<T>(run: impl FnOnce(&mut Machine<'static>) -> T) -> T {
    run(&mut Machine::new(&*NO_DEVICE, &NO_PROGRAM, u64::MAX))
}

fn stop_reason(stop: Stop) -> String {
    match stop {
        Stop::Internal(reason) => reason.into(),
        Stop::Cost | Stop::Memory => "constant is too large".to_owned(),
    }
}

const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions that only read a text: with a constant one their result is made when planning.
const PARSERS: [&str; 9] =
    ["quantity", "isQuantity", "semver", "isSemver", "ip", "isIP", "cidr", "isCIDR", "ip.isCanonical"];

impl Planner<'_> {
    // Constants.

    fn fold(&mut self) -> Result<(), String> {
        let mut open = vec![(self.ast.root, false)];
        let mut children = Vec::new();
        while let Some((node, seen)) = open.pop() {
            if seen {
                self.constants[node as usize] = self.constant(node)?;
                continue;
            }
            open.push((node, true));
            children.clear();
            collect_children(self.ast.kind(node), &mut children);
            open.extend(children.iter().rev().map(|child| (*child, false)));
        }
        Ok(())
    }

    fn constant(&self, node: NodeId) -> Result<Option<Value<'static>>, String> {
        if let Reference::TypeName(name) = &self.checked.references[node as usize] {
            if !is_runtime_type(name) {
                return Err(format!("reference to undefined type: {name}"));
            }
            return Ok(named_type(name).map(|found| Value::Type(runtime_name(&found))));
        }
        Ok(match self.ast.kind(node) {
            Kind::Literal(literal) => Some(match literal {
                Literal::Null => Value::Null,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Uint(value) => Value::Uint(*value),
                Literal::Double(value) => Value::Double(*value),
                Literal::String(value) => Value::String(Ref::Shared(value.clone())),
                Literal::Bytes(value) => Value::Bytes(Ref::Shared(value.clone())),
            }),
            Kind::List { elements, optional } => {
                let Some(values) = self.all_constant(elements.iter()) else { return Ok(None) };
                for (value, optional) in values.iter().zip(optional) {
                    if *optional {
                        let shown = with_machine(|machine| show::show(machine, value));
                        return Ok(Some(Value::error(format!(
                            "cannot initialize optional list element from non-optional value {shown}"
                        ))));
                    }
                }
                Some(Value::list(values))
            }
            Kind::Map { entries } => {
                let keys = self.all_constant(entries.iter().map(|entry| &entry.key));
                let values = self.all_constant(entries.iter().map(|entry| &entry.value));
                let (Some(keys), Some(values)) = (keys, values) else { return Ok(None) };
                let mut map = Map::default();
                for ((key, value), entry) in keys.into_iter().zip(values).zip(entries) {
                    if entry.optional {
                        let shown =
                            with_machine(|machine| (show::show(machine, &key), show::show(machine, &value)));
                        return Ok(Some(Value::error(format!(
                            "cannot initialize optional entry '{}' from non-optional value {}",
                            shown.0, shown.1
                        ))));
                    }
                    map.set(key, value).map_err(|unhashable| stop_reason(unhashable.into()))?;
                }
                Some(Value::Map(Arc::new(map)))
            }
            Kind::Call { arguments, target, .. } => {
                let Reference::Function { function, overloads, .. } = &self.checked.references[node as usize]
                else {
                    return Ok(None);
                };
                self.constant_call(function, overloads, *target, arguments)?
            }
            _ => None,
        })
    }

    fn all_constant<'n>(&self, nodes: impl Iterator<Item = &'n NodeId>) -> Option<Vec<Value<'static>>> {
        nodes.map(|node| self.constants[*node as usize].clone()).collect()
    }

    fn constant_call(
        &self,
        function: &'static Function,
        overloads: &[&'static Overload],
        target: Option<NodeId>,
        arguments: &[NodeId],
    ) -> Result<Option<Value<'static>>, String> {
        if function.name == operators::IN
            && is_in_list(overloads)
            && let Some(Value::List(list)) = &self.constants[arguments[1] as usize]
            && list.len() == 0
        {
            return Ok(Some(Value::Bool(false)));
        }
        let (true, [argument], None) = (CONVERSIONS.contains(&function.name), arguments, target) else {
            return Ok(None);
        };
        let Some(value) = self.constants[*argument as usize].clone() else { return Ok(None) };
        let site = CallSite {
            function: function.name,
            arguments: 1,
            rule: cost::CostRule::Fixed(0),
            target: call_target(function, overloads),
        };
        match with_machine(|machine| machine.call_constant(&site, &[value])) {
            Ok(Value::Error(message)) => Err(message.to_string()),
            Ok(value) => Ok(Some(value)),
            Err(stop) => Err(stop_reason(stop)),
        }
    }

    // Instructions.

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

    /// Queues tasks so that the first of them runs first.
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
                None => {
                    self.reads_everything();
                    Op::Device { free }
                }
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
            Kind::Message { name, fields } => {
                let end = self.label();
                let mut tasks = Vec::new();
                for (index, field) in fields.iter().enumerate() {
                    tasks.push(Task::Node { node: field.value, scope, free: false });
                    tasks.push(Task::Op(Op::Check { below: index as u32, end }));
                }
                tasks.push(Task::Op(Op::Fail(format!("unknown type '{name}'").into())));
                tasks.push(Task::Op(Op::Check { below: fields.len() as u32, end }));
                tasks.push(Task::Label(end));
                tasks.push(Task::Op(Op::Charge(40)));
                self.queue(tasks);
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

    fn reads_everything(&mut self) {
        self.reads.driver = true;
        self.reads.allow_multiple_allocations = true;
        self.reads.all_attributes = true;
        self.reads.all_capacity = true;
    }

    // Selections.

    fn chain(&mut self, node: NodeId, scope: Scope, free: bool) -> Result<(), String> {
        let (steps, root) = self.steps(node)?;
        let is_device = self.is_device(root, scope);
        if is_device {
            self.note_reads(&steps);
            if let Some(read) = self.direct_read(&steps) {
                self.program.ops.push(Op::Read { read, free });
                return Ok(());
            }
        }
        self.general_chain(&steps, root, is_device, scope, free);
        Ok(())
    }

    fn is_device(&self, root: NodeId, scope: Scope) -> bool {
        matches!(&self.checked.references[root as usize],
            Reference::Variable(name) if self.find(scope, name).is_none())
    }

    /// The direct read that a node is, if it is one.
    fn read_of(&mut self, node: NodeId, scope: Scope) -> Result<Option<Read>, String> {
        if self.constants[node as usize].is_some() {
            return Ok(None);
        }
        let (steps, root) = self.steps(node)?;
        if !self.is_device(root, scope) {
            return Ok(None);
        }
        let read = self.direct_read(&steps);
        if read.is_some() {
            self.note_reads(&steps);
        }
        Ok(read)
    }

    /// A chain of selections: its steps and what it starts from.
    fn steps(&self, node: NodeId) -> Result<(Vec<Step>, NodeId), String> {
        let mut steps = Vec::new();
        let mut root = node;
        loop {
            if self.constants[root as usize].is_some()
                || matches!(self.checked.references[root as usize], Reference::Variable(_))
            {
                break;
            }
            match self.ast.kind(root) {
                Kind::Select { operand, field, test_only } => {
                    let key = Value::String(Ref::Shared(field.clone()));
                    steps.push(Step::Constant { key, optional: false, test: *test_only });
                    root = *operand;
                }
                Kind::Call { function, arguments, target: None }
                    if matches!(
                        &**function,
                        operators::INDEX | operators::OPTIONAL_INDEX | operators::OPTIONAL_SELECT
                    ) =>
                {
                    let optional = &**function != operators::INDEX;
                    let index = arguments[1];
                    let constant = match self.ast.kind(index) {
                        Kind::Literal(Literal::String(text)) => {
                            Some(Value::String(Ref::Shared(text.clone())))
                        }
                        _ => self.constants[index as usize].clone(),
                    };
                    steps.push(match constant {
                        Some(
                            key @ (Value::Bool(_)
                            | Value::Int(_)
                            | Value::Uint(_)
                            | Value::Double(_)
                            | Value::String(_)),
                        ) => Step::Constant { key, optional, test: false },
                        Some(other) => return Err(format!("invalid qualifier type: {}", other.go_type())),
                        None => Step::Dynamic { index, optional },
                    });
                    root = arguments[0];
                }
                _ => break,
            }
        }
        steps.reverse();
        Ok((steps, root))
    }

    fn note_reads(&mut self, steps: &[Step]) {
        let text = |step: Option<&Step>| match step {
            Some(Step::Constant { key: Value::String(text), .. }) => Some((**text).to_owned()),
            _ => None,
        };
        let (domain, name) = (text(steps.get(1)), text(steps.get(2)));
        let reads = &mut self.reads;
        match text(steps.first()).as_deref() {
            Some("driver") => reads.driver = true,
            Some("allowMultipleAllocations") => reads.allow_multiple_allocations = true,
            Some(side @ ("attributes" | "capacity")) => {
                let (single, domains, all) = if side == "attributes" {
                    (&mut reads.attributes, &mut reads.attribute_domains, &mut reads.all_attributes)
                } else {
                    (&mut reads.capacity, &mut reads.capacity_domains, &mut reads.all_capacity)
                };
                match (domain, name) {
                    (Some(domain), Some(name)) => {
                        single.insert((domain, name));
                    }
                    (Some(domain), None) => {
                        domains.insert(domain);
                    }
                    _ => *all = true,
                }
            }
            _ => self.reads_everything(),
        }
    }

    /// What nearly every selector reads, if the steps are that.
    fn direct_read(&mut self, steps: &[Step]) -> Option<Read> {
        let text = |step: &Step| match step {
            Step::Constant { key: Value::String(text), optional: false, test: false } => Some(text.clone()),
            _ => None,
        };
        match steps {
            [field] => match &*text(field)? {
                "driver" => Some(Read::Driver),
                "allowMultipleAllocations" => Some(Read::MultipleAllocations),
                _ => None,
            },
            [side, domain, name] => {
                let side = match &*text(side)? {
                    "attributes" => Side::Attributes,
                    "capacity" => Side::Capacity,
                    _ => return None,
                };
                let (domain, name) = (text(domain)?, text(name)?);
                let (domain, name) = (self.text_index(&domain), self.text_index(&name));
                Some(Read::Named { side, domain, name })
            }
            _ => None,
        }
    }

    fn general_chain(&mut self, steps: &[Step], root: NodeId, is_device: bool, scope: Scope, free: bool) {
        let is_test = matches!(steps.last(), Some(Step::Constant { test: true, .. }));
        let is_conditional = matches!(self.ast.kind(root),
            Kind::Call { function, .. } if &**function == operators::CONDITIONAL)
            && self.constants[root as usize].is_none();
        let is_variable = matches!(self.checked.references[root as usize], Reference::Variable(_));
        let any_optional = steps.iter().any(|step| match step {
            Step::Constant { optional, .. } | Step::Dynamic { optional, .. } => *optional,
        });
        let chained = any_optional || (!is_device && self.may_be_optional(root));
        let end = self.label();
        let mut tasks = Vec::new();
        if is_device {
            tasks.push(Task::Op(Op::Device { free: true }));
        } else {
            tasks.push(Task::Node { node: root, scope, free: is_variable });
        }
        if chained {
            tasks.push(Task::Op(Op::ChainBegin { end }));
        }
        for step in steps {
            match step {
                Step::Constant { key, optional, test } => {
                    let key = match key {
                        Value::String(text) => self.text_index(text),
                        other => self.constant_index(other.clone()),
                    };
                    tasks.push(Task::Op(Op::Qualify { key, optional: *optional, test: *test, chained, end }));
                }
                Step::Dynamic { index, optional } => {
                    // An error so far is not followed by the index.
                    tasks.push(Task::Op(Op::Check { below: 0, end }));
                    tasks.push(Task::Node { node: *index, scope, free: true });
                    tasks.push(Task::Op(Op::QualifyBy { optional: *optional, chained, end }));
                }
            }
        }
        tasks.push(Task::Label(end));
        tasks.push(Task::Op(Op::ChainEnd { chained, free: free || is_conditional || is_test }));
        if is_test && !free {
            tasks.push(Task::Op(Op::TestEnd { refund: is_conditional }));
        }
        self.queue(tasks);
    }

    // Calls.

    fn call(
        &mut self,
        node: NodeId,
        scope: Scope,
        arguments: &[NodeId],
        target: Option<NodeId>,
    ) -> Result<(), String> {
        let Reference::Function { function, overloads, target: has_target } =
            self.checked.references[node as usize].clone()
        else {
            return Err("unresolved function".to_owned());
        };
        let mut operands: Vec<NodeId> = Vec::with_capacity(arguments.len() + 1);
        if has_target {
            operands.extend(target);
        }
        operands.extend(arguments);
        let value = |node: NodeId| Task::Node { node, scope, free: false };
        let single = (overloads.len() == 1).then(|| overloads[0].id);
        match function.name {
            operators::AND | operators::OR => {
                let and = function.name == operators::AND;
                let end = self.label();
                let mut tasks = vec![Task::Op(Op::LogicBegin(and))];
                for operand in operands {
                    tasks.push(value(operand));
                    tasks.push(Task::Op(Op::LogicTerm { and, end }));
                }
                tasks.push(Task::Label(end));
                self.queue(tasks);
            }
            operators::CONDITIONAL => self.conditional(&operands, scope),
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
                if !self.marks
                    && self.constants[operands[1] as usize].is_some()
                    && let Some(read) = self.read_of(operands[0], scope)? =>
            {
                let test = match function.name {
                    operators::EQUALS => Test::Equal,
                    operators::NOT_EQUALS => Test::NotEqual,
                    other => Test::Order(comparison(other)),
                };
                let rule = match test {
                    Test::Equal => cost::CostRule::Equals,
                    Test::NotEqual => cost::CostRule::TraverseSmaller,
                    Test::Order(_) => cost::rule(function.name, single),
                };
                let constant = match self.constants[operands[1] as usize].clone() {
                    Some(value) => self.constant_index(value),
                    None => return Err("constant is missing".to_owned()),
                };
                self.program.ops.push(Op::Test { read, constant, test, rule });
            }
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
                if let Some((op, number)) = self.compared_order(function.name, &operands, scope)? =>
            {
                let Op::TestOrder { read, constant, parse_cost, site, .. } = op else {
                    return Err("unexpected instruction".to_owned());
                };
                let then = OrderResult::Compared(comparison(function.name), number);
                self.program.ops.push(Op::TestOrder { read, constant, parse_cost, site, then });
            }
            operators::EQUALS | operators::NOT_EQUALS => {
                let op = if function.name == operators::EQUALS { Op::Equal } else { Op::NotEqual };
                self.queue(vec![value(operands[0]), value(operands[1]), Task::Op(op)]);
            }
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
                let comparison = comparison(function.name);
                let rule = cost::rule(function.name, single);
                self.queue(vec![
                    value(operands[0]),
                    value(operands[1]),
                    Task::Op(Op::Compare { comparison, rule }),
                ]);
            }
            operators::NOT => self.queue(vec![value(operands[0]), Task::Op(Op::Not)]),
            operators::NOT_STRICTLY_FALSE => {
                self.queue(vec![value(operands[0]), Task::Op(Op::NotStrictlyFalse)]);
            }
            "or" | "orValue" => {
                let end = self.label();
                self.queue(vec![
                    value(operands[0]),
                    Task::Op(Op::OrElse { value: function.name == "orValue", end }),
                    value(operands[1]),
                    Task::Label(end),
                ]);
            }
            operators::IN if is_in_list(&overloads) => match self.constant_set(operands[1]) {
                Some(set) => {
                    self.program.sets.push(set);
                    let index = self.program.sets.len() as u32 - 1;
                    self.queue(vec![value(operands[0]), Task::Op(Op::InSet(index))]);
                }
                None => self.plain_call(function, &overloads, &operands, scope)?,
            },
            _ => match self.order_call(node, scope)? {
                Some(op) => self.program.ops.push(op),
                None => self.plain_call(function, &overloads, &operands, scope)?,
            },
        }
        Ok(())
    }

    /// `x.compareTo(quantity("…")) >= 0` and the like: the call and the number.
    fn compared_order(
        &mut self,
        operator: &str,
        operands: &[NodeId],
        scope: Scope,
    ) -> Result<Option<(Op, i64)>, String> {
        if matches!(operator, operators::EQUALS | operators::NOT_EQUALS) {
            return Ok(None);
        }
        let Some(Value::Int(number)) = self.constants[operands[1] as usize] else { return Ok(None) };
        Ok(match self.order_call(operands[0], scope)? {
            Some(op @ Op::TestOrder { then: OrderResult::Number, .. }) => Some((op, number)),
            _ => None,
        })
    }

    /// `x.compareTo(quantity("…"))` and the like, where `x` is read directly.
    fn order_call(&mut self, node: NodeId, scope: Scope) -> Result<Option<Op>, String> {
        if self.marks {
            return Ok(None);
        }
        let Reference::Function { function, overloads, target: true } =
            &self.checked.references[node as usize]
        else {
            return Ok(None);
        };
        let then = match function.name {
            "compareTo" => OrderResult::Number,
            "isGreaterThan" => OrderResult::Greater,
            "isLessThan" => OrderResult::Less,
            _ => return Ok(None),
        };
        let (function, overloads) = (*function, overloads.clone());
        let (Kind::Call { target: Some(target), arguments, .. }, [_]) =
            (self.ast.kind(node), overloads.as_slice())
        else {
            return Ok(None);
        };
        let (target, argument) = (*target, arguments[0]);
        let Reference::Function { function: parser, overloads: parsers, target: false } =
            &self.checked.references[argument as usize]
        else {
            return Ok(None);
        };
        let (parser, parsers) = (*parser, parsers.clone());
        let Kind::Call { arguments, .. } = self.ast.kind(argument) else { return Ok(None) };
        let Some((parse_cost, made)) = self.parsed_constant(parser, &parsers, arguments)? else {
            return Ok(None);
        };
        let Some(read) = self.read_of(target, scope)? else { return Ok(None) };
        let constant = self.constant_index(made);
        self.program.sites.push(CallSite {
            function: function.name,
            arguments: 2,
            rule: cost::CostRule::Fixed(1),
            target: call_target(function, &overloads),
        });
        let site = self.program.sites.len() as u32 - 1;
        Ok(Some(Op::TestOrder { read, constant, parse_cost, site, then }))
    }

    /// What a function that only reads a text makes of a constant one, and its cost.
    fn parsed_constant(
        &self,
        function: &'static Function,
        overloads: &[&'static Overload],
        operands: &[NodeId],
    ) -> Result<Option<(u64, Value<'static>)>, String> {
        if !PARSERS.contains(&function.name) {
            return Ok(None);
        }
        let Some(arguments) = self.all_constant(operands.iter()) else { return Ok(None) };
        let rule = cost::rule(function.name, (overloads.len() == 1).then(|| overloads[0].id));
        let target = call_target(function, overloads);
        let site = CallSite { function: function.name, arguments: 0, rule: cost::CostRule::Fixed(0), target };
        with_machine(|machine| {
            let cost = cost::cost(machine, rule, &arguments, None)?;
            machine.call_constant(&site, &arguments).map(|value| Some((cost, value))).map_err(stop_reason)
        })
    }

    fn conditional(&mut self, operands: &[NodeId], scope: Scope) {
        let (otherwise, end) = (self.label(), self.label());
        let mut tasks = vec![
            Task::Node { node: operands[0], scope, free: false },
            Task::Op(Op::Branch { otherwise, end }),
        ];
        for (index, branch) in operands[1..].iter().enumerate() {
            tasks.push(Task::Node { node: *branch, scope, free: true });
            if self.may_be_optional(*branch) {
                tasks.push(Task::Op(Op::Reread));
            }
            if index == 0 {
                tasks.push(Task::Op(Op::Jump(end)));
                tasks.push(Task::Label(otherwise));
            }
        }
        tasks.push(Task::Label(end));
        self.queue(tasks);
    }

    /// The constants of a list as a set, where upstream makes one.
    fn constant_set(&self, node: NodeId) -> Option<ConstantSet> {
        let Some(Value::List(list)) = &self.constants[node as usize] else { return None };
        let mut set = ConstantSet::default();
        for value in list.iter() {
            match value {
                Value::String(text) => {
                    set.strings.insert((**text).into());
                }
                Value::Bool(value) => set.bools[usize::from(*value)] = true,
                Value::Int(value) => {
                    set.ints.insert(*value);
                    set.doubles.insert((*value as f64 + 0.0).to_bits());
                    if let Ok(value) = u64::try_from(*value) {
                        set.uints.insert(value);
                    }
                }
                Value::Uint(value) => {
                    set.uints.insert(*value);
                    set.doubles.insert((*value as f64).to_bits());
                    if let Ok(value) = i64::try_from(*value) {
                        set.ints.insert(value);
                    }
                }
                Value::Double(value) => {
                    if !value.is_nan() {
                        set.doubles.insert((value + 0.0).to_bits());
                    }
                    set.ints.extend(crate::evaluate::map::lossless_int(*value));
                    set.uints.extend(crate::evaluate::map::lossless_uint(*value));
                }
                _ => return None,
            }
        }
        Some(set)
    }

    fn plain_call(
        &mut self,
        function: &'static Function,
        overloads: &[&'static Overload],
        operands: &[NodeId],
        scope: Scope,
    ) -> Result<(), String> {
        let single = (overloads.len() == 1).then(|| overloads[0].id);
        let mut target = call_target(function, overloads);
        if let Some((cost, made)) = self.parsed_constant(function, overloads, operands)? {
            // The cost stays where it was, the work is done once.
            let index = self.constant_index(made);
            self.queue(vec![Task::Op(Op::Charge(cost)), Task::Op(Op::Constant(index))]);
            return Ok(());
        }
        let pattern_function = match function.name {
            "matches" => Some(PatternFunction::Matches),
            "find" => Some(PatternFunction::Find),
            "findAll" => Some(PatternFunction::FindAll),
            _ => None,
        };
        if let Some(pattern_function) = pattern_function
            && let Some(Some(Value::String(text))) =
                operands.get(1).map(|node| &self.constants[*node as usize])
        {
            target = Target::Pattern(pattern_function, Box::new(pattern::compile(text)?));
        }
        // Where upstream takes any number of arguments, it stops at the first error and does not count the call.
        let stops_early = operands.len() >= 3
            || matches!(target, Target::Dispatch(_) | Target::Pattern(..))
            || single == Some("string_format");
        let site = CallSite {
            function: function.name,
            arguments: operands.len() as u32,
            rule: cost::rule(function.name, single),
            target,
        };
        self.program.sites.push(site);
        let index = self.program.sites.len() as u32 - 1;
        let end = self.label();
        let mut tasks = Vec::new();
        for (position, operand) in operands.iter().enumerate() {
            tasks.push(Task::Node { node: *operand, scope, free: false });
            if stops_early && position + 1 < operands.len() {
                tasks.push(Task::Op(Op::Check { below: position as u32, end }));
            }
        }
        tasks.push(Task::Op(Op::Call(index)));
        tasks.push(Task::Label(end));
        self.queue(tasks);
        Ok(())
    }

    // Lists, maps, loops.

    fn list(&mut self, elements: &[NodeId], optional: &[bool], scope: Scope) {
        let end = self.label();
        let mut tasks = Vec::new();
        for (index, element) in elements.iter().enumerate() {
            let below = index as u32;
            tasks.push(Task::Node { node: *element, scope, free: false });
            tasks.push(Task::Op(if optional[index] {
                Op::CheckOptional { below, end, entry: false }
            } else {
                Op::Check { below, end }
            }));
        }
        let count = elements.len() as u32;
        tasks.push(Task::Op(if optional.contains(&true) {
            Op::MakeListOptional { count, optional: optional.into() }
        } else {
            Op::MakeList { count }
        }));
        tasks.push(Task::Label(end));
        tasks.push(Task::Op(Op::Charge(10)));
        self.queue(tasks);
    }

    fn map(&mut self, node: NodeId, scope: Scope) {
        let Kind::Map { entries } = self.ast.kind(node) else { return };
        let entries = entries.clone();
        let end = self.label();
        let mut tasks = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let below = 2 * index as u32;
            tasks.push(Task::Node { node: entry.key, scope, free: false });
            tasks.push(Task::Op(Op::Check { below, end }));
            tasks.push(Task::Node { node: entry.value, scope, free: false });
            tasks.push(Task::Op(if entry.optional {
                Op::CheckOptional { below: below + 1, end, entry: true }
            } else {
                Op::Check { below: below + 1, end }
            }));
        }
        let any_optional = entries.iter().any(|entry| entry.optional);
        let optional = any_optional.then(|| entries.iter().map(|entry| entry.optional).collect());
        tasks.push(Task::Op(Op::MakeMap { count: entries.len() as u32, optional }));
        tasks.push(Task::Label(end));
        tasks.push(Task::Op(Op::Charge(30)));
        self.queue(tasks);
    }

    fn comprehension(&mut self, comprehension: &Comprehension, scope: Scope) {
        let (accumulator, with_accumulator) = self.bind(scope, &comprehension.accumulator);
        let (first, mut inner) = self.bind(with_accumulator, &comprehension.variable);
        let second = comprehension.second_variable.as_ref().map(|name| {
            let (slot, scope) = self.bind(inner, name);
            inner = scope;
            slot
        });
        let initial = self.constants[comprehension.initial as usize].clone();
        let is_scalar = matches!(initial, Some(Value::Bool(_) | Value::Int(_)));
        let builds = match &initial {
            Some(Value::List(list)) => list.len() == 0,
            Some(Value::Map(map)) => map.len() == 0,
            _ => false,
        };
        if !is_scalar {
            self.lazy.push((accumulator, comprehension.initial, scope));
        }
        let condition = self.constants[comprehension.condition as usize].clone();
        let result = Task::Node { node: comprehension.result, scope: with_accumulator, free: false };
        let is_binding = matches!(condition, Some(Value::Bool(false)))
            && matches!(&self.constants[comprehension.range as usize], Some(Value::List(list)) if list.len() == 0);
        let (next, done, end) = (self.label(), self.label(), self.label());
        let mut tasks = Vec::new();
        if is_binding && !is_scalar {
            tasks.push(Task::Op(Op::Forget(accumulator)));
        } else {
            tasks.push(Task::Node { node: comprehension.range, scope, free: false });
            tasks.push(Task::Op(Op::FoldBegin { two: second.is_some(), accumulator, end }));
            if is_scalar {
                tasks.push(Task::Node { node: comprehension.initial, scope, free: false });
                tasks.push(Task::Op(Op::Store(accumulator)));
            }
            tasks.push(Task::Label(next));
            tasks.push(Task::Op(Op::FoldNext { first, second, done }));
            if !matches!(condition, Some(Value::Bool(true))) {
                tasks.push(Task::Node { node: comprehension.condition, scope: inner, free: false });
                tasks.push(Task::Op(Op::FoldCondition { done }));
            }
            tasks.push(Task::Node { node: comprehension.step, scope: inner, free: false });
            tasks.push(Task::Op(Op::Store(accumulator)));
            tasks.push(Task::Op(Op::Jump(next)));
            tasks.push(Task::Label(done));
            tasks.push(Task::Op(Op::FoldDone));
        }
        tasks.push(result);
        if builds {
            tasks.push(Task::Op(Op::Freeze));
        }
        tasks.push(Task::Label(end));
        self.queue(tasks);
    }
}

fn comparison(operator: &str) -> Comparison {
    match operator {
        operators::LESS => Comparison::Less,
        operators::LESS_EQUALS => Comparison::LessEquals,
        operators::GREATER => Comparison::Greater,
        _ => Comparison::GreaterEquals,
    }
}

fn is_in_list(overloads: &[&'static Overload]) -> bool {
    matches!(overloads, [only] if only.id == "in_list")
}

fn call_target(function: &'static Function, overloads: &[&'static Overload]) -> Target {
    if let Some(implementation) = functions::direct(function.name) {
        return Target::Direct(implementation);
    }
    let implementation =
        |overload: &'static Overload| functions::overload(overload.id).unwrap_or(functions::unreachable);
    match overloads {
        // Its argument types are not looked at.
        [only] if function.name == "flatten" => Target::Direct(implementation(only)),
        [only] => Target::Overload(only, implementation(only)),
        [] => Target::Missing,
        _ => {
            let all = function.overloads.iter();
            Target::Dispatch(all.map(|overload| (overload, implementation(overload))).collect())
        }
    }
}
