//! The type checker: which overload every call has and which type every node, with the verdicts and messages of cel-go
//! 0.26's checker.
//!
//! Upstream recurses over the tree; this one keeps a list of what is still to be done.

use std::collections::HashMap;
use std::sync::Arc;

use super::declarations::{self, Function, Overload};
use super::types::{DEVICE, QUANTITY, Type};
use super::unify::{Substitutions, instantiate, most_general};
use crate::syntax::ast::{Ast, Kind, Literal, NodeId, operators};
use crate::syntax::source::Issue;

/// Most parts a type may have. Upstream has no limit, but `cel.bind` can double a type with every level.
const LARGEST_TYPE: usize = 1_000;

/// Most issues that are reported.
const MOST_ISSUES: usize = 100;

/// What a name or call refers to.
#[derive(Debug, Clone, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A variable.
    Variable(Arc<str>),
    /// A type by its name.
    TypeName(Arc<str>),
    /// A function; `target` says whether the call's target is an argument of it.
    Function { function: &'static Function, overloads: Vec<&'static Overload>, target: bool },
}

/// The result of checking: types and references by node.
#[derive(Debug)]
pub(crate) struct Checked {
    pub types: Vec<Type>,
    pub references: Vec<Reference>,
}

/// Gates of Kubernetes that change the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// The alpha gate DRAListTypeAttributes: attributes may be lists, so their static type is `dyn` instead of `any`,
    /// and the macros work on them.
    pub list_type_attributes: bool,
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
pub(crate) fn check(ast: &Ast, features: Features) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        ast,
        features,
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
    Ok(Checked { types, references: checker.references })
}

struct Checker<'a> {
    ast: &'a Ast,
    features: Features,
    types: Vec<Option<Type>>,
    references: Vec<Reference>,
    substitutions: Substitutions,
    scopes: Vec<HashMap<Arc<str>, Type>>,
    issues: Vec<Issue>,
    tasks: Vec<Task>,
    too_large: bool,
}

/// What a name resolves to.
enum Named {
    Variable(Arc<str>, Type),
    TypeName(Arc<str>, Type),
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

    fn look_up(&self, name: &str) -> Option<Named> {
        let name = name.strip_prefix('.').unwrap_or(name);
        for scope in self.scopes.iter().rev() {
            if let Some((name, found)) = scope.get_key_value(name) {
                return Some(Named::Variable(name.clone(), found.clone()));
            }
        }
        let found = declarations::named_type(name)?;
        Some(Named::TypeName(name.into(), Type::Meta(Some(Arc::new(found)))))
    }

    /// Makes `node` a reference to the variable or type of this name.
    fn refer(&mut self, node: NodeId, name: &str) -> bool {
        let (reference, found) = match self.look_up(name) {
            Some(Named::Variable(name, found)) => (Reference::Variable(name), found),
            Some(Named::TypeName(name, found)) => (Reference::TypeName(name), found),
            None => return false,
        };
        self.set(node, found);
        self.references[node as usize] = reference;
        true
    }

