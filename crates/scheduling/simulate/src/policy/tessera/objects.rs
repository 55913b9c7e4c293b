//! A trace as Kubernetes objects.
//!
//! Every card is offered whole, and in shares by MPS: `compute` in steps of a percent, `memory` in steps of 128 MiB, and one of
//! 48 clients for each share.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::{DeviceName, PciBusId, managed, node_report};
use tessera_cluster::{Key, Object};
use tessera_placement::packing::{Demand, Node};

use crate::control::EPOCH;

pub const DRIVER: &str = "gpu.tessera.dev";

const NAMESPACE: &str = "simulated";

/// Memory of a card in MiB. The traces lack the size; a share requests the same fraction of memory as of the card.
const CARD_MIB: u64 = 16 << 10;

/// The step of `memory` in MiB.
const MEMORY_STEP: u64 = 128;

/// Most clients of a card.
const CLIENTS: u64 = 48;

/// An object from JSON.
fn read<T: DeserializeOwned>(value: Value) -> T {
    #[allow(clippy::expect_used, reason = "the JSON is below")]
    serde_json::from_value(value).expect("an object of Kubernetes")
}

pub fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

pub fn claim_name(pod: &str) -> String {
    format!("{pod}-c")
}

pub fn node_name(index: usize) -> String {
    format!("n{index:06}")
}

/// The index of a card.
pub fn card(address: PciBusId) -> Option<usize> {
    usize::from(address.bus()).checked_sub(1)
}

fn address(card: usize) -> PciBusId {
    // Nodes have at most 16 cards, and device 0 and function 0 are on every bus.
    #[allow(clippy::expect_used, reason = "a good address")]
    PciBusId::new(0, card as u8 + 1, 0, 0).expect("an address")
}

/// DeviceClasses for whole cards and for shares.
pub fn classes() -> Vec<Object> {
    let class = |kind: &str| {
        let expression =
            format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'");
        let class = json!({ "metadata": { "name": kind }, "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
        read::<k8s_openapi::api::resource::v1::DeviceClass>(class).into()
    };
    ["gpu", "mps"].map(class).into()
}

/// A node with its slices as published by the plugin.
pub fn of_node(index: usize, node: &Node) -> Vec<Object> {
    let name = node_name(index);
    let object = json!({
        "metadata": { "name": name },
        "status": { "allocatable": {
            "cpu": format!("{}m", node.cpu_milli_in_all()), "memory": format!("{}Mi", node.memory_mib_in_all()) } },
    });
    let cards = 0..node.cards().len();
    let slice = |suffix: &str, annotations: Value, contents: (&str, Vec<Value>)| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": name,
            "pool": { "name": format!("{DRIVER}/{name}"), "generation": 1, "resourceSliceCount": 2 } });
        spec[contents.0] = contents.1.into();
        let metadata = json!({ "name": format!("{name}-{suffix}"), "annotations": annotations });
        read::<k8s_openapi::api::resource::v1::ResourceSlice>(json!({ "metadata": metadata, "spec": spec }))
            .into()
    };
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let sets = cards.clone().map(|card| json!({ "name": set(card), "counters": counters })).collect();
    let in_pool = json!({ "pool": "main", "allocation": "Managed" });
    let reported: serde_json::Map<String, Value> =
        cards.clone().map(|card| (address(card).to_string(), in_pool.clone())).collect();
    let report = json!({ "cards": reported, "otherPairs": "SYS" }).to_string();
    let device = |card: usize, kind: &str| {
        let name =
            if kind == "gpu" { DeviceName::Card(address(card)) } else { DeviceName::Mps(address(card)) };
        json!({
            "name": name.to_string(),
            "attributes": { "type": { "string": kind }, "productName": { "string": model_name(node.model()) } },
            "taints": [{ "key": managed::TAINT_KEY, "effect": "NoSchedule" }],
            "consumesCounters": [{ "counterSet": set(card), "counters": counters }],
        })
    };
    let whole = cards.clone().map(|card| device(card, "gpu"));
    let shares = cards.map(|card| {
        let mut device = device(card, "mps");
        device["allowMultipleAllocations"] = json!(true);
        let capacity = |all: String, least: &str| {
            json!({ "value": all, "requestPolicy": { "default": least, "validRange": { "min": least, "step": least } } })
        };
        device["capacity"] = json!({
            "compute": capacity("100".to_owned(), "1"),
            "memory": capacity(format!("{CARD_MIB}Mi"), &format!("{MEMORY_STEP}Mi")),
            "clients": capacity(CLIENTS.to_string(), "1"),
        });
        device
    });
    vec![
        read::<k8s_openapi::api::core::v1::Node>(object).into(),
        slice("0-counters", json!({ node_report::ANNOTATION: report }), ("sharedCounters", sets)),
        slice("1-devices", json!({}), ("devices", whole.chain(shares).collect())),
    ]
}

