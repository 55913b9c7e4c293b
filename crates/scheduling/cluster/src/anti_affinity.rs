//! Required anti-affinity by hostname (`InterPodAffinity`) between pods with such terms, mostly pods of one workload spreading over
//! nodes. Terms with another topology key, or about pods without such terms, are ignored.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use tessera_api::label_selector::{LabelOperator, LabelRequirement, LabelSelector};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Namespace and labels of a pod with required anti-affinity, to be matched by the terms of other pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selected {
    namespace: String,
    labels: BTreeMap<String, String>,
}

/// Whether the pod has required anti-affinity by hostname. If so, its namespace and labels decide beside which pods it may run.
pub fn has_any(pod: &Pod) -> bool {
    terms(pod).next().is_some()
}

impl Selected {
    /// `None` where the pod has no required anti-affinity by hostname.
    pub fn of(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        has_any(pod).then(|| Selected { namespace: namespace(pod).to_owned(), labels })
    }

    /// Whether the terms of `pod` forbid the node of this pod.
    pub fn keeps_away(&self, pod: &Pod) -> bool {
        terms(pod).any(|term| {
            let selector = term.label_selector.as_ref();
            concerns(term, namespace(pod), &self.namespace)
                && selector.is_some_and(|selector| selector_of(selector).matches(&self.labels))
        })
    }
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.into_iter().flatten().filter(|term| term.topology_key == HOSTNAME)
}

/// Whether a term of a pod of namespace `own` concerns pods of namespace `other`. Labels of namespaces are not known here.
fn concerns(term: &PodAffinityTerm, own: &str, other: &str) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    match &term.namespace_selector {
        None if named.is_empty() => own == other,
        Some(all) if *all == v1::LabelSelector::default() => true,
        _ => named.iter().any(|name| name == other),
    }
}

fn selector_of(selector: &v1::LabelSelector) -> LabelSelector {
    let requirements = selector.match_expressions.iter().flatten().filter_map(|requirement| {
        let operator = match requirement.operator.as_str() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            _ => return None,
        };
        let values = requirement.values.clone().unwrap_or_default();
        Some(LabelRequirement { key: requirement.key.clone(), operator, values })
    });
    LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: requirements.collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, labels: Value, term: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": namespace, "labels": labels },
            "spec": { "containers": [], "affinity": { "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term] } } },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_keeps_away_whom_its_terms_select() {
        let of_app = json!({ "app": "a" });
        let by = |labels: Value, more: Value| {
            let mut term = json!({ "topologyKey": HOSTNAME, "labelSelector": labels });
            term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            term
        };
        let none = json!({});
        let app = json!({ "matchLabels": { "app": "a" } });
        let expression = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] });
        for (term, own, other, expected) in [
            (by(app.clone(), none.clone()), true, true, true),
            (by(app.clone(), none.clone()), true, false, false),
            (by(expression("In", json!(["b", "a"])), none.clone()), true, true, true),
            (by(expression("NotIn", json!(["a"])), none.clone()), true, true, false),
            (by(expression("Exists", json!(null)), none.clone()), true, true, true),
            (by(expression("DoesNotExist", json!(null)), none.clone()), true, true, false),
            (by(json!({}), none.clone()), true, true, true),
            (by(json!(null), none.clone()), true, true, false),
            (by(app.clone(), json!({ "namespaceSelector": {} })), true, false, true),
            (by(app.clone(), json!({ "namespaces": ["other"] })), true, false, true),
            (by(app.clone(), json!({ "namespaces": ["other"] })), true, true, false),
            (
                by(app.clone(), json!({ "namespaceSelector": { "matchLabels": { "x": "y" } } })),
                true,
                true,
                false,
            ),
            (by(app.clone(), json!({ "topologyKey": "zone" })), false, true, false),
        ] {
            let asking = pod("own", of_app.clone(), term.clone());
            assert_eq!(has_any(&asking), own, "{term}");
            let namespace = if other { "own" } else { "other" };
            let there = pod(namespace, of_app.clone(), by(app.clone(), none.clone()));
            assert_eq!(Selected::of(&there).unwrap().keeps_away(&asking), expected, "{term}");
        }
    }
}
