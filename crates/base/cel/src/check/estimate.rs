//! Upper bound of an expression's cost: the API server compares this estimate with the cost limit before accepting
//! a selector. Computed like checker/cost.go of cel-go with the estimators of k8s.io/apiserver and
//! k8s.io/dynamic-resource-allocation.
//!
//! Upstream recurses over the tree; this one keeps a list of pending tasks. The order is upstream's, because
//! sizes found on the way are remembered and some paths overwrite others ([`path`]).

mod call;
mod limits;
mod path;
mod range;
mod sizes;

use std::collections::HashMap;
use std::sync::Arc;

use call::Operand;
use path::Path;
use range::Range;
use sizes::{Entries, Variable};

use super::checker::{Checked, Reference};
use super::types::Type;
use crate::syntax::ast::{Ast, Comprehension, Kind, Literal, NodeId, operators};
use crate::syntax::macros::ACCUMULATOR;

const SELECT_COST: Range = Range { min: 1, max: 1 };
const LIST_COST: Range = Range { min: 10, max: 10 };
const MAP_COST: Range = Range { min: 30, max: 30 };
const MESSAGE_COST: Range = Range { min: 40, max: 40 };

/// Upper bound of a checked expression's cost, in the units of the cost limit.
pub(crate) fn most(ast: &Ast, checked: &Checked) -> u64 {
    let mut estimator = Estimator {
        ast,
        checked,
        paths: HashMap::new(),
        variables: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        tasks: vec![Task::Enter(ast.root)],
        costs: Vec::new(),
        operands: Vec::new(),
        elements: Vec::new(),
    };
    while let Some(task) = estimator.tasks.pop() {
        estimator.step(task);
    }
    estimator.pop().max
}

enum Task {
    Enter(NodeId),
    Select(NodeId),
    /// After one more argument of a call.
    Argument(NodeId),
    Call(NodeId),
    Dyn(NodeId),
    Element(NodeId),
    List(NodeId),
    Entry(NodeId, NodeId),
    Map(NodeId),
    Message(usize),
    Bind(NodeId),
    Bound(NodeId),
    Loop(NodeId),
    LoopResult(NodeId),
    Looped(NodeId),
}

struct Estimator<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    paths: HashMap<NodeId, Path>,
    variables: HashMap<Arc<str>, Vec<Variable>>,
    /// Known sizes, by node.
    sizes: HashMap<NodeId, Range>,
    /// Sizes of the contents of lists and maps, by node.
    entries: HashMap<NodeId, Entries>,
    tasks: Vec<Task>,
    /// Costs of finished nodes, not yet part of another's.
    costs: Vec<Range>,
    /// Arguments of open calls, with their costs.
    operands: Vec<(Operand<'a>, Range)>,
    /// Costs, key sizes and value sizes of open lists and maps.
    elements: Vec<(Range, Range, Range)>,
}

impl<'a> Estimator<'a> {
    fn pop(&mut self) -> Range {
        // Every node leaves one cost.
        self.costs.pop().unwrap_or_default()
    }

    fn queue(&mut self, tasks: impl IntoIterator<Item = Task, IntoIter: DoubleEndedIterator>) {
        self.tasks.extend(tasks.into_iter().rev());
    }

