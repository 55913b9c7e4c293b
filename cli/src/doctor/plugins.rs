//! Kubelet plugins: whether they run, are ready, and publish.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::PodExt;

use super::{Facts, Finding, claims, error};

/// Problems of plugins.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let publishing = facts.published.nodes();
    let mut found = Vec::new();
    for pod in facts.pods_of("kubelet-plugin") {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(node) = pod.node_name() else {
            if facts.node.is_none() {
                found.push(error(
                    format!("pod {name}"),
                    "the kubelet plugin is not scheduled to a node",
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
                    "the kubelet plugin is ready but has published no card",
                    format!(
                        "kubectl logs {name} -n {namespace}: does the node have cards, and does a GpuPool offer any \
                         of them?"
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
            (true, None) => "it gives no reason".to_owned(),
        };
        found.push(error(
            about,
            format!("the kubelet plugin is not ready: {why}"),
            format!("kubectl describe pod {name} -n {namespace}; kubectl logs {name} -n {namespace}"),
        ));
    }
    found.extend(absent(facts));
    found
}

/// Nodes with published cards or allocated devices, but without a running plugin.
fn absent(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(served) = facts.plugin_nodes() else { return Vec::new() };
    let holding = claims::holding(facts);
    let mut nodes = facts.published.nodes();
    nodes.extend(holding.keys());
    nodes.retain(|node| facts.is_asked(node) && !served.contains(node));
    let is_none_at_all = facts.pods_of("kubelet-plugin").next().is_none();
    let finding = |node: &str| {
        let held = holding.get(node).map_or(String::new(), |claims| {
            format!(" ({} devices there: {})", holds(claims.len()), first(claims))
        });
        let todo = if is_none_at_all {
            "no node has a plugin: install the chart again (docs/installing.md). Do not delete pods: they keep \
             running, and deleted ones stay Terminating until a plugin is back"
        } else {
            "does the DaemonSet's nodeSelector still select the node? If the node is gone, delete its Node object, \
             and its slices go, too. Do not delete its pods: they stay Terminating until a plugin is back"
        };
        let what = format!(
            "no kubelet plugin runs there: its devices are not prepared, and claims holding them do not end{held}"
        );
        error(format!("node {node}"), what, todo)
    };
    nodes.into_iter().map(finding).collect()
}

fn holds(claims: usize) -> String {
    if claims == 1 { "1 claim holds".to_owned() } else { format!("{claims} claims hold") }
}

/// The first claims by name, and how many more there are.
fn first(claims: &[String]) -> String {
    const NAMED: usize = 3;
    let named = claims[..claims.len().min(NAMED)].join(", ");
    match claims.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The kubelet's message about a container not running.
fn waiting(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let mut states = statuses.iter().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let waiting = states.next()?;
    let message = waiting.message.as_deref().unwrap_or_default();
    Some(format!("{} {message}", waiting.reason.as_deref().unwrap_or_default()).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use tessera_cluster::{Key, Objects};

    use super::*;
    use crate::doctor::published::Published;
    use crate::doctor::{self, Live};

    #[test]
    fn after_an_uninstall_nobody_is_told_to_delete_running_pods() {
        let allocated = json!({ "metadata": { "name": "c" }, "spec": {}, "status": {
            "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }],
            "allocation": { "devices": { "results": [{ "request": "r", "driver": "gpu.tessera.dev",
                "pool": "gpu.tessera.dev/node-a", "device": "gpu-01-00" }] } } } });
        let claim = std::sync::Arc::new(serde_json::from_value(allocated).unwrap());
        let key = Key::new("team", "c");
        let objects = Objects { claims: [(key, claim)].into(), ..Objects::default() };
        let told = |plugins: Option<usize>| {
            let live = Live { plugins, ..Live::default() };
            let facts = Facts {
                objects: &objects,
                published: &Published::default(),
                pools: Some(&[].into()),
                live: Some(&live),
                driver: "gpu.tessera.dev",
                node: None,
                now: Timestamp::UNIX_EPOCH,
            };
            let text = |finding: Finding| format!("{}: {}; {}", finding.about, finding.what, finding.todo);
            doctor::findings(&facts).into_iter().map(text).collect::<Vec<_>>()
        };
        let absent = told(Some(0));
        assert_eq!(absent.len(), 1, "{absent:?}");
        assert!(absent[0].starts_with("node node-a: no kubelet plugin runs there"), "{absent:?}");
        assert!(absent[0].contains("(1 claim holds devices there: team/c)"), "{absent:?}");
        assert!(absent[0].contains("install the chart again") && !absent[0].contains("delete its pods"));
        // Without permission to read all pods, the running plugins are unknown.
        let unknown = told(None);
        assert!(unknown.len() == 1 && unknown[0].contains("but no node publishes it"), "{unknown:?}");
    }
}
