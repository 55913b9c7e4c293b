//! Selectors of objects by label, as Kubernetes writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A selector of objects by label; everything in it must match, and an empty one matches all (`metav1.LabelSelector`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Comparisons of labels.
    #[cfg_attr(feature = "crd", schemars(length(max = 64)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A comparison of one label (`metav1.LabelSelectorRequirement`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        "message": "In and NotIn need values, Exists and DoesNotExist have none",
    }]))
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub operator: LabelOperator,
    /// The values of `In` and `NotIn`.
    #[cfg_attr(feature = "crd", schemars(length(max = 64)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Comparison with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether all labels and expressions match.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let found = labels.get(&requirement.key);
                let is_listed = found.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    LabelOperator::In => is_listed,
                    LabelOperator::NotIn => !is_listed,
                    LabelOperator::Exists => found.is_some(),
                    LabelOperator::DoesNotExist => found.is_none(),
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_decide() {
        let labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
        for (selector, expected) in [
            (json!({"matchLabels": {"pool": "a"}}), true),
            (json!({"matchLabels": {"pool": "b"}}), false),
            (json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false),
        ] {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{selector:?}");
        }
    }
}
