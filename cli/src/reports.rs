//! The kubelet plugins' reports of their nodes, in an annotation of slices.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::{NodeReport, node_report};

/// A plugin's report of its node.
#[derive(Debug)]
pub struct Report {
    /// The name of the DRA driver.
    pub driver: String,
    /// The report.
    pub report: NodeReport,
}

/// The reports by node, and the slices with an invalid annotation. Of several, the newest pool's report counts.
pub fn reports<'s>(
    slices: impl Iterator<Item = &'s ResourceSlice>,
) -> (BTreeMap<&'s str, Report>, Vec<String>) {
    let mut newest: BTreeMap<&str, (i64, &ResourceSlice, &String)> = BTreeMap::new();
    for slice in slices {
        let annotations = slice.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(node_report::ANNOTATION));
        let (Some(text), Some(node)) = (text, slice.spec.node_name.as_deref()) else { continue };
        let generation = slice.spec.pool.generation;
        if newest.get(node).is_none_or(|(known, ..)| *known < generation) {
            newest.insert(node, (generation, slice, text));
        }
    }
    let mut reports = BTreeMap::new();
    let mut warnings = Vec::new();
    for (node, (_, slice, text)) in newest {
        match serde_json::from_str(text) {
            Ok(report) => {
                reports.insert(node, Report { driver: slice.spec.driver.clone(), report });
            }
            Err(error) => warnings.push(format!(
                "the annotation {} of ResourceSlice {} cannot be read, and the plugin's report on {node} is \
                 unknown: {error}",
                node_report::ANNOTATION,
                slice.metadata.name.as_deref().unwrap_or_default()
            )),
        }
    }
    (reports, warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(generation: i64, report: &str) -> ResourceSlice {
        serde_json::from_value(json!({
            "metadata": { "name": format!("s{generation}"), "annotations": { node_report::ANNOTATION: report } },
            "spec": { "driver": "d", "nodeName": "n", "pool": {
                "name": "p", "generation": generation, "resourceSliceCount": 1 } },
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_counts_and_what_is_none_is_named() {
        let (old, new) = (slice(1, "{}"), slice(2, r#"{"otherPairs": "SYS"}"#));
        let (found, warnings) = reports([&new, &old].into_iter());
        assert_eq!(found["n"].report.other_pairs.as_deref(), Some("SYS"));
        assert!(warnings.is_empty());
        let broken = slice(1, "[");
        let (found, warnings) = reports([&broken].into_iter());
        assert!(found.is_empty() && warnings[0].contains("ResourceSlice s1"), "{warnings:?}");
    }
}
