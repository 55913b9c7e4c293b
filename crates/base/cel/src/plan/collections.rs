//! Lists, maps and loops.

use super::{Planner, Scope, Task};
use crate::check::messages;
use crate::evaluate::program::Op;
use crate::evaluate::value::Value;
use crate::syntax::ast::{Comprehension, Kind, NodeId};

impl Planner<'_> {
    pub(super) fn list(&mut self, elements: &[NodeId], optional: &[bool], scope: Scope) {
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

    pub(super) fn map(&mut self, node: NodeId, scope: Scope) {
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

    pub(super) fn message(&mut self, node: NodeId, scope: Scope) {
        let Kind::Message { name, fields } = self.ast.kind(node) else { return };
        let (name, fields) = (name.clone(), fields.clone());
        let end = self.label();
        let mut tasks = Vec::new();
        let mut kinds = Vec::new();
        let message = messages::message(name.strip_prefix('.').unwrap_or(&name));
        for (index, field) in fields.iter().enumerate() {
            let below = index as u32;
            tasks.push(Task::Node { node: field.value, scope, free: false });
            tasks.push(Task::Op(if field.optional {
                Op::CheckField { below, end, name: field.name.clone() }
            } else {
                Op::Check { below, end }
            }));
            let known =
                message.and_then(|message| message.fields.iter().find(|(known, _)| **known == *field.name));
            kinds.extend(known.map(|(name, kind)| (*kind, *name, field.optional)));
        }
        match message {
            Some(message) => tasks.push(Task::Op(Op::MakeMessage { message, fields: kinds.into() })),
            // The type of a device is declared, but unknown where messages are made.
            None => {
                tasks.push(Task::Op(Op::Fail(format!("unknown type '{name}'").into())));
                tasks.push(Task::Op(Op::Check { below: fields.len() as u32, end }));
            }
        }
        tasks.push(Task::Label(end));
        tasks.push(Task::Op(Op::Charge(40)));
        self.queue(tasks);
    }

    pub(super) fn comprehension(&mut self, comprehension: &Comprehension, scope: Scope) {
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
