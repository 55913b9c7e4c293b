//! Nodes and node selectors.

use k8s_openapi::api::core::v1;

use crate::node::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

impl From<&v1::Node> for Node {
    fn from(node: &v1::Node) -> Self {
        Node {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
        }
    }
}

fn requirements(all: Option<&Vec<v1::NodeSelectorRequirement>>) -> Vec<NodeSelectorRequirement> {
    all.into_iter()
        .flatten()
        .map(|requirement| NodeSelectorRequirement {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            values: requirement.values.clone().unwrap_or_default(),
        })
        .collect()
}

impl From<&v1::NodeSelector> for NodeSelector {
    fn from(selector: &v1::NodeSelector) -> Self {
        let term = |term: &v1::NodeSelectorTerm| NodeSelectorTerm {
            expressions: requirements(term.match_expressions.as_ref()),
            fields: requirements(term.match_fields.as_ref()),
        };
        NodeSelector { terms: selector.node_selector_terms.iter().map(term).collect() }
    }
}

impl From<&NodeSelector> for v1::NodeSelector {
    fn from(selector: &NodeSelector) -> Self {
        let list = |all: &[NodeSelectorRequirement]| {
            (!all.is_empty()).then(|| {
                all.iter()
                    .map(|requirement| v1::NodeSelectorRequirement {
                        key: requirement.key.clone(),
                        operator: requirement.operator.clone(),
                        values: (!requirement.values.is_empty()).then(|| requirement.values.clone()),
                    })
                    .collect()
            })
        };
        let term = |term: &NodeSelectorTerm| v1::NodeSelectorTerm {
            match_expressions: list(&term.expressions),
            match_fields: list(&term.fields),
        };
        v1::NodeSelector { node_selector_terms: selector.terms.iter().map(term).collect() }
    }
}
