//! Pods with cards from NVIDIA's runtime but no request for any: no driver knows of these, and claims hold the same cards.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use tessera_cluster::{Key, PodExt};

/// Variable of a container or its image: the cards to be given by NVIDIA's runtime.
const VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// How a pod gets to NVIDIA's runtime with nothing asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A container sets the variable, so sees cards if the runtime is the default one.
    Variable,
    /// The pod names a RuntimeClass of the runtime, so sees cards if a container or, as with NVIDIA's, an image sets the variable.
    RuntimeClass(String),
}

/// Of such a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unasked {
    /// Its node.
    pub node: String,
    /// `team/Deployment web`, `team/Pod web`.
    pub owner: String,
    /// How the pod gets the cards.
    pub how: How,
}

impl Unasked {
    /// For a pod on a node, not ended, not of a DaemonSet, and without requests by claims or by names of NVIDIA's device plugin
    /// or of DeviceClasses; `None` for others.
    pub fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let node = spec.node_name.clone()?;
        let has_claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
        let has_extended =
            pod.status.as_ref().is_some_and(|status| status.extended_resource_claim_status.is_some());
        if pod.is_finished() || has_claims || has_extended || !resources(pod).is_empty() || is_of_daemons(pod)
        {
            return None;
        }
        let class = spec.runtime_class_name.as_ref().filter(|class| class.contains("nvidia"));
        let how = match class {
            Some(class) if !is_kept_out(pod) => How::RuntimeClass(class.clone()),
            None if sets_variable(pod) => How::Variable,
            _ => return None,
        };
        let Key { namespace, name } = Key::from(&pod.metadata);
        Some(Self { node, owner: owner(&namespace, &name, pod), how })
    }
}

/// A pod's requests to NVIDIA's device plugin.
pub fn resources(pod: &Pod) -> BTreeMap<String, String> {
    let containers = containers(pod);
    let limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let asked = limits.flatten().filter(|(name, amount)| name.starts_with("nvidia.com/") && amount.0 != "0");
    asked.map(|(name, amount)| (name.clone(), amount.0.clone())).collect()
}

/// Whether a container names the cards to be visible, and some.
pub fn sets_variable(pod: &Pod) -> bool {
    values(pod).any(|value| !is_none(value))
}

/// Whether each container sets the variable to no cards, whatever its image sets.
fn is_kept_out(pod: &Pod) -> bool {
    let said: Vec<&str> = values(pod).collect();
    said.len() == containers(pod).count() && said.into_iter().all(is_none)
}

fn values(pod: &Pod) -> impl Iterator<Item = &str> {
    let variables = containers(pod).flat_map(|container| container.env.iter().flatten());
    variables
        .filter(|variable| variable.name == VARIABLE)
        .map(|variable| variable.value.as_deref().unwrap_or_default())
}

/// Values for no cards from the runtime.
fn is_none(value: &str) -> bool {
    matches!(value, "" | "void" | "none")
}

/// Drivers, exporters and their like are given all cards on purpose.
pub fn is_of_daemons(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

/// Creator of a pod: `ReplicaSet team/web-5d8`.
pub fn owner(namespace: &str, name: &str, pod: &Pod) -> String {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    match owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first()) {
        Some(owner) => format!("{} {namespace}/{}", owner.kind, owner.name),
        None => format!("Pod {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn how(spec: &Value) -> Option<How> {
        let mut spec = spec.clone();
        spec["nodeName"] = json!("n");
        let pod = json!({ "metadata": { "name": "p", "namespace": "team" }, "spec": spec });
        let found = Unasked::of(&serde_json::from_value(pod).unwrap())?;
        assert_eq!((found.node.as_str(), found.owner.as_str()), ("n", "Pod team/p"));
        Some(found.how)
    }

    #[test]
    fn who_gets_cards_without_asking() {
        let container = |more: &Value| {
            let mut container = json!({ "name": "c", "image": "i" });
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!([container])
        };
        let sees = |value: &str| container(&json!({ "env": [{ "name": VARIABLE, "value": value }] }));
        let class = How::RuntimeClass("nvidia".to_owned());
        for (spec, wanted) in [
            (json!({ "containers": sees("all") }), Some(How::Variable)),
            (json!({ "containers": sees("0,1") }), Some(How::Variable)),
            (json!({ "containers": sees("void") }), None),
            (json!({ "containers": container(&json!({})) }), None),
            (
                json!({ "containers": container(&json!({})), "runtimeClassName": "nvidia" }),
                Some(class.clone()),
            ),
            (json!({ "containers": sees("all"), "runtimeClassName": "nvidia" }), Some(class)),
            (json!({ "containers": sees("void"), "runtimeClassName": "nvidia" }), None),
            (json!({ "containers": sees("all"), "runtimeClassName": "gvisor" }), Some(How::Variable)),
            (
                json!({ "containers": sees("all"), "resourceClaims": [{ "name": "a", "resourceClaimName": "a" }] }),
                None,
            ),
            (
                json!({ "containers": container(&json!({ "env": [{ "name": VARIABLE, "value": "all" }],
                    "resources": { "limits": { "nvidia.com/gpu": "1" } } })) }),
                None,
            ),
        ] {
            assert_eq!(how(&spec), wanted, "{spec}");
        }
    }
}
