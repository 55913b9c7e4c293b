//! Nodes, slices and classes, as they would be in the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::gpu_pool::{Allocation, GpuPoolSpec};
use tessera_api::node_report::{self, CardReport};
use tessera_api::{DeviceType, NodeReport};
use tessera_cluster::Object;
use tessera_inventory::pool::{CardOffer, CardOffers, Contents};
use tessera_inventory::{Machine, Pool, PoolOptions, Topology};

/// Name of the DRA driver.
pub const DRIVER: &str = tessera_api::DEFAULT_DRIVER_NAME;

/// The pool that all cards are of.
const POOL: &str = "simulated";

/// Pods that a node may have: the kubelet's default.
const PODS: &str = "110";

/// An object written in JSON.
pub fn read<T: DeserializeOwned>(value: Value) -> T {
    #[allow(clippy::expect_used, reason = "all callers write the JSON of an object themselves")]
    serde_json::from_value(value).expect("an object of Kubernetes")
}

/// The classes that the chart installs.
pub fn classes() -> Vec<Object> {
    let class = |kind: DeviceType| {
        let kind = kind.as_str();
        let name =
            if kind == DeviceType::Gpu.as_str() { DRIVER.to_owned() } else { format!("{kind}.{DRIVER}") };
        let expression = format!(
            "device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].?type.orValue(\"\") == \"{kind}\""
        );
        let selectors = json!([{ "cel": { "expression": expression } }]);
        read::<DeviceClass>(json!({ "metadata": { "name": name }, "spec": { "selectors": selectors } }))
            .into()
    };
    [DeviceType::Gpu, DeviceType::Mig, DeviceType::Mps, DeviceType::TimeSlice].map(class).into()
}

/// A node.
pub fn node(name: &str, labels: &BTreeMap<String, String>, cpu_milli: u64, memory_mib: u64) -> Node {
    let mut all = labels.clone();
    all.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    let allocatable =
        json!({ "cpu": format!("{cpu_milli}m"), "memory": format!("{memory_mib}Mi"), "pods": PODS });
    read(json!({ "metadata": { "name": name, "labels": all }, "status": { "allocatable": allocatable } }))
}

/// What a plugin publishes on nodes that are alike.
#[derive(Debug)]
pub struct Published {
    /// Each with the end of its name.
    slices: Vec<(String, Contents)>,
    report: String,
}

/// What is offered of all cards unless a pool says otherwise: whole, in partitions on demand, and in shares by MPS.
fn default_pool() -> GpuPoolSpec {
    let mut spec = GpuPoolSpec::default();
    spec.offer.sharing.mps = Some(tessera_api::offer::Mps::default());
    spec
}

/// What the plugin publishes of a machine of which all cards are of one pool.
pub fn publish(machine: &Machine, allocation: Allocation) -> Published {
    let spec = default_pool();
    let offer = CardOffer { pool: Some(POOL.to_owned()), offer: Arc::new(spec.offer), allocation };
    let report = CardReport {
        pool: Some(POOL.to_owned()),
        allocation,
        placement: spec.placement,
        ..CardReport::default()
    };
    let mut offers = CardOffers::default();
    let mut reports = NodeReport::default();
    for card in &machine.cards {
        offers.set(card.pci, offer.clone());
        reports.cards.insert(card.pci, report.clone());
    }
    Topology::new(machine).write_to(&mut reports);
    let pool = Pool::new(machine, &PoolOptions { offers, ..PoolOptions::new(DRIVER) });
    let slices = pool.slices.into_iter().map(|slice| (slice.name_suffix, slice.contents)).collect();
    Published { slices, report: json!(reports).to_string() }
}

impl Published {
    /// The contents of the slices.
    pub fn contents(&self) -> impl Iterator<Item = &Contents> {
        self.slices.iter().map(|(_, contents)| contents)
    }

    /// The slices of one of the nodes.
    pub fn slices_of(&self, node: &str) -> Vec<ResourceSlice> {
        let slice = |(place, (suffix, contents)): (usize, &(String, Contents))| {
            let annotation = (node_report::ANNOTATION.to_owned(), self.report.clone());
            let metadata = ObjectMeta {
                name: Some(format!("{node}-{suffix}")),
                annotations: (place == 0).then(|| BTreeMap::from([annotation])),
                ..ObjectMeta::default()
            };
            let mut spec = ResourceSliceSpec {
                driver: DRIVER.to_owned(),
                node_name: Some(node.to_owned()),
                pool: ResourcePool {
                    name: node.to_owned(),
                    generation: 1,
                    resource_slice_count: self.slices.len() as i64,
                },
                ..ResourceSliceSpec::default()
            };
            match contents {
                Contents::Devices(devices) => spec.devices = Some(devices.clone()),
                Contents::SharedCounters(sets) => spec.shared_counters = Some(sets.clone()),
            }
            ResourceSlice { metadata, spec }
        };
        self.slices.iter().enumerate().map(slice).collect()
    }
}
