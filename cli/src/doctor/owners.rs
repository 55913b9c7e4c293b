//! Other owners of a node's cards: a device plugin, NVIDIA's DRA driver, the GPU Operator's MIG manager.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

use super::{Finding, error};

/// NVIDIA's own DRA driver.
const NVIDIA: &str = "gpu.nvidia.com";

// Labels of the GPU Operator: the desired layout for its MIG manager, its progress, and whether the manager runs on the node.
// https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html
const MIG_CONFIG: &str = "nvidia.com/mig.config";
const MIG_STATE: &str = "nvidia.com/mig.config.state";
const MIG_MANAGER: &str = "nvidia.com/gpu.deploy.mig-manager";

/// Other owners of cards on a node whose devices `drivers` publish.
pub fn findings(name: &str, node: &Node, drivers: &BTreeSet<&str>, driver: &str) -> Vec<Finding> {
    let about = format!("node {name}");
    let mut found = Vec::new();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let served: Vec<&str> = allocatable
        .into_iter()
        .flatten()
        .filter(|(resource, amount)| resource.starts_with("nvidia.com/") && amount.0 != "0")
        .map(|(resource, _)| resource.as_str())
        .collect();
    if !served.is_empty() {
        found.push(error(
            &about,
            format!("a device plugin serves {} there, too: a card can be allocated twice", served.join(", ")),
            format!("remove NVIDIA's device plugin from the node (GPU Operator: devicePlugin.enabled=false, or kubectl label node {name} nvidia.com/gpu.deploy.device-plugin=false --overwrite), or keep Tessera off it by nodeSelector"),
        ));
    }
    if driver != NVIDIA && drivers.contains(NVIDIA) {
        found.push(error(
            &about,
            format!("NVIDIA's DRA driver ({NVIDIA}) publishes the cards, too: a card can be allocated twice"),
            "set resources.gpus.enabled=false in its chart, or keep one of the two off the node by nodeSelector",
        ));
    }
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let (wanted, state) = (label(MIG_CONFIG), label(MIG_STATE));
    // A layout's label alone is also the GpuPools' way of choosing a node's layout (docs/mig-layouts.md).
    let has_manager = state.is_some() || label(MIG_MANAGER) == Some("true");
    if has_manager && label(MIG_MANAGER) != Some("false") {
        let layout = wanted.unwrap_or("(no longer named)");
        let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
        found.push(error(
            about,
            format!("the GPU Operator's MIG manager applies the layout {layout}{state}: it destroys partitions in \
                     use by claims"),
            format!("set migManager.enabled=false in the GPU Operator, or kubectl label node {name} \
                     {MIG_MANAGER}=false --overwrite; in Tessera, layouts are set by a GpuPool (docs/mig-layouts.md)"),
        ));
    }
    found
}
