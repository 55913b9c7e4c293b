//! Steps of the migration, in order: before, on each node, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tessera_api::DEFAULT_DRIVER_NAME;

use super::release::Release;
use super::{Draft, Known, labels};
use crate::unasked::resources;

/// Namespace of our chart.
const NAMESPACE: &str = "tessera-system";

/// Node label for the driver running on the node, while both are in the cluster.
pub const MOVED: &str = "gpu.tessera.dev/moved-in";

/// Limit of a node's pods named; beyond the limit only their number is shown.
const NAMED: usize = 3;

/// A step with its commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Purpose of the step.
    pub what: String,
    /// The commands.
    pub commands: Vec<String>,
}

/// The steps of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSteps {
    /// The node.
    pub node: String,
    /// Its cards, as its labels say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cards: Option<String>,
    /// Pods with cards, or requesting some.
    pub pods: Vec<String>,
    /// The commands.
    pub commands: Vec<String>,
}

/// All steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// Once, before the first node.
    pub before: Vec<Step>,
    /// Node by node.
    pub nodes: Vec<NodeSteps>,
    /// Once, after the last node.
    pub after: Vec<Step>,
}

/// Fate of the other release at the end.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// The release is uninstalled.
    Uninstall,
    /// The release stays for other functions, with this value.
    Upgrade(&'static str),
}

/// Moving from a release with a nodeSelector.
pub struct Moving<'m> {
    /// Our driver's name.
    pub driver: &'static str,
    /// The path of the nodeSelector in its values.
    pub label_path: &'static str,
    /// The release.
    pub release: &'m Release,
    /// DeviceClasses created by both charts.
    pub classes: Vec<&'m str>,
    /// Fate of the release at the end.
    pub end: End,
}

fn step(what: impl Into<String>, commands: Vec<String>) -> Step {
    Step { what: what.into(), commands }
}

/// From the DRA driver or the device plugin.
pub fn of_release(known: Known<'_>, moving: &Moving<'_>, draft: &Draft) -> Steps {
    let nodes = with_cards(known);
    let Release { name, namespace, chart, .. } = moving.release;
    let from = if moving.driver == DEFAULT_DRIVER_NAME { "device-plugin" } else { "nvidia-dra" };
    let mut files = written(from, draft);
    // Values kept by `--reuse-values` cannot be removed again: null in place of a value stays, as a label without value.
    let own_values = format!("values-of-{name}.yaml");
    if let (End::Upgrade(_), Some(_)) = (moving.end, chart) {
        files
            .commands
            .push(format!("helm get values {name} --namespace {namespace} --output yaml > {own_values}"));
    }
    let mut before = vec![files];
    let all: Vec<&str> = nodes.keys().copied().collect();
    let mut keep = vec![format!("kubectl label nodes {} {MOVED}=no --overwrite", all.join(" "))];
    keep.push(match chart {
        Some(_) => format!(
            "helm upgrade {name} CHART --namespace {namespace} --reuse-values --set-string '{}.{}=no'",
            moving.label_path,
            MOVED.replace('.', "\\.")
        ),
        None => format!(
            "kubectl patch daemonset {name} --namespace {namespace} --type merge --patch '{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{{\"{MOVED}\":\"no\"}}}}}}}}}}'"
        ),
    });
    let of_chart = chart
        .as_ref()
        .map(|chart| format!(" (CHART is where {chart} was installed from, at the same version)"));
    before.push(step(
        format!(
            "Restrict the current driver to labelled nodes; all nodes get the label first{}",
            of_chart.unwrap_or_default()
        ),
        keep,
    ));
    if !moving.classes.is_empty() {
        before.push(step(
            "Hand the DeviceClasses of both charts over to ours: helm does not take them over by itself",
            vec![format!(
                "kubectl annotate deviceclass {} meta.helm.sh/release-name=tessera meta.helm.sh/release-namespace={NAMESPACE} --overwrite",
                moving.classes.join(" ")
            )],
        ));
    }
    before.push(install(draft));
    let nodes = nodes.iter().map(|(node, labels)| of_node(known, node, labels, "")).collect();
    let end = match (moving.end, chart) {
        (End::Uninstall, Some(_)) => format!("helm uninstall {name} --namespace {namespace}"),
        // The state before the first step.
        (End::Upgrade(value), Some(_)) => format!(
            "helm upgrade {name} CHART --namespace {namespace} --reset-values --values {own_values} --set '{value}'"
        ),
        (_, None) => format!("kubectl delete daemonset {name} --namespace {namespace}"),
    };
    let what = match moving.end {
        End::Uninstall => "Remove the other driver",
        End::Upgrade(_) => "Leave everything but cards to the other chart",
    };
    let what = if moving.classes.is_empty() {
        what.to_owned()
    } else {
        format!("{what}. Its helm release removes the shared DeviceClasses; the next command restores them")
    };
    Steps { before, nodes, after: vec![step(what, vec![end, upgrade()]), cleared(&all)] }
}

