//! Chains of selections: `device.attributes["domain"].name` and the like.

use super::{Planner, Scope, Task, is_device_variable};
use crate::check::checker::Reference;
use crate::evaluate::program::{Op, Read};
use crate::evaluate::value::{Ref, Side, Value};
use crate::syntax::ast::{Kind, Literal, NodeId, operators};

/// One step of a chain of selections.
pub(super) enum Step {
    Constant { key: Value<'static>, optional: bool, test: bool },
    Dynamic { index: NodeId, optional: bool },
}

impl Planner<'_> {
    pub(super) fn chain(&mut self, node: NodeId, scope: Scope, free: bool) -> Result<(), String> {
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

    pub(super) fn is_device(&self, root: NodeId, scope: Scope) -> bool {
        matches!(&self.checked.references[root as usize],
            Reference::Variable(name) if self.find(scope, name).is_none() && is_device_variable(name))
    }

    /// A node's direct read, if any.
    pub(super) fn read_of(&mut self, node: NodeId, scope: Scope) -> Result<Option<Read>, String> {
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

    /// A chain of selections: its steps, and its starting node.
    pub(super) fn steps(&self, node: NodeId) -> Result<(Vec<Step>, NodeId), String> {
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

    pub(super) fn note_reads(&mut self, steps: &[Step]) {
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

    /// The direct read for these steps, if they are one: nearly every selector has such reads.
    pub(super) fn direct_read(&mut self, steps: &[Step]) -> Option<Read> {
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

    pub(super) fn general_chain(
        &mut self,
        steps: &[Step],
        root: NodeId,
        is_device: bool,
        scope: Scope,
        free: bool,
    ) {
        let is_test = matches!(steps.last(), Some(Step::Constant { test: true, .. }));
        let is_conditional = matches!(self.ast.kind(root),
            Kind::Call { function, .. } if &**function == operators::CONDITIONAL)
            && self.constants[root as usize].is_none();
        // Behind a dot, names in brackets are outside of loops, too.
        let index_scope = match &self.checked.references[root as usize] {
            Reference::Variable(name) if name.starts_with('.') => None,
            _ => scope,
        };
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
                    // After an error, the index is not evaluated.
                    tasks.push(Task::Op(Op::Check { below: 0, end }));
                    tasks.push(Task::Node { node: *index, scope: index_scope, free: true });
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

    pub(super) fn reads_everything(&mut self) {
        self.reads.driver = true;
        self.reads.allow_multiple_allocations = true;
        self.reads.all_attributes = true;
        self.reads.all_capacity = true;
    }
}
