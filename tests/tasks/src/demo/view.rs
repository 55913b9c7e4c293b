//! The demo's view of pods, claims and devices in the cluster, and of containers.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use serde::{Deserialize, Serialize};

/// A claim as one pod uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimUse {
    /// Namespace of claim and pod.
    pub namespace: String,
    /// The claim's name; `None` while none exists.
    pub name: Option<String>,
    /// The pod's name.
    pub pod: String,
    /// The allocated devices by name, in the order of the allocation.
    pub devices: Vec<String>,
    /// The pod's node; `None` while the pod waits.
    pub node: Option<String>,
    /// The pod's phase.
    pub phase: String,
    /// The chosen alternative of a prioritized list, or why the pod waits; for people.
    #[serde(skip)]
    pub remark: String,
}

/// The part of the output of the test image's `view` shown by the demo.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct ContainerView {
    environment: BTreeMap<String, String>,
    devices: Vec<DeviceNode>,
    /// A program's report about its device.
    #[serde(skip)]
    program: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct DeviceNode {
    path: String,
}

impl ContainerView {
    /// The view in a container's log, if there is one.
    pub fn from_log(log: &str) -> Option<Self> {
        log.lines().find_map(|line| serde_json::from_str(line).ok().or_else(|| Self::of_program(line)))
    }

    /// The first line of `cuda-sample`.
    fn of_program(line: &str) -> Option<Self> {
        let said: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
        let part = |name: &str| {
            let value = said.get(name).filter(|value| !value.is_null())?;
            Some(format!("{name}: {}", value.to_string().trim_matches('"')))
        };
        let program = ["device", "memoryLimitMiB", "multiprocessors"].into_iter().filter_map(part).collect();
        said.contains_key("device").then_some(Self { program, ..Self::default() })
    }

    /// A program's report about its device, `name: value`.
    pub fn program(&self) -> &[String] {
        &self.program
    }

    /// A view from another source than a log.
    pub fn new(
        environment: BTreeMap<String, String>,
        device_nodes: impl IntoIterator<Item = String>,
    ) -> Self {
        let devices = device_nodes.into_iter().map(|path| DeviceNode { path }).collect();
        Self { environment, devices, program: Vec::new() }
    }

    /// The environment variables set by claims and devices, `NAME=value`.
    pub fn environment(&self) -> Vec<String> {
        let ours = |name: &str| {
            ["NVIDIA_", "CUDA_", "TESSERA_", "GPU_"].iter().any(|prefix| name.starts_with(prefix))
        };
        self.environment
            .iter()
            .filter(|(name, _)| ours(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// The NVIDIA device nodes in `/dev`: first the cards, then the nodes for parts of cards, then the nodes needed by
    /// every container with a card.
    pub fn device_nodes(&self) -> Vec<&str> {
        let rank = |path: &&str| match path.strip_prefix("/dev/nvidia") {
            Some(rest) if rest.starts_with(|first: char| first.is_ascii_digit()) => 0,
            Some(rest) if rest.starts_with("-caps/") => 1,
            _ => 2,
        };
        let mut nodes: Vec<&str> = self
            .devices
            .iter()
            .map(|node| node.path.as_str())
            .filter(|path| path.starts_with("/dev/nvidia"))
            .collect();
        nodes.sort_by_key(rank);
        nodes
    }
}

/// The claims of `pods`, one entry for each claim and pod; also one for a pod without claims.
pub fn claim_uses(pods: &[Pod], claims: &[ResourceClaim]) -> Vec<ClaimUse> {
    let by_name: HashMap<(&str, &str), &ResourceClaim> = claims
        .iter()
        .filter_map(|claim| {
            Some(((claim.metadata.namespace.as_deref()?, claim.metadata.name.as_deref()?), claim))
        })
        .collect();
    let mut uses: Vec<ClaimUse> = pods.iter().flat_map(|pod| uses_of(pod, &by_name)).collect();
    uses.sort_by(|a, b| (&a.namespace, &a.pod, &a.name).cmp(&(&b.namespace, &b.pod, &b.name)));
    uses
}

fn uses_of(pod: &Pod, claims: &HashMap<(&str, &str), &ResourceClaim>) -> Vec<ClaimUse> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let mut names: Vec<Option<String>> = status
        .resource_claim_statuses
        .iter()
        .flatten()
        .filter_map(|s| s.resource_claim_name.clone())
        .chain(status.extended_resource_claim_status.iter().map(|s| s.resource_claim_name.clone()))
        .map(Some)
        .collect();
    if names.is_empty() {
        names.push(None);
    }
    let waits = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .and_then(|condition| condition.message.as_deref())
        // The text after the first sentence is about preemption, which does not exist for devices.
        .map(|message| message.split(". ").next().unwrap_or(message).to_owned());
    names
        .into_iter()
        .map(|name| {
            let results = name
                .as_deref()
                .and_then(|name| claims.get(&(namespace.as_str(), name)))
                .and_then(|claim| {
                    claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?.results.clone()
                })
                .unwrap_or_default();
            let alternative = results.iter().find_map(|result| result.request.split_once('/'));
            ClaimUse {
                namespace: namespace.clone(),
                pod: pod.metadata.name.clone().unwrap_or_default(),
                devices: results.iter().map(|result| result.device.clone()).collect(),
                node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
                phase: status.phase.clone().unwrap_or_else(|| "Unknown".into()),
                remark: match (alternative, &waits) {
                    (Some((_, taken)), _) => format!("alternative `{taken}`"),
                    (None, Some(reason)) => reason.clone(),
                    (None, None) => String::new(),
                },
                name,
            }
        })
        .collect()
}

/// Devices of ended pods: Kubernetes frees a claim's devices as soon as its last pod has ended.
#[derive(Default)]
pub struct Memory(HashMap<String, ClaimUse>);

impl Memory {
    /// `uses`, with the devices of ended pods from their running time.
    pub fn recall(&mut self, mut uses: Vec<ClaimUse>) -> Vec<ClaimUse> {
        for claim_use in &mut uses {
            if claim_use.devices.is_empty() {
                if let Some(before) = self.0.get(&claim_use.pod).filter(|_| claim_use.node.is_some()) {
                    claim_use.devices.clone_from(&before.devices);
                    claim_use.name.clone_from(&before.name);
                    claim_use.remark.clone_from(&before.remark);
                }
            } else {
                self.0.insert(claim_use.pod.clone(), claim_use.clone());
            }
        }
        uses
    }
}

/// Number of devices in `slices`.
pub fn device_count(slices: &[ResourceSlice]) -> usize {
    slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).count()
}

/// Whether nothing more will happen to `claim_use` by itself: the pod runs, has ended, or cannot be scheduled.
pub fn settled(claim_use: &ClaimUse) -> bool {
    match claim_use.phase.as_str() {
        "Running" | "Succeeded" | "Failed" => true,
        // Devices are allocated before the node is set: a pod with devices is about to run.
        _ => claim_use.node.is_none() && claim_use.devices.is_empty() && !claim_use.remark.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_waiting_pod_says_why() {
        let waiting = pod(serde_json::json!({
            "metadata": {"name": "greedy", "namespace": "demo"},
            "status": {"phase": "Pending",
                "resourceClaimStatuses": [{"name": "cards", "resourceClaimName": "greedy-cards-x"}],
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "cannot allocate all claims"}]}
        }));
        let uses = claim_uses(&[waiting], &[]);
        assert_eq!(uses.len(), 1);
        assert_eq!(uses[0].remark, "cannot allocate all claims");
        assert!(uses[0].devices.is_empty() && settled(&uses[0]));
    }