fn set(card: usize) -> String {
    format!("{}-counter-set", DeviceName::Card(address(card)))
}

fn model_name(model: u8) -> String {
    format!("m{model}")
}

/// Pods with their claims.
#[derive(Default)]
pub struct Pods {
    /// Templates without names, by demand.
    kinds: HashMap<Demand, (ResourceClaim, Pod)>,
}

impl Pods {
    /// The unallocated claim of a pod.
    pub fn claim(&mut self, pod: &str, demand: &Demand) -> ResourceClaim {
        let mut claim = self.kind(demand).0.clone();
        claim.metadata.name = Some(claim_name(pod));
        claim.metadata.uid = Some(claim_name(pod));
        for owner in claim.metadata.owner_references.iter_mut().flatten() {
            (owner.name, owner.uid) = (pod.to_owned(), pod.to_owned());
        }
        claim
    }

    /// The unbound pod.
    pub fn pod(&mut self, name: &str, demand: &Demand) -> Pod {
        let mut pod = self.kind(demand).1.clone();
        (pod.metadata.name, pod.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        for claim in
            pod.status.iter_mut().flat_map(|status| status.resource_claim_statuses.iter_mut().flatten())
        {
            claim.resource_claim_name = Some(claim_name(name));
        }
        pod
    }

    fn kind(&mut self, demand: &Demand) -> &(ResourceClaim, Pod) {
        self.kinds.entry(*demand).or_insert_with(|| (read(claim(demand)), read(pod(demand))))
    }
}

/// The claim spec of a demand for cards or for a share.
fn claim(demand: &Demand) -> Value {
    let mut exactly =
        json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": demand.cards() });
    if demand.is_share() {
        let percent = demand.size() as u64;
        // Rounded down, as the plugin's default is, so that equal shares fit whenever their compute does.
        let memory = (CARD_MIB * percent / 100 / MEMORY_STEP).max(1) * MEMORY_STEP;
        exactly["deviceClassName"] = json!("mps");
        exactly["capacity"] = json!({ "requests": {
            "compute": percent.to_string(), "memory": format!("{memory}Mi"), "clients": "1" } });
    }
    if demand.models() != tessera_placement::packing::ModelSet::ANY {
        let wanted = (0..tessera_placement::packing::MAX_MODELS).filter(|model| demand.models().has(*model));
        let names: Vec<String> = wanted.map(|model| format!("'{}'", model_name(model))).collect();
        let expression = format!("device.attributes['{DRIVER}'].productName in [{}]", names.join(", "));
        exactly["selectors"] = json!([{ "cel": { "expression": expression } }]);
    }
    json!({
        "metadata": { "name": "c", "namespace": NAMESPACE, "resourceVersion": "1",
            "annotations": { managed::EPOCH_ANNOTATION: EPOCH },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": exactly }] } },
    })
}

fn pod(demand: &Demand) -> Value {
    let has_cards = demand.cards() > 0;
    let requests =
        json!({ "cpu": format!("{}m", demand.cpu_milli()), "memory": format!("{}Mi", demand.memory_mib()) });
    let claims =
        if has_cards { json!([{ "name": "c", "resourceClaimTemplateName": "t" }]) } else { json!([]) };
    let statuses = if has_cards { json!([{ "name": "c", "resourceClaimName": "c" }]) } else { json!([]) };
    json!({
        "metadata": { "name": "p", "namespace": NAMESPACE },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }], "resourceClaims": claims },
        "status": { "phase": "Pending", "resourceClaimStatuses": statuses },
    })
}
