//! Nodes, slices and classes, as in the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceClass, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceType, NodeReport, node_report};
use tessera_inventory::gpu_pools::Resolution;
use tessera_inventory::pool::{CardOffer, CardOffers, Held, Slice};
use tessera_inventory::{Pool, PoolOptions, Topology, Warning};

/// Default name of the DRA driver.
pub const DRIVER: &str = tessera_api::DEFAULT_DRIVER_NAME;

/// Most pods of a node: the kubelet's default.
const PODS: &str = "110";

/// An object from JSON.
pub fn read<T: DeserializeOwned>(value: Value) -> T {
    #[allow(clippy::expect_used, reason = "all callers write the JSON of an object themselves")]
    serde_json::from_value(value).expect("an object of Kubernetes")
}

/// DeviceClasses installed by the chart.
pub fn classes(driver: &str) -> Vec<DeviceClass> {
    let class = |kind: DeviceType| class(&class_name(driver, kind), None, &of_type(driver, kind));
    [DeviceType::Gpu, DeviceType::Mig, DeviceType::Mps, DeviceType::TimeSlice].map(class).into()
}

/// The chart's optional DeviceClasses for extended resources, with a resource name for each of these MIG profiles.
pub fn extended_classes<'p>(driver: &str, profiles: impl Iterator<Item = &'p str>) -> Vec<DeviceClass> {
    let named = |name: &str, resource: &str, expression: &str| {
        class(&format!("{name}.{driver}"), Some(resource), expression)
    };
    let of_profile = |profile: &str| {
        let name = format!("mig-{}", profile.replace('+', "."));
        let of_type = of_type(driver, DeviceType::Mig);
        let profile = format!("device.attributes[\"{driver}\"].?profile.orValue(\"\") == \"{profile}\"");
        named(&name, &format!("nvidia.com/{name}"), &format!("{of_type} && {profile}"))
    };
    let mut classes = vec![
        named("nvidia.com-gpu", "nvidia.com/gpu", &of_type(driver, DeviceType::Gpu)),
        named("nvidia.com-gpu.shared", "nvidia.com/gpu.shared", &of_type(driver, DeviceType::TimeSlice)),
    ];
    classes.extend(profiles.map(of_profile));
    classes
}

/// Name of the chart's DeviceClass for all devices of a kind.
pub fn class_name(driver: &str, kind: DeviceType) -> String {
    match kind {
        DeviceType::Gpu => driver.to_owned(),
        // The name used by NVIDIA's own driver.
        DeviceType::Mig if driver == NVIDIA_DRIVER_NAME => "mig.nvidia.com".to_owned(),
        _ => format!("{kind}.{driver}"),
    }
}

fn of_type(driver: &str, kind: DeviceType) -> String {
    format!(
        "device.driver == \"{driver}\" && device.attributes[\"{driver}\"].?type.orValue(\"\") == \"{kind}\""
    )
}

fn class(name: &str, resource: Option<&str>, expression: &str) -> DeviceClass {
    let selectors = json!([{ "cel": { "expression": expression } }]);
    let spec = json!({ "selectors": selectors, "extendedResourceName": resource });
    read(json!({ "metadata": { "name": name }, "spec": spec }))
}

/// A node without a name.
pub fn node(labels: &BTreeMap<String, String>, cpu_milli: u64, memory_mib: u64) -> Node {
    let allocatable =
        json!({ "cpu": format!("{cpu_milli}m"), "memory": format!("{memory_mib}Mi"), "pods": PODS });
    read(json!({ "metadata": { "labels": labels }, "status": { "allocatable": allocatable } }))
}

/// Labels of a node with this name.
pub fn labels(node: &Node, name: &str) -> BTreeMap<String, String> {
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.to_owned());
    labels
}

/// Slices and report of a plugin on nodes of the same kind.
#[derive(Debug)]
pub struct Published {
    /// Devices and counter sets of the slices, with the suffixes of their names.
    pub slices: Vec<(String, ResourceSliceSpec)>,
    /// The node report, as JSON.
    pub report: String,
    /// Name of the pool of devices; `None` for the node's name.
    pub pool: Option<String>,
}

/// Slices and report of the plugin on a machine with these resolved pools, with this allocation for all cards; and the plugin's
/// warnings. Devices in `held` stay published.
pub fn publish(
    driver: &str,
    resolution: &Resolution,
    allocation: Allocation,
    held: &Held,
) -> (Published, Vec<Warning>) {
    let Resolution { machine, offers, cards, pools, .. } = resolution;
    let mut allocated = CardOffers::default();
    let mut report = NodeReport { cards: cards.clone(), pools: pools.clone(), ..NodeReport::default() };
    for (address, card) in &mut report.cards {
        card.allocation = allocation;
        allocated.set(*address, CardOffer { allocation, ..offers.of(*address).clone() });
    }
    Topology::new(machine).write_to(&mut report);
    let options = PoolOptions { offers: allocated, held: held.clone(), ..PoolOptions::new(driver) };
    let pool = Pool::new(machine, &options);
    let slice = |Slice { name_suffix, contents }| {
        let mut spec = ResourceSliceSpec::default();
        contents.put_into(&mut spec);
        (name_suffix, spec)
    };
    let slices = pool.slices.into_iter().map(slice).collect();
    (Published { slices, report: json!(report).to_string(), pool: None }, pool.warnings)
}

impl Published {
    /// The devices, in the order of publication.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.slices.iter().flat_map(|(_, spec)| spec.devices.iter().flatten())
    }

    /// The counter sets.
    pub fn counter_sets(&self) -> impl Iterator<Item = &CounterSet> {
        self.slices.iter().flat_map(|(_, spec)| spec.shared_counters.iter().flatten())
    }

    /// The slices of one of the nodes.
    pub fn slices_of(&self, driver: &str, node: &str) -> Vec<ResourceSlice> {
        let slice = |(place, (suffix, spec)): (usize, &(String, ResourceSliceSpec))| {
            let annotation = (node_report::ANNOTATION.to_owned(), self.report.clone());
            let metadata = ObjectMeta {
                name: Some(format!("{node}-{suffix}")),
                annotations: (place == 0).then(|| BTreeMap::from([annotation])),
                ..ObjectMeta::default()
            };
            let spec = ResourceSliceSpec {
                driver: driver.to_owned(),
                node_name: Some(node.to_owned()),
                pool: ResourcePool {
                    name: self.pool.as_deref().unwrap_or(node).to_owned(),
                    generation: 1,
                    resource_slice_count: self.slices.len() as i64,
                },
                ..spec.clone()
            };
            ResourceSlice { metadata, spec }
        };
        self.slices.iter().enumerate().map(slice).collect()
    }
}