/// From the GPU Operator, whose parts are switched off by labels of nodes.
pub fn of_operator(known: Known<'_>, settings: &Release, draft: &Draft) -> Steps {
    let mut nodes = with_cards(known);
    nodes.retain(|_, labels| !matches!(labels.get("nvidia.com/gpu.workload.config"), Some(kind) if *kind != "container"));
    let off = " nvidia.com/gpu.deploy.device-plugin=false nvidia.com/gpu.deploy.mig-manager=false";
    let all: Vec<&str> = nodes.keys().copied().collect();
    let steps = nodes.iter().map(|(node, labels)| of_node(known, node, labels, off)).collect();
    let end = match (&settings.chart, known.foreign.cluster_policies.first()) {
        (Some(chart), _) => step(
            format!(
                "Switch both off for future nodes (CHART is where {chart} was installed from, at the same version)"
            ),
            vec![format!(
                "helm upgrade {} CHART --namespace {} --reuse-values --set devicePlugin.enabled=false,migManager.enabled=false",
                settings.name, settings.namespace
            )],
        ),
        (None, policy) => step(
            "Switch both off for future nodes",
            vec![format!(
                "kubectl patch clusterpolicy {} --type merge --patch '{{\"spec\":{{\"devicePlugin\":{{\"enabled\":false}},\"migManager\":{{\"enabled\":false}}}}}}'",
                policy.map_or("cluster-policy", crate::foreign::name)
            )],
        ),
    };
    let last = step("Let our plugin run on all nodes", vec![upgrade()]);
    Steps {
        before: vec![written("gpu-operator", draft), install(draft)],
        nodes: steps,
        after: vec![end, last, cleared(&all)],
    }
}

fn written(from: &str, draft: &Draft) -> Step {
    let mut commands = vec![format!("kubectl gpu migrate --from {from} -o values > values.yaml")];
    if has_manifests(draft) {
        commands.push(format!("kubectl gpu migrate --from {from} -o yaml > manifests.yaml"));
    }
    step("Write the files, and check them", commands)
}

fn has_manifests(draft: &Draft) -> bool {
    !draft.pools.is_empty() || !draft.classes.is_empty()
}

fn install(draft: &Draft) -> Step {
    let mut commands = vec![format!(
        "helm install tessera charts/tessera --namespace {NAMESPACE} --create-namespace --values values.yaml --set-string \
         'kubeletPlugin.nodeSelector.{}=yes'",
        MOVED.replace('.', "\\.")
    )];
    if has_manifests(draft) {
        commands.push("kubectl apply -f manifests.yaml".to_owned());
    }
    step("Install the chart; its plugin runs on no node yet", commands)
}

fn upgrade() -> String {
    format!("helm upgrade tessera charts/tessera --namespace {NAMESPACE} --values values.yaml")
}

fn cleared(nodes: &[&str]) -> Step {
    let commands =
        vec![format!("kubectl label nodes {} {MOVED}-", nodes.join(" ")), "kubectl gpu doctor".to_owned()];
    step("Remove the label again, and check the whole cluster", commands)
}

fn of_node(known: Known<'_>, node: &str, labels: &BTreeMap<&str, &str>, off: &str) -> NodeSteps {
    let label = |key: &str| labels.get(key).copied();
    let cards = label("nvidia.com/gpu.product").map(|product| {
        label("nvidia.com/gpu.count").map_or_else(|| product.to_owned(), |count| format!("{count} {product}"))
    });
    let here = known.objects.pods.iter().filter(|(_, pod)| {
        let spec = pod.spec.as_ref();
        let has_claims =
            spec.is_some_and(|spec| spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()));
        spec.and_then(|spec| spec.node_name.as_deref()) == Some(node)
            && (has_claims || !resources(pod).is_empty())
    });
    let mut pods: Vec<String> = here.map(|(key, _)| key.to_string()).collect();
    if pods.len() > NAMED {
        let more = pods.len() - NAMED;
        pods.truncate(NAMED);
        pods.push(format!("and {more} more"));
    }
    let commands = vec![
        format!("kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"),
        format!("kubectl label node {node}{off} {MOVED}=yes --overwrite"),
        format!(
            "kubectl wait pod --namespace {NAMESPACE} --selector app.kubernetes.io/component=kubelet-plugin --field-selector \
             spec.nodeName={node} --for condition=Ready --timeout 5m"
        ),
        format!("kubectl gpu doctor --node {node}"),
        format!("kubectl uncordon {node}"),
    ];
    NodeSteps { node: node.to_owned(), cards, pods, commands }
}

/// Nodes with cards, from their labels, a device plugin's resources, or a DRA driver's slices.
fn with_cards(known: Known<'_>) -> BTreeMap<&str, BTreeMap<&str, &str>> {
    let published: BTreeSet<&str> = known
        .objects
        .slices
        .values()
        .filter(|slice| slice.spec.driver == "gpu.nvidia.com")
        .filter_map(|slice| slice.spec.node_name.as_deref())
        .collect();
    let mut nodes = labels(known);
    nodes.retain(|name, labels| {
        let node = known.objects.node(name);
        let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
        let is_served =
            allocatable.is_some_and(|all| all.keys().any(|resource| resource.starts_with("nvidia.com/")));
        labels.get("nvidia.com/gpu.present") == Some(&"true") || is_served || published.contains(*name)
    });
    nodes
}
