//! Workloads requesting cards, and their future requests.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceClaim;
use serde::Serialize;
use tessera_cluster::{DeviceClaimExt, Key, PodExt};

use super::Known;
use crate::unasked::{is_of_daemons, owner, resources, sets_variable};

/// A workload, by the owner of its pods, or a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// `team/ReplicaSet web-5d8`
    pub name: String,
    /// Its pods.
    pub pods: usize,
    /// Current request.
    pub asks: String,
    /// Request after the migration.
    pub becomes: String,
}

/// Pods requesting from a device plugin. `served`: the DeviceClass for each resource.
pub fn of_resources(known: Known<'_>, served: &BTreeMap<String, String>) -> Vec<Workload> {
    let mut found: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for (Key { namespace, name }, pod) in &known.objects.pods {
        // Finished pods request nothing.
        if pod.is_finished() {
            continue;
        }
        let asked = resources(pod);
        let becomes: BTreeSet<String> = asked
            .keys()
            .map(|resource| match served.get(resource) {
                Some(class) => format!("unchanged: DeviceClass {class} stands for {resource}"),
                None => format!(
                    "nothing serves {resource}: add a DeviceClass with this extendedResourceName \
                                 (docs/installing.md)"
                ),
            })
            .chain(sees_all(pod, asked.is_empty()))
            .collect();
        if becomes.is_empty() {
            continue;
        }
        let asks: Vec<String> = asked.iter().map(|(resource, count)| format!("{count} {resource}")).collect();
        let asks = if asks.is_empty() { "nothing".to_owned() } else { asks.join(", ") };
        let becomes: Vec<String> = becomes.into_iter().collect();
        *found.entry((owner(namespace, name, pod), asks, becomes.join("; "))).or_default() += 1;
    }
    found.into_iter().map(|((name, asks, becomes), pods)| Workload { name, pods, asks, becomes }).collect()
}

/// Containers with all cards from NVIDIA's runtime because of their own variable.
fn sees_all(pod: &Pod, asks_for_nothing: bool) -> Option<String> {
    (asks_for_nothing && sets_variable(pod) && !is_of_daemons(pod)).then(|| {
        "NVIDIA_VISIBLE_DEVICES gives access to cards through NVIDIA's runtime, uncounted by any driver; let the \
         pod ask for the cards it uses".to_owned()
    })
}

/// Claims and templates for NVIDIA's DRA driver.
pub fn of_claims(known: Known<'_>) -> Vec<Workload> {
    let mut found = Vec::new();
    let mut add = |name: String, devices: Option<&DeviceClaim>| {
        let Some(devices) = devices else { return };
        let asked = classes(devices);
        if asked.iter().any(|class| class.contains("nvidia.com")) {
            let asks = asked.into_iter().collect::<Vec<_>>().join(", ");
            found.push(Workload { name, pods: 0, asks, becomes: becomes(devices) });
        }
    };
    for (Key { namespace, name }, template) in &known.objects.templates {
        let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
        add(format!("ResourceClaimTemplate {namespace}/{name}"), spec.and_then(|spec| spec.devices.as_ref()));
    }
    for (Key { namespace, name }, claim) in &known.objects.claims {
        // Claims made from templates are covered by their template.
        let annotations = claim.metadata.annotations.as_ref();
        if annotations.is_some_and(|all| all.contains_key("resource.kubernetes.io/pod-claim-name")) {
            continue;
        }
        add(
            format!("ResourceClaim {namespace}/{name}"),
            claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()),
        );
    }
    found
}

fn classes(devices: &DeviceClaim) -> BTreeSet<&str> {
    devices.asked().map(|(class, _)| class).collect()
}

fn becomes(devices: &DeviceClaim) -> String {
    let mut parts = Vec::new();
    for class in classes(devices) {
        if class.starts_with("vfio.") {
            parts.push("cards for virtual machines are not offered".to_owned());
        } else if class.starts_with("compute-domain") {
            parts.push("unchanged: ComputeDomains stay with NVIDIA's chart".to_owned());
        }
    }
    let text = serde_json::to_string(devices).unwrap_or_default();
    if text.contains("\"shares\"") {
        parts.push(
            "unchanged where a GpuPool offers consumableShares of mode Shares; refused where none does (docs/coming-from-nvidia.md)".to_owned(),
        );
    }
    if text.contains(".uuid") {
        parts.push(
            "its selector reads uuid, and partitions made on demand have none: kubectl gpu doctor finds where the \
             selector fails".to_owned(),
        );
    }
    if parts.is_empty() { "unchanged".to_owned() } else { parts.join("; ") }
}