    #[test]
    fn a_pod_without_a_claim_names_none() {
        let waiting = pod(serde_json::json!({
            "metadata": {"name": "unchanged", "namespace": "demo"}, "status": {"phase": "Pending"}
        }));
        let uses = claim_uses(&[waiting], &[]);
        assert_eq!(serde_json::to_value(&uses[0]).unwrap()["name"], serde_json::Value::Null);
    }

    #[test]
    fn a_pod_that_has_its_devices_but_no_node_yet_is_about_to_run() {
        let pod = pod(serde_json::json!({
            "metadata": {"name": "training", "namespace": "demo"},
            "status": {"phase": "Pending",
                "resourceClaimStatuses": [{"name": "cards", "resourceClaimName": "training-cards-x"}]}
        }));
        let claim = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "training-cards-x", "namespace": "demo"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [
                {"request": "cards/aligned", "driver": "d", "pool": "p", "device": "gpu-3b-00"}]}}}
        }))
        .unwrap();
        let uses = claim_uses(&[pod], &[claim]);
        assert!(!uses[0].remark.is_empty() && !settled(&uses[0]));
    }

    #[test]
    fn an_extended_resource_pod_shows_the_claim_the_scheduler_made() {
        let running = pod(serde_json::json!({
            "metadata": {"name": "unchanged", "namespace": "demo"},
            "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": "Running",
                "extendedResourceClaimStatus": {"resourceClaimName": "unchanged-extended", "requestMappings": []}}
        }));
        let claim = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "unchanged-extended", "namespace": "demo"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [
                {"request": "r", "driver": "d", "pool": "p", "device": "gpu-3b-00"},
                {"request": "r", "driver": "d", "pool": "p", "device": "gpu-86-00"}]}}}
        }))
        .unwrap();
        let uses = claim_uses(&[running], &[claim]);
        assert_eq!(uses[0].devices, ["gpu-3b-00", "gpu-86-00"]);
        assert_eq!(uses[0].name.as_deref(), Some("unchanged-extended"));
    }

    #[test]
    fn a_program_shows_what_it_got() {
        let log = r#"{"activeThreadPercentage":25.0,"device":"GPU-1","memoryLimitMiB":19456,"mpsServer":7,"multiprocessors":33}
{"holdsMiB":19000}"#;
        let view = ContainerView::from_log(log).unwrap();
        assert_eq!(view.program(), ["device: GPU-1", "memoryLimitMiB: 19456", "multiprocessors: 33"]);
    }

    #[test]
    fn a_container_shows_only_what_its_devices_set() {
        let log = r#"{"environment":{"PATH":"/bin","NVIDIA_VISIBLE_DEVICES":"void"},"devices":[{"path":"/dev/null"},{"path":"/dev/nvidiactl"},{"path":"/dev/nvidia-caps/nvidia-cap3"},{"path":"/dev/nvidia3"}]}"#;
        let view = ContainerView::from_log(log).unwrap();
        assert_eq!(view.environment(), ["NVIDIA_VISIBLE_DEVICES=void"]);
        assert_eq!(view.device_nodes(), ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidiactl"]);
    }
}
