//! The syntax tree: nodes in one vector, children named by their index.

use std::sync::Arc;

/// Index of a node in [`Ast::nodes`].
pub(crate) type NodeId = u32;

/// A literal value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// One entry of a map literal.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: NodeId,
    pub value: NodeId,
    pub optional: bool,
}

/// One field of a message literal.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: Arc<str>,
    pub value: NodeId,
    pub optional: bool,
}

/// The expansion of every macro over a list or map.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub range: NodeId,
    pub variable: Arc<str>,
    pub second_variable: Option<Arc<str>>,
    pub accumulator: Arc<str>,
    pub initial: NodeId,
    pub condition: NodeId,
    pub step: NodeId,
    pub result: NodeId,
}

/// The kind of a node.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Literal),
    Identifier(Arc<str>),
    Select { operand: NodeId, field: Arc<str>, test_only: bool },
    Call { function: Arc<str>, target: Option<NodeId>, arguments: Vec<NodeId> },
    List { elements: Vec<NodeId>, optional: Vec<bool> },
    Map { entries: Vec<Entry> },
    Message { name: Arc<str>, fields: Vec<Field> },
    Comprehension(Box<Comprehension>),
}

/// A node and its position in the source: errors point to `at`, and `start..end` is its text, empty for nodes from
/// macros.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub kind: Kind,
    pub at: u32,
    pub start: u32,
    pub end: u32,
}

/// A parsed expression.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    pub nodes: Vec<Node>,
    pub root: NodeId,
}

impl Ast {
    pub(crate) fn add(&mut self, kind: Kind, at: u32, start: u32, end: u32) -> NodeId {
        self.nodes.push(Node { kind, at, start, end });
        (self.nodes.len() - 1) as NodeId
    }

    pub(crate) fn kind(&self, id: NodeId) -> &Kind {
        &self.nodes[id as usize].kind
    }

    /// The dotted name spelled by a chain of field selections (`a.b.c`), if any.
    pub(crate) fn qualified_name(&self, id: NodeId) -> Option<String> {
        let mut parts: Vec<&str> = Vec::new();
        let mut at = id;
        loop {
            match self.kind(at) {
                Kind::Identifier(name) => {
                    parts.push(name);
                    break;
                }
                Kind::Select { operand, field, test_only: false } => {
                    parts.push(field);
                    at = *operand;
                }
                _ => return None,
            }
        }
        parts.reverse();
        Some(parts.join("."))
    }
}

/// Names of the operators as functions, as upstream spells them.
pub(crate) mod operators {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUBTRACT: &str = "_-_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
    pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";
}