    fn device_field(&self, field: &str) -> Option<Type> {
        let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        Some(match field {
            "driver" => Type::String,
            "allowMultipleAllocations" => Type::Bool,
            "attributes" => by_domain(if self.features.list_type_attributes { Type::Dyn } else { Type::Any }),
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
                    None if *name == DEVICE => {
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

    fn undeclared(&mut self, node: NodeId, name: &str) {
        self.report(node, format!("undeclared reference to '{name}' (in container '')"));
        self.set(node, Type::Error);
    }

    fn after_arguments(&mut self, node: NodeId) {
        let Kind::Call { function, target, .. } = self.ast.kind(node) else { return };
        let (name, target) = (function.clone(), *target);
        let Some(target) = target else {
            match declarations::function(&name) {
                Some(function) => self.resolve(node, function, None),
                None => self.undeclared(node, &name),
            }
            return;
        };
        // `strings.quote(x)` is a function of that name, not the method `quote` of `strings`.
        if let Some(prefix) = self.ast.qualified_name(target)
            && let Some(function) = declarations::function(&format!("{prefix}.{name}"))
        {
            self.resolve(node, function, None);
            return;
        }
        self.tasks.push(Task::Target(node));
        self.tasks.push(Task::Enter(target));
    }

    fn after_target(&mut self, node: NodeId) {
        let Kind::Call { function, target, .. } = self.ast.kind(node) else { return };
        let (name, target) = (function.clone(), *target);
        match declarations::function(&name) {
            Some(function) => self.resolve(node, function, target),
            None => self.undeclared(node, &name),
        }
    }

    fn resolve(&mut self, node: NodeId, function: &'static Function, target: Option<NodeId>) {
        let Kind::Call { arguments, .. } = self.ast.kind(node) else { return };
        let argument_types: Vec<Type> =
            target.iter().chain(arguments).map(|argument| self.get(*argument)).collect();
        if matches!(function.name, operators::AND | operators::OR) {
            self.logic(node, function, arguments.clone(), &argument_types);
            return;
        }
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in &function.overloads {
            if overload.member != target.is_some() || overload.arguments.len() != argument_types.len() {
                continue;
            }
            let names: Vec<(char, Type)> =
                overload.parameters.iter().map(|name| (*name, self.substitutions.new_variable())).collect();
            let candidates: Vec<Type> =
                overload.arguments.iter().map(|part| instantiate(part, &names)).collect();
            if !self.substitutions.assign_all(&argument_types, &candidates) {
                continue;
            }
            fitting.push(overload);
            let found = self.substitutions.resolve(&instantiate(&overload.result, &names), false);
            result = Some(match result {
                None => found,
                Some(former) if former.is_dyn() || former == found => former,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => {
                self.set(node, result);
                self.references[node as usize] =
                    Reference::Function { function, overloads: fitting, target: target.is_some() };
            }
            None => {
                let mut shown: Vec<String> = argument_types
                    .iter()
                    .map(|part| self.substitutions.resolve(part, true).in_messages())
                    .collect();
                let prefix = if target.is_some() { format!("{}.", shown.remove(0)) } else { String::new() };
                let message = format!(
                    "found no matching overload for '{}' applied to '{prefix}({})'",
                    function.name,
                    shown.join(", ")
                );
                self.report(node, message);
                self.set(node, Type::Error);
            }
        }
    }

    fn logic(&mut self, node: NodeId, function: &'static Function, arguments: Vec<NodeId>, types: &[Type]) {
        let mut fits = true;
        for (argument, found) in arguments.iter().zip(types) {
            if !self.substitutions.assign(found, &Type::Bool) {
                self.report(*argument, format!("expected type 'bool' but found '{}'", found.in_messages()));
                fits = false;
            }
        }
        self.set(node, if fits { Type::Bool } else { Type::Error });
        self.references[node as usize] =
            Reference::Function { function, overloads: function.overloads.iter().collect(), target: false };
    }

    /// The type of elements so far and one more. Mixed types are dyn here; a validator refuses most of them later.
    fn join(&mut self, former: Option<Type>, current: Type) -> Type {
        match former {
            None => current,
            Some(former) if self.substitutions.assign(&former, &current) => most_general(&former, &current),
            Some(_) => Type::Dyn,
        }
    }

    fn unwrap_element(&mut self, node: NodeId, found: Type) -> Type {
        let (inner, is_optional) = found.unwrap_optional();
        if !is_optional && !inner.is_dyn() {
            let message = format!(
                "expected type 'optional_type({})' but found '{}'",
                inner.in_messages(),
                inner.in_messages()
            );
            self.report(node, message);
        }
        inner
    }

    fn list(&mut self, node: NodeId) {
        let Kind::List { elements, optional } = self.ast.kind(node) else { return };
        let pairs: Vec<(NodeId, bool)> = elements.iter().copied().zip(optional.iter().copied()).collect();
        let mut element_type = None;
        for (element, optional) in pairs {
            let mut found = self.get(element);
            if optional {
                found = self.unwrap_element(element, found);
            }
            element_type = Some(self.join(element_type, found));
        }
        let element_type = element_type.unwrap_or_else(|| self.substitutions.new_variable());
        self.set(node, Type::list(element_type));
    }

    fn map(&mut self, node: NodeId) {
        let Kind::Map { entries } = self.ast.kind(node) else { return };
        let entries = entries.clone();
        let (mut key_type, mut value_type) = (None, None);
        for entry in entries {
            let found = self.get(entry.key);
            key_type = Some(self.join(key_type, found));
            let mut found = self.get(entry.value);
            if entry.optional {
                found = self.unwrap_element(entry.value, found);
            }
            value_type = Some(self.join(value_type, found));
        }
        let key_type = key_type.unwrap_or_else(|| self.substitutions.new_variable());
        let value_type = value_type.unwrap_or_else(|| self.substitutions.new_variable());
        self.set(node, Type::map(key_type, value_type));
    }

    /// Message literals: upstream can also make protobuf's well-known messages, which selectors have no use for.
    fn message(&mut self, node: NodeId) {
        let Kind::Message { name, fields } = self.ast.kind(node) else { return };
        let (name, fields) = (name.strip_prefix('.').unwrap_or(name).to_owned(), fields.clone());
        match self.look_up(&name) {
            Some(Named::TypeName(_, _)) if name == DEVICE => {
                for field in fields {
                    match self.device_field(&field.name) {
                        Some(wanted) => {
                            let found = self.get(field.value);
                            if !self.substitutions.assign(&wanted, &found) {
                                let message = format!(
                                    "expected type of field '{}' is '{}' but provided type is '{}'",
                                    field.name,
                                    wanted.in_messages(),
                                    found.in_messages()
                                );
                                self.report(field.value, message);
                            }
                        }
                        None => self.report(field.value, format!("undefined field '{}'", field.name)),
                    }
                }
                self.set(node, Type::Struct(DEVICE));
            }
            Some(Named::TypeName(..)) => {
                self.report(node, format!("'{name}' is not a message type"));
                self.set(node, Type::Error);
            }
            Some(Named::Variable(..)) => {
                self.report(node, format!("'{name}' is not a type"));
                self.set(node, Type::Error);
            }
            None => self.undeclared(node, &name),
        }
    }

    fn after_range(&mut self, node: NodeId) {
        let Kind::Comprehension(comprehension) = self.ast.kind(node) else { return };
        let comprehension = comprehension.clone();
        let range = self.resolved(comprehension.range);
        let accumulator = self.get(comprehension.initial);
        self.scopes.push(HashMap::from([(comprehension.accumulator.clone(), accumulator.clone())]));
        let two = comprehension.second_variable.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Parameter(_) => {
                self.substitutions.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.in_messages()
                );
                self.report(comprehension.range, message);
                (Type::Error, Type::Error)
            }
        };
        let mut scope = HashMap::from([(comprehension.variable.clone(), first)]);
        if let Some(name) = &comprehension.second_variable {
            scope.insert(name.clone(), second);
        }
        self.scopes.push(scope);
        self.tasks.push(Task::Condition(node, accumulator));
        self.tasks.push(Task::Enter(comprehension.condition));
    }

    fn assert_type(&mut self, node: NodeId, wanted: &Type) {
        let found = self.get(node);
        if !self.substitutions.assign(wanted, &found) {
            let message =
                format!("expected type '{}' but found '{}'", wanted.in_messages(), found.in_messages());
            self.report(node, message);
        }
    }

    fn after_condition(&mut self, node: NodeId, accumulator: Type) {
        let Kind::Comprehension(comprehension) = self.ast.kind(node) else { return };
        let (condition, step) = (comprehension.condition, comprehension.step);
        self.assert_type(condition, &Type::Bool);
        self.tasks.push(Task::Step(node, accumulator));
        self.tasks.push(Task::Enter(step));
    }

    fn after_step(&mut self, node: NodeId, accumulator: Type) {
        let Kind::Comprehension(comprehension) = self.ast.kind(node) else { return };
        let (step, result) = (comprehension.step, comprehension.result);
        self.assert_type(step, &accumulator);
        self.scopes.pop();
        self.tasks.push(Task::Result(node));
        self.tasks.push(Task::Enter(result));
    }
}
