//! Nodes and node selectors.

use std::collections::BTreeMap;

/// The part of a node read by selectors.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A node selector: any of its terms must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    /// The terms.
    pub terms: Vec<NodeSelectorTerm>,
}

/// A term: every requirement must match; an empty term matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSelectorTerm {
    /// About the node's labels.
    pub expressions: Vec<NodeSelectorRequirement>,
    /// About the node's fields; the only one is `metadata.name`.
    pub fields: Vec<NodeSelectorRequirement>,
}

/// A comparison with a label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSelectorRequirement {
    /// Key of the label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with.
    pub values: Vec<String>,
}

impl NodeSelector {
    /// Whether the node matches.
    ///
    /// # Errors
    /// A requirement is invalid; the API server refuses such selectors.
    pub fn matches(&self, node: &Node) -> Result<bool, String> {
        let mut errors = Vec::new();
        for (index, term) in self.terms.iter().enumerate() {
            let at = format!("nodeSelectorTerms[{index}]");
            for (number, requirement) in term.expressions.iter().enumerate() {
                errors.extend(requirement.label_fault(&format!("{at}.matchExpressions[{number}]")));
            }
            for (number, requirement) in term.fields.iter().enumerate() {
                errors.extend(requirement.field_fault(&format!("{at}.matchFields[{number}]")));
            }
        }
        match errors.len() {
            0 => {}
            1 => return Err(errors.remove(0)),
            _ => return Err(format!("[{}]", errors.join(", "))),
        }
        Ok(self.terms.iter().any(|term| term.matches(node)))
    }
}

impl NodeSelectorTerm {
    fn matches(&self, node: &Node) -> bool {
        if self.expressions.is_empty() && self.fields.is_empty() {
            return false;
        }
        // A node without a name has no fields, and these are then not compared.
        self.expressions.iter().all(|requirement| requirement.matches_label(node))
            && (node.name.is_empty() || self.fields.iter().all(|requirement| requirement.matches_field(node)))
    }
}

impl NodeSelectorRequirement {
    fn label_fault(&self, at: &str) -> Option<String> {
        let values = self.values.len();
        match self.operator.as_str() {
            "In" | "NotIn" if values == 0 => Some(format!(
                "{at}.values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
            )),
            "Exists" | "DoesNotExist" if values != 0 => Some(format!(
                "{at}.values: Invalid value: {:?}: values set must be empty for exists and does not exist",
                self.values
            )),
            "Gt" | "Lt" if values != 1 => Some(format!(
                "{at}.values: Invalid value: {:?}: for 'Gt', 'Lt' operators, exactly one value is required",
                self.values
            )),
            "Gt" | "Lt" if self.values[0].parse::<i64>().is_err() => Some(format!(
                "{at}.values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                self.values[0]
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => None,
            other => Some(format!(
                "{at}.operator: Unsupported value: {other:?}: supported values: \"In\", \"NotIn\", \"Exists\", \
                 \"DoesNotExist\", \"Gt\", \"Lt\""
            )),
        }
    }

    fn field_fault(&self, at: &str) -> Option<String> {
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.len() == 1 => None,
            "In" | "NotIn" => {
                Some(format!("{at}.values: Invalid value: {:?}: must have one element", self.values))
            }
            other => Some(format!(
                "{at}.operator: Unsupported value: {other:?}: supported values: \"In\", \"NotIn\""
            )),
        }
    }

    fn matches_label(&self, node: &Node) -> bool {
        let label = node.labels.get(&self.key);
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => label.is_none_or(|label| !self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" | "Lt" => {
                let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
                match (number(label), number(self.values.first())) {
                    (Some(label), Some(limit)) if self.operator == "Gt" => label > limit,
                    (Some(label), Some(limit)) => label < limit,
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn matches_field(&self, node: &Node) -> bool {
        let value = if self.key == "metadata.name" { node.name.as_str() } else { "" };
        let is_same = self.values.first().is_some_and(|expected| expected == value);
        is_same == (self.operator == "In")
    }
}
