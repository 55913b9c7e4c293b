//! From the GPU Operator's device plugin and MIG manager; its driver, toolkit and feature discovery stay. Source: ClusterPolicy
//! (<https://github.com/NVIDIA/gpu-operator/blob/main/deployments/gpu-operator/templates/clusterpolicy.yaml>).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::release::{self, Charts, Release, at};
use super::sharing::Configurations;
use super::{Draft, Known, MigrateError, Plan, labels, layouts, steps, values, workloads};
use crate::foreign;

/// Where its driver container has the driver, unless hostPaths says otherwise.
const DRIVER_ROOT: &str = "/run/nvidia/driver";

/// Label for the purpose of a node's cards: containers or virtual machines.
const WORKLOAD: &str = "nvidia.com/gpu.workload.config";

const CHARTS: Charts =
    Charts { names: &["gpu-operator"], image: "/gpu-operator:", container: "gpu-operator" };

/// Makes the plan.
pub fn plan(known: Known<'_>) -> Result<Plan, MigrateError> {
    let release = release::find(known.foreign, &CHARTS, known.namespace)?;
    let policy = known.foreign.cluster_policies.first();
    let nothing = MigrateError::Nothing {
        driver: "the GPU Operator",
        charts: CHARTS.names.join(" or "),
        also: "ClusterPolicy",
    };
    let mut draft = Draft::default();
    // The ClusterPolicy is authoritative: helm does not know of changes by hand.
    let spec = policy.and_then(|policy| policy.get("spec"));
    let all = match (spec, &release) {
        (Some(spec), _) => spec.clone(),
        (None, Some(release)) => release.all.clone(),
        (None, None) => return Err(nothing),
    };
    draft.found.extend(release.as_ref().map(Release::told));
    draft.found.extend(policy.map(|policy| format!("ClusterPolicy {}", foreign::name(policy))));
    let said = release.as_ref().map_or_else(|| json!({}), |release| release.said.clone());
    let of_sets = |set: &Value| foreign::images(set).any(|image| image.contains("k8s-device-plugin"));
    let of_set = known.foreign.daemon_sets.iter().find(|set| of_sets(set)).map(foreign::namespace);
    let namespace =
        release.as_ref().map(|release| release.namespace.as_str()).or(of_set).unwrap_or("gpu-operator");
    let settings = Release {
        name: release.as_ref().map_or("gpu-operator", |release| release.name.as_str()).to_owned(),
        namespace: namespace.to_owned(),
        chart: release.as_ref().and_then(|release| release.chart.clone()),
        said,
        all,
    };
    driver(&settings, &mut draft);
    for (theirs, ours) in [("gdrcopy", "gdrcopyEnabled"), ("gds", "gdsEnabled")] {
        if settings.is_on(&format!("{theirs}.enabled")) {
            draft.values.set(&[ours], true);
        }
        draft.values.carried(theirs);
    }
    if settings.at("devicePlugin.enabled") == Some(&Value::Bool(false)) {
        draft.note("devicePlugin", "already off: pods asking for nvidia.com/gpu get nothing from it");
    }
    let configurations =
        Configurations::read(known, namespace, settings.at("devicePlugin.config"), &mut draft)?;
    let resources = configurations.carry(known, settings.text("mig.strategy"), &mut draft)?;
    if settings.at("migManager.enabled") != Some(&Value::Bool(false)) {
        layouts::carry(known, namespace, settings.at("migManager.config"), &mut draft)?;
    }
    let served = resources.carry(known, &mut draft);
    virtual_machines(known, &settings, &mut draft);
    if let Some(class) =
        settings.text("daemonsets.priorityClassName").filter(|class| *class != "system-node-critical")
    {
        draft.values.set(&["kubeletPlugin", "priorityClassName"], class);
    }
    for carried in [
        "driver",
        "toolkit",
        "hostPaths",
        "daemonsets",
        "devicePlugin",
        "mig",
        "migManager",
        "nfd",
        "gfd",
        "operator",
    ] {
        draft.values.carried(carried);
    }
    for stays in
        ["dcgm", "dcgmExporter", "validator", "cdi", "node-feature-discovery", "platform", "psa", "ccManager"]
    {
        draft.values.carried(stays);
    }
    values::rest(&mut draft, &settings);
    let steps = steps::of_operator(known, &settings, &draft);
    Ok(draft.plan(
        "the GPU Operator's device plugin and MIG manager",
        workloads::of_resources(known, &served),
        steps,
    ))
}

fn driver(settings: &Release, draft: &mut Draft) {
    if settings.at("driver.enabled") == Some(&Value::Bool(false)) {
        draft.note("driver", "installed on the nodes themselves: driverRoot is /");
        return;
    }
    let root = settings.text("hostPaths.driverInstallDir").unwrap_or(DRIVER_ROOT);
    draft.values.set(&["driverRoot"], root);
    draft.note(
        "driver, toolkit, gfd, dcgmExporter",
        "they stay: only the operator's device plugin and MIG manager are switched off",
    );
    if at(&settings.all, "driver.upgradePolicy.autoUpgrade") == Some(&Value::Bool(true)) {
        draft.note(
            "driver.upgradePolicy",
            "before an upgrade the operator ends pods asking for nvidia.com/gpu, but does not know pods with \
             claims: drain such nodes (driver.upgradePolicy.drain.enable)",
        );
    }
}

/// Nodes whose cards are for virtual machines are left alone.
fn virtual_machines(known: Known<'_>, settings: &Release, draft: &mut Draft) {
    if !settings.is_on("sandboxWorkloads.enabled") {
        return;
    }
    let default = settings.text("sandboxWorkloads.defaultWorkload").unwrap_or("container");
    let values: BTreeSet<&str> = labels(known)
        .values()
        .filter_map(|labels| labels.get(WORKLOAD).copied())
        .filter(|value| *value != "container")
        .collect();
    let operator = if default == "container" {
        json!({ "key": WORKLOAD, "operator": "NotIn", "values": ["vm-passthrough", "vm-vgpu"] })
    } else {
        json!({ "key": WORKLOAD, "operator": "In", "values": ["container"] })
    };
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [operator] }] } } });
    draft.values.set(&["kubeletPlugin", "affinity"], affinity);
    draft.values.carried("sandboxWorkloads");
    let of = values.into_iter().collect::<Vec<_>>().join(", ");
    let of = if of.is_empty() { String::new() } else { format!(" ({of})") };
    draft.note(
        "sandboxWorkloads",
        format!(
            "nodes for virtual machines{of} stay with the operator: kubeletPlugin.affinity keeps them out"
        ),
    );
}
