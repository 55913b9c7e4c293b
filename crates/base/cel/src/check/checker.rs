//! The type checker: finds the overload of every call and the type of every node, with the verdicts and messages of
//! cel-go's checker.
//!
//! Upstream recurses over the tree; this one keeps a list of pending tasks.

mod calls;
mod comprehensions;
mod literals;
mod names;

use std::collections::HashMap;
use std::sync::Arc;

use tessera_api::kubernetes::KubernetesVersion;

use crate::check::declarations::{Function, Overload};
use crate::check::messages::EMPTY;
use crate::check::types::{DEVICE, QUANTITY, Type};
use crate::check::unify::Substitutions;
use crate::environment::{Environment, Origin};
use crate::syntax::ast::{Ast, Kind, Literal, NodeId, operators};
use crate::syntax::source::Issue;

/// Largest number of parts of a type. Upstream has no limit, but `cel.bind` can double a type with every level.
const LARGEST_TYPE: usize = 1_000;

/// Largest number of reported issues.
const MOST_ISSUES: usize = 100;

/// The target of a name or call.
#[derive(Debug, Clone, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A variable. With a dot in front: the variable outside of all loops, even if a loop declares the same name.
    Variable(Arc<str>),
    /// A type by its name; the dot as for a variable.
    TypeName(Arc<str>),
    /// A function; `target` is whether the call's target is one of its arguments.
    Function { function: &'static Function, overloads: Vec<&'static Overload>, target: bool },
}

/// The result of checking: types and references by node.
#[derive(Debug)]
pub(crate) struct Checked {
    pub types: Vec<Type>,
    pub references: Vec<Reference>,
    /// The release of the applied rules.
    pub version: KubernetesVersion,
}

enum Task {
    Enter(NodeId),
    Operand(NodeId),
    Arguments(NodeId),
    Target(NodeId),
    List(NodeId),
    Map(NodeId),
    Message(NodeId),
    Range(NodeId),
    Condition(NodeId, Type),
    Step(NodeId, Type),
    Result(NodeId),
}

/// Checks the whole of `ast`.
pub(crate) fn check(ast: &Ast, environment: Environment, origin: Origin) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        ast,
        environment,
        origin,
        types: vec![None; ast.nodes.len()],
        references: vec![Reference::None; ast.nodes.len()],
        substitutions: Substitutions::default(),
        scopes: vec![HashMap::new()],
        issues: Vec::new(),
        tasks: vec![Task::Enter(ast.root)],
        too_large: false,
    };
    checker.scopes[0].insert("device".into(), Type::Struct(DEVICE));
    while let Some(task) = checker.tasks.pop() {
        checker.step(task);
        if checker.too_large || checker.issues.len() >= MOST_ISSUES {
            break;
        }
    }
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types = checker
        .types
        .iter()
        .map(|found| found.as_ref().map_or(Type::Dyn, |found| checker.substitutions.resolve(found, true)))
        .collect();
    Ok(Checked { types, references: checker.references, version: environment.version })
}

struct Checker<'a> {
    ast: &'a Ast,
    environment: Environment,
    origin: Origin,
    types: Vec<Option<Type>>,
    references: Vec<Reference>,
    substitutions: Substitutions,
    scopes: Vec<HashMap<Arc<str>, Type>>,
    issues: Vec<Issue>,
    tasks: Vec<Task>,
    too_large: bool,
}

