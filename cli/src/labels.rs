//! Label selectors in text.

use tessera_api::label_selector::{LabelOperator, LabelSelector};

/// A selector as kubectl writes one; `all` if it is empty.
pub fn labels(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let compared = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            LabelOperator::In => format!("{key} in ({values})"),
            LabelOperator::NotIn => format!("{key} notin ({values})"),
            LabelOperator::Exists => key.clone(),
            LabelOperator::DoesNotExist => format!("!{key}"),
        }
    });
    let all: Vec<String> = equal.chain(compared).collect();
    if all.is_empty() { "all".to_owned() } else { all.join(",") }
}
