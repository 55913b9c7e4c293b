//! Kubelet plugins: whether they run, are ready, and publish.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::{Facts, Finding, error};

/// What is wrong with plugins.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let publishing = facts.published.nodes();
    let mut found = Vec::new();
    for pod in facts.pods_of("kubelet-plugin") {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
            if facts.node.is_none() {
                found.push(error(
                    format!("pod {name}"),
                    "the kubelet plugin has no node",
                    format!("kubectl describe pod {name} -n {namespace}"),
                ));
            }
            continue;
        };
        if !facts.is_asked(node) {
            continue;
        }
        let about = format!("node {node}");
        if is_ready(pod) {
            if !publishing.contains(node) {
                found.push(error(
                    about,
                    "its kubelet plugin is ready and has published no card",
                    format!(
                        "kubectl logs {name} -n {namespace}: are there cards, and does a GpuPool offer anything of them?"
                    ),
                ));
            }
            continue;
        }
        let lines = facts.live.and_then(|live| live.readyz.get(name));
        let missing: Vec<&str> = lines
            .into_iter()
            .flat_map(|lines| lines.lines())
            .filter_map(|line| line.strip_prefix("[-] "))
            .collect();
        let why = match (missing.is_empty(), waiting(pod)) {
            (false, _) => missing.join("; "),
            (true, Some(waiting)) => waiting,
            (true, None) => "it does not say why".to_owned(),
        };
        found.push(error(
            about,
            format!("its kubelet plugin is not ready: {why}"),
            format!("kubectl describe pod {name} -n {namespace}; kubectl logs {name} -n {namespace}"),
        ));
    }
    // Slices of a node on which no plugin runs any more.
    let running: BTreeSet<&str> =
        facts.pods_of("kubelet-plugin").filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
    if !running.is_empty() {
        for node in publishing.iter().filter(|node| facts.is_asked(node) && !running.contains(*node)) {
            found.push(error(
                format!("node {node}"),
                "cards are published, and no kubelet plugin runs: claims allocated there are not prepared",
                "does the DaemonSet's nodeSelector still select the node? If the node is gone, its slices go with the Node object",
            ));
        }
    }
    found
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What the kubelet says of a container that does not run.
fn waiting(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let mut states = statuses.iter().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let waiting = states.next()?;
    let message = waiting.message.as_deref().unwrap_or_default();
    Some(format!("{} {message}", waiting.reason.as_deref().unwrap_or_default()).trim().to_owned())
}
