//! Whether a node takes a pod at all: kube-scheduler's checks besides devices, as far as they depend on the Node object alone.
//! [`Cluster::shortage`](crate::Cluster::shortage) checks the room on the node. Pod affinity and spreading are not checked.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use tessera_allocator::node::NodeSelector;

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pod is on, or bound to, another node.
    #[error("the pod is bound to {0}")]
    BoundElsewhere(String),
    /// The node lacks a label of the pod's nodeSelector.
    #[error("it lacks the label {key}={value} of the pod's nodeSelector")]
    Label {
        /// The label's key.
        key: String,
        /// The required value.
        value: String,
    },
    /// The pod's required node affinity does not match the node.
    #[error("the pod's node affinity does not match it")]
    Affinity,
    /// The pod's node affinity cannot be evaluated.
    #[error("the pod's node affinity makes no sense: {0}")]
    BadAffinity(String),
    /// The node takes no new pods.
    #[error("it is cordoned")]
    Cordoned,
    /// The pod does not tolerate a taint.
    #[error("the pod does not tolerate its taint {0}")]
    Taint(String),
    /// The node has its maximum number of pods.
    #[error("it has all the {0} pods that it may have")]
    Pods(u32),
    /// Too little of a resource is left.
    #[error("the pod asks for {asked} of {resource}, and {free} are free")]
    Resource {
        /// The resource.
        resource: String,
        /// Amount requested by the pod.
        asked: String,
        /// Amount left.
        free: String,
    },
    /// A host port of the pod is taken.
    #[error("its port {0} is taken")]
    Port(i32),
    /// The pod's required anti-affinity matches a pod on the node.
    #[error("a pod runs there beside which its podAntiAffinity does not let it run")]
    AntiAffinity,
    /// A volume of the pod is for other nodes.
    #[error("the pod's volume {0} is for other nodes")]
    Volume(String),
    /// A claim of the pod has devices that belong to other nodes.
    #[error("the claim {0} has its devices elsewhere")]
    ClaimElsewhere(String),
}

/// Why the node does not take the pod; `None` if the node does.
pub fn refusal(pod: &Pod, node: &Node) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if let Some(bound) = spec.node_name.as_deref().filter(|bound| *bound != name) {
        return Some(Refusal::BoundElsewhere(bound.to_owned()));
    }
    let labels = node.metadata.labels.as_ref();
    for (key, value) in spec.node_selector.iter().flatten() {
        if labels.and_then(|labels| labels.get(key)) != Some(value) {
            return Some(Refusal::Label { key: key.clone(), value: value.clone() });
        }
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    if let Some(required) = required {
        match NodeSelector::from(required).matches(&node.into()) {
            Ok(true) => {}
            Ok(false) => return Some(Refusal::Affinity),
            Err(reason) => return Some(Refusal::BadAffinity(reason)),
        }
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let node_spec = node.spec.as_ref();
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let is_cordoned = node_spec.is_some_and(|spec| spec.unschedulable == Some(true));
    let taints = node_spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints
        .iter()
        .chain(is_cordoned.then_some(&cordon))
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
        .map(|taint| {
            if taint.key == cordon.key {
                return Refusal::Cordoned;
            }
            let value = taint.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
            Refusal::Taint(format!("{}{value}:{}", taint.key, taint.effect))
        })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any = |field: &Option<String>| field.as_deref().unwrap_or_default().is_empty();
    (is_any(&toleration.effect) || toleration.effect.as_deref() == Some(&taint.effect))
        && (is_any(&toleration.key) || toleration.key.as_deref() == Some(&taint.key))
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => {
                toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal_of(pod: serde_json::Value, node: serde_json::Value) -> Option<Refusal> {
        refusal(
            &serde_json::from_value(json!({ "spec": pod })).unwrap(),
            &serde_json::from_value(json!({
                "metadata": { "name": "a", "labels": { "zone": "x" } },
                "spec": node,
            }))
            .unwrap(),
        )
    }

    #[test]
    fn nodes_refuse_pods_for_labels_taints_and_cordons() {
        let pod = |extra: serde_json::Value| {
            let mut pod = json!({ "containers": [] });
            for (key, value) in extra.as_object().unwrap() {
                pod[key] = value.clone();
            }
            pod
        };
        let tainted = json!({ "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] });
        assert_eq!(refusal_of(pod(json!({})), json!({})), None);
        assert_eq!(refusal_of(pod(json!({ "nodeSelector": { "zone": "x" } })), json!({})), None);
        assert!(
            refusal_of(pod(json!({ "nodeSelector": { "zone": "y" } })), json!({}))
                .unwrap()
                .to_string()
                .contains("zone=y")
        );
        assert!(refusal_of(pod(json!({})), tainted.clone()).unwrap().to_string().contains("k=v:NoSchedule"));
        let tolerant = pod(json!({ "tolerations": [{ "operator": "Exists" }] }));
        assert_eq!(refusal_of(tolerant, tainted), None);
        assert_eq!(refusal_of(pod(json!({})), json!({ "unschedulable": true })), Some(Refusal::Cordoned));
    }
}
