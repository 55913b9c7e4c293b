//! Copies a part of the tree.

use super::Builder;
use crate::syntax::ast::{Entry, Field, Kind, NodeId};
use crate::syntax::parser::MOST_NODES;
use crate::syntax::source::Issue;

/// A copy of the tree under `node`, without recursion.
pub(super) fn copy(builder: &mut Builder<'_>, node: NodeId) -> Result<NodeId, Issue> {
    // Parents first, then patched: copies[i] is the copy of order[i].
    let mut order = vec![node];
    let mut next = 0;
    let first = builder.ast.nodes.len();
    if first > MOST_NODES {
        return Err(Issue::at(
            builder.at,
            format!("expression has more than {MOST_NODES} nodes after macro expansion"),
        ));
    }
    let mut position_of = std::collections::HashMap::new();
    position_of.insert(node, first as NodeId);
    while next < order.len() {
        let original = builder.ast.nodes[order[next] as usize].clone();
        let mut children = Vec::new();
        children_of(&original.kind, &mut children);
        for child in children {
            position_of.entry(child).or_insert_with(|| {
                order.push(child);
                (first + order.len() - 1) as NodeId
            });
        }
        if first + order.len() > MOST_NODES {
            return Err(Issue::at(
                builder.at,
                format!("expression has more than {MOST_NODES} nodes after macro expansion"),
            ));
        }
        builder.ast.nodes.push(original);
        next += 1;
    }
    for node in &mut builder.ast.nodes[first..] {
        rename_children(&mut node.kind, |child| position_of.get(&child).copied().unwrap_or(child));
    }
    Ok(first as NodeId)
}

pub(super) fn children_of(kind: &Kind, children: &mut Vec<NodeId>) {
    // The same walk as for renaming; cloning the kind avoids a second list of parts with children.
    rename_children(&mut kind.clone(), |child| {
        children.push(child);
        child
    });
}

pub(super) fn rename_children(kind: &mut Kind, mut rename: impl FnMut(NodeId) -> NodeId) {
    match kind {
        Kind::Literal(_) | Kind::Identifier(_) => {}
        Kind::Select { operand, .. } => *operand = rename(*operand),
        Kind::Call { target, arguments, .. } => {
            if let Some(target) = target {
                *target = rename(*target);
            }
            for argument in arguments {
                *argument = rename(*argument);
            }
        }
        Kind::List { elements, .. } => {
            for element in elements {
                *element = rename(*element);
            }
        }
        Kind::Map { entries } => {
            for Entry { key, value, .. } in entries {
                *key = rename(*key);
                *value = rename(*value);
            }
        }
        Kind::Message { fields, .. } => {
            for Field { value, .. } in fields {
                *value = rename(*value);
            }
        }
        Kind::Comprehension(comprehension) => {
            for child in [
                &mut comprehension.range,
                &mut comprehension.initial,
                &mut comprehension.condition,
                &mut comprehension.step,
                &mut comprehension.result,
            ] {
                *child = rename(*child);
            }
        }
    }
}
