//! A small cluster for queries.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::steering::GATE;
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{Decider, Intent, Observation, Time};

pub const DRIVER: &str = "gpu.tessera.dev";

pub fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

pub fn key(name: &str) -> Key {
    Key::new("team", name)
}

pub fn node(name: &str) -> Object {
    labelled(name, json!({ "kubernetes.io/hostname": name }))
}

pub fn labelled(name: &str, labels: Value) -> Object {
    let object = json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "allocatable": { "cpu": "8", "pods": "110" } },
    });
    read::<k8s_openapi::api::core::v1::Node>(object).into()
}

pub fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

/// A node's slices: one with the counters and the report, one with its whole cards and halves of each. Slices of a managed pool
/// are tainted.
pub fn slices(node: &str, cards: usize, pool: Value) -> [Object; 2] {
    let is_tainted = pool["allocation"] == "Managed";
    slices_with(node, cards, pool, is_tainted)
}

/// Like [`slices`], with or without the taint of managed cards.
pub fn slices_with(node: &str, cards: usize, pool: Value, is_tainted: bool) -> [Object; 2] {
    let taints = if is_tainted {
        json!([{ "key": tessera_api::managed::TAINT_KEY, "effect": "NoSchedule" }])
    } else {
        json!([])
    };
    let slice = |suffix: &str, annotations: Value, contents: Value| {
        let mut spec = json!({
            "driver": DRIVER,
            "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 },
        });
        spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        let metadata = json!({ "name": format!("{node}-{suffix}"), "annotations": annotations });
        read::<k8s_openapi::api::resource::v1::ResourceSlice>(json!({ "metadata": metadata, "spec": spec }))
            .into()
    };
    let sets: Vec<Value> = (0..cards)
        .map(|number| {
            json!({ "name": format!("{}-counter-set", card(number)), "counters": {
            "memory-slice-0": { "value": "1" }, "memory-slice-1": { "value": "1" } } })
        })
        .collect();
    let device = |number: usize, suffix: &str, kind: &str, slices: &[usize]| {
        let counters: serde_json::Map<String, Value> =
            slices.iter().map(|slice| (format!("memory-slice-{slice}"), json!({ "value": "1" }))).collect();
        let mut attributes = json!({ "type": { "string": kind } });
        if pool["pool"].is_string() {
            attributes["gpuPool"] = json!({ "string": pool["pool"] });
        }
        json!({
            "name": format!("{}{suffix}", card(number)),
            "attributes": attributes,
            "taints": taints,
            "capacity": { "memory": { "value": format!("{}Gi", 40 * slices.len()) } },
            "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
        })
    };
    let mut devices = Vec::new();
    for number in 0..cards {
        devices.push(device(number, "-mig-3g40gb-0", "mig", &[0]));
        devices.push(device(number, "-mig-3g40gb-4", "mig", &[1]));
    }
    for number in 0..cards {
        devices.push(device(number, "", "gpu", &[0, 1]));
    }
    let address = |number: usize| format!("0000:{:02x}:00.0", number + 1);
    let all: serde_json::Map<String, Value> =
        (0..cards).map(|number| (address(number), pool.clone())).collect();
    let report = json!({ "cards": all, "otherPairs": "SYS" });
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report.to_string() }),
            json!({ "sharedCounters": sets }),
        ),
        slice("1-devices", json!({}), json!({ "devices": devices })),
    ]
}

pub fn steered() -> Value {
    json!({ "pool": "main", "allocation": "Steered" })
}

pub fn managed() -> Value {
    json!({ "pool": "main", "allocation": "Managed" })
}

pub fn class() -> Object {
    let object = json!({ "metadata": { "name": "gpu" }, "spec": { "selectors": [
        { "cel": { "expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'") } }] } });
    read::<k8s_openapi::api::resource::v1::DeviceClass>(object).into()
}