impl Checker<'_> {
    fn report(&mut self, node: NodeId, message: impl Into<String>) {
        self.issues.push(Issue::at(self.ast.nodes[node as usize].at, message));
    }

    fn set(&mut self, node: NodeId, value: Type) {
        if value.is_larger_than(LARGEST_TYPE) {
            self.report(node, format!("type of the expression has more than {LARGEST_TYPE} parts"));
            self.too_large = true;
        }
        if let Some(old) = &self.types[node as usize]
            && *old != value
        {
            let message = format!("incompatible type already exists for expression: old:{old}, new:{value}");
            self.report(node, message);
            return;
        }
        self.types[node as usize] = Some(value);
    }

    fn get(&self, node: NodeId) -> Type {
        self.types[node as usize].clone().unwrap_or(Type::Error)
    }

    fn resolved(&self, node: NodeId) -> Type {
        self.substitutions.resolve(&self.get(node), false)
    }

    fn enter_all(&mut self, nodes: impl DoubleEndedIterator<Item = NodeId>) {
        self.tasks.extend(nodes.rev().map(Task::Enter));
    }

    fn step(&mut self, task: Task) {
        match task {
            Task::Enter(node) => self.enter(node),
            Task::Operand(node) => self.after_operand(node),
            Task::Arguments(node) => self.after_arguments(node),
            Task::Target(node) => self.after_target(node),
            Task::List(node) => self.list(node),
            Task::Map(node) => self.map(node),
            Task::Message(node) => self.message(node),
            Task::Range(node) => self.after_range(node),
            Task::Condition(node, accumulator) => self.after_condition(node, accumulator),
            Task::Step(node, accumulator) => self.after_step(node, accumulator),
            Task::Result(node) => {
                if let Kind::Comprehension(comprehension) = self.ast.kind(node) {
                    let result = self.resolved(comprehension.result);
                    self.scopes.pop();
                    self.set(node, result);
                }
            }
        }
    }

    fn enter(&mut self, node: NodeId) {
        match self.ast.kind(node) {
            Kind::Literal(literal) => {
                let found = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set(node, found);
            }
            Kind::Identifier(name) => {
                let name = name.clone();
                if !self.refer(node, &name) {
                    self.set(node, Type::Error);
                    self.report(node, format!("undeclared reference to '{name}' (in container '')"));
                }
            }
            Kind::Select { operand, test_only, .. } => {
                let operand = *operand;
                if !test_only
                    && let Some(name) = self.ast.qualified_name(node)
                    && self.refer(node, &name)
                {
                    return;
                }
                self.tasks.push(Task::Operand(node));
                self.tasks.push(Task::Enter(operand));
            }
            Kind::Call { function, arguments, target } => {
                if &**function == operators::OPTIONAL_SELECT && target.is_none() {
                    self.tasks.push(Task::Operand(node));
                    self.tasks.push(Task::Enter(arguments[0]));
                    return;
                }
                self.tasks.push(Task::Arguments(node));
                self.enter_all(arguments.clone().into_iter());
            }
            Kind::List { elements, .. } => {
                self.tasks.push(Task::List(node));
                self.enter_all(elements.clone().into_iter());
            }
            Kind::Map { entries } => {
                self.tasks.push(Task::Map(node));
                let nodes: Vec<NodeId> = entries.iter().flat_map(|entry| [entry.key, entry.value]).collect();
                self.enter_all(nodes.into_iter());
            }
            Kind::Message { fields, .. } => {
                self.tasks.push(Task::Message(node));
                let nodes: Vec<NodeId> = fields.iter().map(|field| field.value).collect();
                self.enter_all(nodes.into_iter());
            }
            Kind::Comprehension(comprehension) => {
                self.tasks.push(Task::Range(node));
                self.enter_all([comprehension.range, comprehension.initial].into_iter());
            }
        }
    }

    fn device_field(&self, field: &str) -> Option<Type> {
        let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        Some(match field {
            "driver" => Type::String,
            "allowMultipleAllocations" => Type::Bool,
            "attributes" => {
                let dynamic = self.environment.attributes_are_dyn(self.origin);
                by_domain(if dynamic { Type::Dyn } else { Type::Any })
            }
            "capacity" => by_domain(Type::Struct(QUANTITY)),
            _ => return None,
        })
    }

    fn after_operand(&mut self, node: NodeId) {
        match self.ast.kind(node) {
            Kind::Select { operand, field, test_only } => {
                let (operand, field, test_only) = (*operand, field.clone(), *test_only);
                let selected = self.select(node, operand, &field, false);
                self.set(node, if test_only { Type::Bool } else { selected });
            }
            Kind::Call { arguments, .. } => {
                let (operand, field) = (arguments[0], arguments[1]);
                let Kind::Literal(Literal::String(name)) = self.ast.kind(field) else { return };
                let name = name.clone();
                let selected = self.select(node, operand, &name, true);
                self.set(node, selected);
                self.set(field, Type::String);
            }
            _ => {}
        }
    }

    fn select(&mut self, node: NodeId, operand: NodeId, field: &str, optional: bool) -> Type {
        let operand = self.resolved(operand);
        let (target, was_optional) = operand.unwrap_optional();
        let found = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Struct(name) => {
                let found = if *name == DEVICE { self.device_field(field) } else { None };
                match found {
                    Some(found) => found,
                    None if [DEVICE, EMPTY].contains(name) => {
                        self.report(node, format!("undefined field '{field}'"));
                        Type::Error
                    }
                    None => {
                        self.report(node, format!("unexpected failed resolution of '{name}'"));
                        Type::Error
                    }
                }
            }
            Type::Parameter(_) => {
                self.substitutions.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    let message = format!("type '{}' does not support field selection", other.in_messages());
                    self.report(node, message);
                }
                Type::Dyn
            }
        };
        let found = if was_optional || optional { Type::optional(found) } else { found };
        self.substitutions.resolve(&found, false)
    }
}