    fn type_of(&self, node: NodeId) -> &'a Type {
        &self.checked.types[node as usize]
    }

    fn operand(&mut self, node: NodeId) -> Operand<'a> {
        let mut path = self.path(node);
        if path.starts_with(ACCUMULATOR) {
            path = Path::default();
        }
        Operand { node: Some(node), path, of: self.type_of(node), size: self.size(node) }
    }

    fn step(&mut self, task: Task) {
        match task {
            Task::Enter(node) => self.enter(node),
            Task::Select(node) => self.select(node),
            Task::Argument(node) => {
                let cost = self.pop();
                let operand = self.operand(node);
                self.operands.push((operand, cost));
            }
            Task::Call(node) => self.call(node),
            Task::Dyn(node) => {
                if let Kind::Call { arguments, .. } = self.ast.kind(node) {
                    self.copy_sizes(node, arguments[0]);
                }
                let cost = self.pop().add(SELECT_COST);
                self.costs.push(cost);
            }
            Task::Element(node) => {
                let (cost, size) = (self.pop(), self.size_or_unknown(node));
                if let Some(open) = self.elements.last_mut() {
                    open.0 = open.0.add(cost);
                    open.2 = open.2.union(size);
                }
            }
            Task::Entry(key, value) => {
                let cost = self.pop();
                let cost = self.pop().add(cost);
                let (key, value) = (self.size_or_unknown(key), self.size_or_unknown(value));
                if let Some(open) = self.elements.last_mut() {
                    *open = (open.0.add(cost), open.1.union(key), open.2.union(value));
                }
            }
            Task::List(node) => {
                let (cost, _, value) = self.elements.pop().unwrap_or_default();
                self.entries.insert(node, Entries { is_list: true, key: Range::exactly(1), value });
                self.costs.push(cost.add(LIST_COST));
            }
            Task::Map(node) => {
                let (cost, key, value) = self.elements.pop().unwrap_or_default();
                self.entries.insert(node, Entries { is_list: false, key, value });
                self.costs.push(cost.add(MAP_COST));
            }
            Task::Message(fields) => {
                let first = self.costs.len() - fields;
                let cost = self.costs.drain(first..).fold(Range::default(), Range::add);
                self.costs.push(cost.add(MESSAGE_COST));
            }
            Task::Bind(node) => {
                if let Some(comprehension) = self.comprehension(node) {
                    self.push_initial(comprehension);
                }
            }
            Task::Bound(node) => self.bound(node),
            Task::Loop(node) => self.begin_loop(node),
            Task::LoopResult(node) => {
                if let Some(comprehension) = self.comprehension(node) {
                    self.forget(&comprehension.variable);
                    if let Some(second) = &comprehension.second_variable {
                        self.forget(second);
                    }
                }
            }
            Task::Looped(node) => self.looped(node),
        }
    }

    fn comprehension(&self, node: NodeId) -> Option<&'a Comprehension> {
        match self.ast.kind(node) {
            Kind::Comprehension(comprehension) => Some(comprehension),
            _ => None,
        }
    }

    fn enter(&mut self, node: NodeId) {
        if let Some(name) = self.name(node) {
            let path = self.variable(name).map_or_else(|| Path::of(name), |variable| variable.path.clone());
            self.paths.insert(node, path);
            self.costs.push(SELECT_COST);
            return;
        }
        match self.ast.kind(node) {
            Kind::Literal(_) | Kind::Identifier(_) => self.costs.push(Range::default()),
            // A test costs as much as its operand.
            Kind::Select { operand, test_only: true, .. } => self.tasks.push(Task::Enter(*operand)),
            Kind::Select { operand, .. } => self.queue([Task::Enter(*operand), Task::Select(node)]),
            Kind::Call { function, arguments, .. } if &**function == "dyn" => {
                self.queue([Task::Enter(arguments[0]), Task::Dyn(node)]);
            }
            Kind::Call { arguments, target, .. } => {
                let target = target.filter(|_| self.is_member(node));
                let operands = arguments.iter().copied().chain(target);
                let tasks: Vec<Task> = operands
                    .flat_map(|operand| [Task::Enter(operand), Task::Argument(operand)])
                    .chain([Task::Call(node)])
                    .collect();
                self.queue(tasks);
            }
            Kind::List { elements, .. } => {
                self.elements.push((Range::default(), Range::NONE, first_size(elements.is_empty())));
                let tasks: Vec<Task> = elements
                    .iter()
                    .flat_map(|element| [Task::Enter(*element), Task::Element(*element)])
                    .chain([Task::List(node)])
                    .collect();
                self.queue(tasks);
            }
            Kind::Map { entries } => {
                let size = first_size(entries.is_empty());
                self.elements.push((Range::default(), size, size));
                let tasks: Vec<Task> = entries
                    .iter()
                    .flat_map(|entry| {
                        [
                            Task::Enter(entry.key),
                            Task::Enter(entry.value),
                            Task::Entry(entry.key, entry.value),
                        ]
                    })
                    .chain([Task::Map(node)])
                    .collect();
                self.queue(tasks);
            }
            Kind::Message { fields, .. } => {
                let tasks: Vec<Task> = fields
                    .iter()
                    .map(|field| Task::Enter(field.value))
                    .chain([Task::Message(fields.len())])
                    .collect();
                self.queue(tasks);
            }
            Kind::Comprehension(comprehension) => {
                let begin = [Task::Enter(comprehension.range), Task::Enter(comprehension.initial)];
                if self.is_bind(comprehension) {
                    let rest = [Task::Bind(node), Task::Enter(comprehension.result), Task::Bound(node)];
                    self.queue(begin.into_iter().chain(rest).collect::<Vec<_>>());
                } else {
                    let rest = [
                        Task::Loop(node),
                        Task::Enter(comprehension.condition),
                        Task::Enter(comprehension.step),
                        Task::LoopResult(node),
                        Task::Enter(comprehension.result),
                        Task::Looped(node),
                    ];
                    self.queue(begin.into_iter().chain(rest).collect::<Vec<_>>());
                }
            }
        }
    }

    fn is_member(&self, node: NodeId) -> bool {
        matches!(self.checked.references[node as usize], Reference::Function { target: true, .. })
    }

    fn is_bind(&self, comprehension: &Comprehension) -> bool {
        matches!(self.ast.kind(comprehension.range), Kind::List { elements, .. } if elements.is_empty())
            && matches!(self.ast.kind(comprehension.condition), Kind::Literal(Literal::Bool(false)))
    }

    fn select(&mut self, node: NodeId) {
        let Kind::Select { operand, field, .. } = self.ast.kind(node) else { return };
        if matches!(self.type_of(*operand), Type::Map(_) | Type::Struct(_) | Type::Parameter(_)) {
            let cost = self.pop().add(SELECT_COST);
            self.costs.push(cost);
        }
        let path = self.path(*operand).append(field);
        self.paths.insert(node, path);
    }

    fn call(&mut self, node: NodeId) {
        let Kind::Call { function, arguments, .. } = self.ast.kind(node) else { return };
        let is_member = self.is_member(node);
        let target = if is_member { self.operands.pop() } else { None };
        let first = self.operands.len() - arguments.len();
        let arguments: Vec<(Operand<'a>, Range)> = self.operands.drain(first..).collect();
        let (function, overloads): (&str, Vec<&str>) = match &self.checked.references[node as usize] {
            Reference::Function { function, overloads, .. } => {
                (function.name, overloads.iter().map(|overload| overload.id).collect())
            }
            _ if &**function == operators::OPTIONAL_SELECT => (function, vec!["select_optional_field"]),
            _ => (function, Vec::new()),
        };
        let target_cost = target.as_ref().map_or(Range::default(), |(_, cost)| *cost);
        let target = target.map(|(operand, _)| operand);
        let costs: Vec<Range> = arguments.iter().map(|(_, cost)| *cost).collect();
        let arguments: Vec<Operand<'a>> = arguments.into_iter().map(|(operand, _)| operand).collect();
        let mut cost = Range::NONE;
        let mut result: Option<Range> = None;
        for overload in overloads {
            let estimate = self.function_cost(node, function, overload, target.as_ref(), &arguments, &costs);
            cost = cost.union(estimate.cost);
            if let Some(size) = estimate.size {
                result = Some(result.map_or(size, |known| known.union(size)));
            }
            let items = match overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(items), Some(container)) = (items, arguments.first().and_then(|first| first.node)) {
                result = self.entries(container).map(|entries| entries.value);
                let path = self.path(container).append(&items.into());
                self.paths.insert(node, path);
            }
            if result.is_none() {
                result = self.size(node);
            }
        }
        self.set_size(node, result);
        self.costs.push(target_cost.add(cost));
    }

    fn push_initial(&mut self, comprehension: &Comprehension) {
        let path = self.path(comprehension.initial);
        let entries = self.entries(comprehension.initial);
        let size = self.size(comprehension.initial);
        self.push(&comprehension.accumulator, Variable { path, size, entries });
    }

    fn bound(&mut self, node: NodeId) {
        let Some(comprehension) = self.comprehension(node) else { return };
        self.forget(&comprehension.accumulator);
        self.copy_sizes(node, comprehension.result);
        let cost = self.pop();
        let cost = self.pop().add(cost);
        let cost = self.pop().add(cost);
        self.costs.push(cost);
    }

    fn begin_loop(&mut self, node: NodeId) {
        let Some(comprehension) = self.comprehension(node) else { return };
        self.push_initial(comprehension);
        let entries = self.entries(comprehension.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.type_of(comprehension.range), Type::List(_)),
        };
        let (key, value) = match (&comprehension.second_variable, is_list) {
            (Some(_), true) => ("@indices", "@items"),
            (Some(_), false) => ("@keys", "@values"),
            (None, true) => ("@items", ""),
            (None, false) => ("@keys", ""),
        };
        let key_size = match key {
            "@items" => entries.map(|entries| entries.value),
            _ => entries.map(|entries| entries.key),
        };
        let path = self.path(comprehension.range).append(&key.into());
        self.push(&comprehension.variable, Variable { path, size: key_size, entries: None });
        if let Some(second) = &comprehension.second_variable {
            let path = self.path(comprehension.range).append(&value.into());
            let size = entries.map(|entries| entries.value);
            self.push(second, Variable { path, size, entries: None });
        }
    }

    fn looped(&mut self, node: NodeId) {
        let Some(comprehension) = self.comprehension(node) else { return };
        self.forget(&comprehension.accumulator);
        let result = self.pop();
        let step = self.pop();
        let condition = self.pop();
        let initial = self.pop();
        let range = self.pop();
        let count = self.size_or_unknown(comprehension.range);
        let rounds = count.multiply(step.add(condition));
        self.costs.push(range.add(initial).add(result).add(rounds));
        match self.ast.kind(comprehension.initial) {
            Kind::Literal(_) => {
                let size = self.size(comprehension.initial);
                self.set_size(node, size);
            }
            Kind::List { .. } | Kind::Map { .. } => {
                self.set_size(node, Some(count));
                let entries = self.entries(comprehension.step);
                self.set_entries(node, entries);
            }
            _ => {}
        }
    }
}

fn first_size(is_empty: bool) -> Range {
    if is_empty { Range::default() } else { Range::NONE }
}
