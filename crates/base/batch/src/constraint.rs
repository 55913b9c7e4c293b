use std::collections::BTreeMap;
use std::str::FromStr;

use crate::gres::words;

/// The value of `--constraint`: alternative models of cards, and labels of nodes, all of them wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraint {
    /// Alternatives, each as the words of a product name.
    pub models: Vec<Vec<String>>,
    /// Key and value.
    pub labels: BTreeMap<String, String>,
}

impl FromStr for Constraint {
    type Err = String;

    /// Parts joined by `&` or `,`: `KEY=VALUE`, a label of the node, or models joined by `|`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(['[', ']', '*', '(', ')']) {
            return Err(
                "counts and groups are not possible: expected h100, a100|h100, or KEY=VALUE, a label of \
                        the node, joined by &"
                    .to_owned(),
            );
        }
        let mut constraint = Constraint::default();
        for part in text.split(['&', ',']).map(str::trim) {
            if let Some((key, value)) = part.split_once('=') {
                if value.contains('|') {
                    return Err(format!("{part}: of a label one value is possible"));
                }
                constraint.labels.insert(key.to_owned(), value.to_owned());
                continue;
            }
            let models: Result<Vec<Vec<String>>, String> = part.split('|').map(words).collect();
            let models = models?;
            if models.iter().any(Vec::is_empty) || !constraint.models.is_empty() {
                return Err("expected one model of a card, or several joined by |".to_owned());
            }
            constraint.models = models;
        }
        Ok(constraint)
    }
}
