//! Values of our chart, and the fate of each value of another.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Draft;
use super::release::{Release, at};
use super::steps::MOVED;

/// The chart's answers to values of other charts; one table for both.
const TABLE: &str = include_str!("../../../charts/tessera/files/values-of-others.yaml");

/// Generated values, and their sources among the other's values.
#[derive(Debug, Default)]
pub struct OurValues {
    values: Map<String, Value>,
    carried: BTreeSet<String>,
}

impl OurValues {
    /// Sets a value, by its path of keys.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let Some((last, above)) = path.split_last() else { return };
        let mut at = &mut self.values;
        for key in above {
            let entry = at.entry((*key).to_owned()).or_insert_with(|| json!({}));
            let Some(map) = entry.as_object_mut() else { return };
            at = map;
        }
        at.insert((*last).to_owned(), value.into());
    }

    /// Marks a value of the other chart, and all below, as carried over.
    pub fn carried(&mut self, path: impl Into<String>) {
        self.carried.insert(path.into());
    }

    /// All of them.
    pub fn finish(self) -> Value {
        Value::Object(self.values)
    }

    fn is_carried(&self, path: &str) -> bool {
        self.carried.iter().any(|carried| is_within(path, carried))
    }
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The chart's answer to a value: from the longest enclosing path in the table.
fn words(path: &str) -> Option<&'static str> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let of_it = rows.filter(|(row, _)| is_within(path, row));
    of_it.max_by_key(|(row, _)| row.len()).map(|(_, words)| words)
}

/// Values of pods common to all charts, below `prefix`.
pub fn of_pods(draft: &mut Draft, release: &Release, prefix: &str) {
    let path = |key: &str| format!("{prefix}{key}");
    // Ours tolerate everything.
    draft.values.carried(path("tolerations"));
    for key in ["nodeSelector", "affinity", "podAnnotations"] {
        // Defaults of the other chart find nodes with cards; our plugin waits on a node without.
        let mut said = at(&release.said, &path(key)).and_then(Value::as_object).cloned().unwrap_or_default();
        // Set by the steps themselves, if the command is repeated halfway.
        said.remove(MOVED);
        if !said.is_empty() {
            draft.values.set(&["kubeletPlugin", key], said);
        }
        draft.values.carried(path(key));
    }
    if let Some(class) = at(&release.said, &path("priorityClassName")).and_then(Value::as_str) {
        if class != "system-node-critical" {
            draft.values.set(&["kubeletPlugin", "priorityClassName"], class);
        }
        draft.values.carried(path("priorityClassName"));
    }
    let secrets = release.at("imagePullSecrets").and_then(Value::as_array).filter(|list| !list.is_empty());
    if let Some(secrets) = secrets {
        // Some charts take names, some take references.
        let references = secrets.iter().map(|secret| match secret {
            Value::String(name) => json!({ "name": name }),
            reference => reference.clone(),
        });
        draft.values.set(&["image", "pullSecrets"], references.collect::<Vec<Value>>());
        draft.values.carried("imagePullSecrets");
        draft.note(
            "imagePullSecrets",
            "the Secrets are in the other namespace: if this chart's images need them, create them in its \
             namespace, too",
        );
    }
}

/// The driver's root; `path` is its place in the other chart.
pub fn driver_root(draft: &mut Draft, release: &Release, path: &str) {
    if let Some(root) = release.text(path).filter(|root| *root != "/") {
        draft.values.set(&["driverRoot"], root);
    }
    draft.values.carried(path);
}

/// Notes on all values set by the user but not carried over.
pub fn rest(draft: &mut Draft, release: &Release) {
    // Where its images are from is of no use to ours.
    draft.values.carried("image");
    let mut leaves = Vec::new();
    collect(&release.said, String::new(), &mut leaves);
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for leaf in &leaves {
        if draft.values.is_carried(leaf) {
            continue;
        }
        match words(leaf) {
            // One line for all values of a part with the same answer.
            Some(words) if told.insert(words) => draft.note(leaf, words),
            Some(_) => {}
            None => draft.note(leaf, "not known to this version, and not carried over"),
        }
    }
}

/// Paths of all values except maps. Null and empty values are ignored.
fn collect(value: &Value, path: String, leaves: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(value, below, leaves);
            }
        }
        Value::Null => {}
        Value::Array(list) if list.is_empty() => {}
        Value::String(text) if text.is_empty() => {}
        _ => leaves.push(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_of_the_table_answers() {
        assert_eq!(words("featureGates.MPSSupport"), Some("sharing.mps.enabled"));
        assert_eq!(words("featureGates.Unheard"), words("featureGates"));
        assert_eq!(words("resources.limits.memory"), Some("kubeletPlugin.resources"));
        assert!(words("resources.gpus.enabled").unwrap().contains("cards are always offered"));
        assert_eq!(words("featureGatesOfOthers"), None);
    }

    #[test]
    fn what_says_nothing_is_no_leaf() {
        let mut leaves = Vec::new();
        let said = json!({ "a": { "b": 1, "c": {}, "d": null }, "e": [], "f": "", "g": [0], "h": false });
        collect(&said, String::new(), &mut leaves);
        assert_eq!(leaves, ["a.b", "g", "h"]);
    }
}
