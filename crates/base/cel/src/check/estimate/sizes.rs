//! Known sizes: of nodes, of variables, and of the contents of lists and maps.

use std::sync::Arc;

use super::Estimator;
use super::path::Path;
use super::range::Range;
use crate::check::checker::Reference;
use crate::check::types::{OPTIONAL, Type};
use crate::syntax::ast::{Kind, Literal, NodeId};

/// Sizes of the contents of a list or map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries {
    pub(super) is_list: bool,
    pub(super) key: Range,
    pub(super) value: Range,
}

pub(super) fn union(one: Option<Entries>, two: Option<Entries>) -> Option<Entries> {
    let (one, two) = (one?, two?);
    Some(Entries { is_list: one.is_list, key: one.key.union(two.key), value: one.value.union(two.value) })
}

/// Known properties of a variable.
pub(super) struct Variable {
    pub(super) path: Path,
    pub(super) size: Option<Range>,
    pub(super) entries: Option<Entries>,
}

/// Whether values of the type all have the size 1.
pub(super) fn is_scalar(of: &Type) -> bool {
    match of.unwrapped() {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Opaque(OPTIONAL, parameters) => parameters.first().is_some_and(is_scalar),
        _ => false,
    }
}

impl<'a> Estimator<'a> {
    /// The node's name, where resolved as one by the checker.
    pub(super) fn name(&self, node: NodeId) -> Option<&'a Arc<str>> {
        match &self.checked.references[node as usize] {
            Reference::Variable(name) | Reference::TypeName(name) => Some(name),
            _ => match self.ast.kind(node) {
                Kind::Identifier(name) => Some(name),
                _ => None,
            },
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.get(name).and_then(|open| open.last())
    }

    pub(super) fn push(&mut self, name: &Arc<str>, variable: Variable) {
        self.variables.entry(name.clone()).or_default().push(variable);
    }

    pub(super) fn forget(&mut self, name: &str) {
        if let Some(open) = self.variables.get_mut(name) {
            open.pop();
        }
    }

    pub(super) fn path(&self, node: NodeId) -> Path {
        if let Some(name) = self.name(node)
            && let Some(variable) = self.variable(name)
        {
            return variable.path.clone();
        }
        self.paths.get(&node).cloned().unwrap_or_default()
    }

    /// The size of a node's value, if known.
    pub(super) fn size(&mut self, node: NodeId) -> Option<Range> {
        if let Some(size) = self.sizes.get(&node) {
            return Some(*size);
        }
        if let Some(size) = self.written_size(node) {
            return Some(size);
        }
        if let Some(most) = self.path(node).device_size() {
            self.sizes.insert(node, Range::up_to(most));
            return Some(Range::up_to(most));
        }
        if is_scalar(self.type_of(node)) {
            return Some(Range::exactly(1));
        }
        let name = self.name(node)?;
        self.variable(name)?.size
    }

    pub(super) fn size_or_unknown(&mut self, node: NodeId) -> Range {
        self.size(node).unwrap_or(Range::UNKNOWN)
    }

    /// The size of a literal in the source.
    pub(super) fn written_size(&self, node: NodeId) -> Option<Range> {
        if self.name(node).is_some() {
            return None;
        }
        let size = match self.ast.kind(node) {
            Kind::Literal(Literal::String(text)) => text.chars().count(),
            Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
            Kind::Literal(_) => 1,
            Kind::List { elements, .. } => elements.len(),
            Kind::Map { entries } => entries.len(),
            _ => return None,
        };
        Some(Range::exactly(size as u64))
    }

    pub(super) fn set_size(&mut self, node: NodeId, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(node, size);
        }
    }

    pub(super) fn entries(&self, node: NodeId) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&node) {
            return Some(*entries);
        }
        self.variable(self.name(node)?)?.entries
    }

    pub(super) fn set_entries(&mut self, node: NodeId, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(node, entries);
        }
    }

    pub(super) fn copy_sizes(&mut self, to: NodeId, from: NodeId) {
        let size = self.size(from);
        self.set_size(to, size);
        let entries = self.entries(from);
        self.set_entries(to, entries);
    }
}
