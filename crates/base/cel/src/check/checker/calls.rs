//! Checks calls: finds the matching overloads.

use super::{Checker, Reference, Task};
use crate::check::declarations::Function;
use crate::check::types::Type;
use crate::check::unify::instantiate;
use crate::syntax::ast::{Kind, NodeId, operators};

impl Checker<'_> {
    pub(super) fn undeclared(&mut self, node: NodeId, name: &str) {
        self.report(node, format!("undeclared reference to '{name}' (in container '')"));
        self.set(node, Type::Error);
    }

    pub(super) fn after_arguments(&mut self, node: NodeId) {
        let Kind::Call { function, target, .. } = self.ast.kind(node) else { return };
        let (name, target) = (function.clone(), *target);
        let Some(target) = target else {
            match self.function(&name) {
                Some(function) => self.resolve(node, function, None),
                None => self.undeclared(node, &name),
            }
            return;
        };
        // `strings.quote(x)` is a function with this qualified name, not the method `quote` of `strings`.
        if let Some(prefix) = self.ast.qualified_name(target)
            && let Some(function) = self.function(&format!("{prefix}.{name}"))
        {
            self.resolve(node, function, None);
            return;
        }
        self.tasks.push(Task::Target(node));
        self.tasks.push(Task::Enter(target));
    }

    pub(super) fn after_target(&mut self, node: NodeId) {
        let Kind::Call { function, target, .. } = self.ast.kind(node) else { return };
        let (name, target) = (function.clone(), *target);
        match self.function(&name) {
            Some(function) => self.resolve(node, function, target),
            None => self.undeclared(node, &name),
        }
    }

    pub(super) fn resolve(&mut self, node: NodeId, function: &'static Function, target: Option<NodeId>) {
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

    pub(super) fn logic(
        &mut self,
        node: NodeId,
        function: &'static Function,
        arguments: Vec<NodeId>,
        types: &[Type],
    ) {
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
}