pub fn half_class() -> Object {
    let object = json!({ "metadata": { "name": "half" }, "spec": { "selectors": [
        { "cel": { "expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'") } }] } });
    read::<k8s_openapi::api::resource::v1::DeviceClass>(object).into()
}

/// A pod's claim, made from a template.
pub fn claim(pod: &str, class: &str, count: usize) -> Value {
    json!({
        "metadata": { "name": format!("{pod}-gpus"), "namespace": "team", "uid": format!("claim-of-{pod}"),
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-{pod}"), "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "gpus", "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": count } }] } },
    })
}

/// A pod with the gate and a claim from a template.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}") },
        "spec": {
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
            "schedulingGates": [{ "name": GATE }],
            "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": "t" }],
        },
        "status": { "phase": "Pending",
            "resourceClaimStatuses": [{ "name": "gpus", "resourceClaimName": format!("{name}-gpus") }] },
    })
}

/// The claim with these devices of a node.
pub fn allocated(mut claim: Value, node: &str, devices: &[String]) -> Value {
    let results: Vec<Value> = devices
        .iter()
        .map(|device| json!({ "request": "gpus", "driver": DRIVER, "pool": format!("{DRIVER}/{node}"), "device": device }))
        .collect();
    claim["status"] = json!({ "allocation": {
        "devices": { "results": results },
        "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": [node] }] }] },
    } });
    claim
}

/// Ids of shares. They only need to differ.
pub fn share_ids() -> impl FnMut() -> String + Send + 'static {
    let mut shares = 0u64;
    move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    }
}

/// A loop fed by hand.
pub struct Fed {
    pub decider: Decider,
    pub now: Time,
}

impl Fed {
    /// Nodes with these numbers of cards, all in a steered pool.
    pub fn with_nodes(nodes: &[(&str, usize)]) -> Self {
        let mut fed = Fed { decider: Decider::new(DRIVER, share_ids()), now: Time::ZERO };
        fed.apply(class());
        fed.apply(half_class());
        for (name, cards) in nodes {
            fed.apply(node(name));
            for slice in slices(name, *cards, steered()) {
                fed.apply(slice);
            }
        }
        fed
    }

    pub fn apply(&mut self, object: Object) {
        self.decider.observe(self.now, Observation::Applied(Box::new(object))).expect("a good object");
    }

    pub fn apply_pod(&mut self, pod: Value) {
        self.apply(read::<k8s_openapi::api::core::v1::Pod>(pod).into());
    }

    pub fn apply_claim(&mut self, claim: Value) {
        self.apply(read::<k8s_openapi::api::resource::v1::ResourceClaim>(claim).into());
    }

    /// Adds a gated pod with a claim for `count` devices.
    pub fn ask(&mut self, name: &str, class: &str, count: usize) {
        self.apply_claim(claim(name, class, count));
        self.apply_pod(pod(name));
    }

    pub fn delete(&mut self, kind: Kind, name: &str) {
        let key =
            if matches!(kind, Kind::Pod | Kind::ResourceClaim) { key(name) } else { Key::cluster(name) };
        self.decider.observe(self.now, Observation::Deleted(kind, key)).expect("nothing to refuse");
    }

    pub fn decide(&mut self) -> Vec<Intent> {
        self.decider.decide(self.now)
    }

    /// Current proposals: pods and their nodes.
    pub fn steers(&mut self) -> Vec<(String, String)> {
        let steer = |intent: &Intent| match intent {
            Intent::Steer { pod, node, .. } => Some((pod.key.name.clone(), node.clone())),
            _ => None,
        };
        self.decide().iter().filter_map(steer).collect()
    }

    /// Acts like kube-scheduler accepting the proposal: devices, then the binding.
    pub fn bind(&mut self, name: &str, class: &str, node: &str, devices: &[String]) {
        self.apply_claim(allocated(claim(name, class, devices.len()), node, devices));
        let mut bound = pod(name);
        bound["spec"]["schedulingGates"] = json!([]);
        bound["spec"]["nodeName"] = json!(node);
        self.apply_pod(bound);
    }
}
