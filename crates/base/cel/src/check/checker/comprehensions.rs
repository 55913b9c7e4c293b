//! Checks loops: the types of their variables and parts.

use std::collections::HashMap;

use super::{Checker, Task};
use crate::check::types::Type;
use crate::syntax::ast::{Kind, NodeId};

impl Checker<'_> {
    pub(super) fn after_range(&mut self, node: NodeId) {
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

    pub(super) fn assert_type(&mut self, node: NodeId, wanted: &Type) {
        let found = self.get(node);
        if !self.substitutions.assign(wanted, &found) {
            let message =
                format!("expected type '{}' but found '{}'", wanted.in_messages(), found.in_messages());
            self.report(node, message);
        }
    }

    pub(super) fn after_condition(&mut self, node: NodeId, accumulator: Type) {
        let Kind::Comprehension(comprehension) = self.ast.kind(node) else { return };
        let (condition, step) = (comprehension.condition, comprehension.step);
        self.assert_type(condition, &Type::Bool);
        self.tasks.push(Task::Step(node, accumulator));
        self.tasks.push(Task::Enter(step));
    }

    pub(super) fn after_step(&mut self, node: NodeId, accumulator: Type) {
        let Kind::Comprehension(comprehension) = self.ast.kind(node) else { return };
        let (step, result) = (comprehension.step, comprehension.result);
        self.assert_type(step, &accumulator);
        self.scopes.pop();
        self.tasks.push(Task::Result(node));
        self.tasks.push(Task::Enter(result));
    }
}
