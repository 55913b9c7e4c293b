//! Extract of the ResourceSlices for the checks, taken slice by slice: the slices of a thousand nodes are gigabytes, the extract
//! some megabytes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use tessera_api::gpu_pool::Allocation;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{DeviceName, NodeReport, PciBusId, attribute, managed, node_report};
use tessera_cluster::Objects;

use super::asked::{self, Asked};
use crate::devices;

/// Devices published by nodes.
#[derive(Debug, Default)]
pub struct Published {
    driver: String,
    /// Pools of the driver by name.
    pools: BTreeMap<String, Pool>,
    /// Drivers publishing devices of each node.
    drivers: BTreeMap<String, BTreeSet<String>>,
    /// Drivers publishing counters, by pool name.
    counters: BTreeMap<String, BTreeSet<String>>,
    asked: Vec<Asked>,
    /// Kinds of devices already evaluated.
    kinds: HashSet<u64>,
}

/// A pool of the driver, of its newest generation.
#[derive(Debug, Default)]
pub struct Pool {
    /// Its node.
    pub node: Option<String>,
    /// Number of slices the pool claims to have.
    pub wanted: i64,
    /// Number of slices present.
    pub there: i64,
    /// The NVIDIA driver's version; the cards of a node have one.
    pub driver_version: Option<String>,
    /// Cards reported by the plugin as members of a managed GpuPool.
    pub managed: BTreeSet<PciBusId>,
    /// The cgroup version of the node, as reported by its plugin.
    pub cgroup_version: Option<u8>,
    /// Version of the node's NVIDIA container toolkit, if its hooks are unsafe.
    pub unsafe_container_toolkit: Option<String>,
    /// Whether the pool has counters.
    pub has_counters: bool,
    /// Its cards.
    pub cards: BTreeMap<PciBusId, Card>,
    generation: i64,
    devices: HashSet<Box<str>>,
}

/// A card, from its first device.
#[derive(Debug)]
pub struct Card {
    /// Why the card gets no work; `None` for a healthy card.
    pub sick: Option<String>,
    /// Whether the card has the taint of managed cards.
    pub is_tainted: bool,
}

impl Published {
    /// An empty extract; devices will be evaluated against the selectors of classes and claims for the driver, compiled as by
    /// kube-scheduler of this release.
    pub fn new(driver: &str, objects: &Objects, kubernetes: KubernetesVersion) -> Self {
        let asked = asked::of_objects(objects, driver, kubernetes);
        Published { driver: driver.to_owned(), asked, ..Published::default() }
    }

    /// Takes in a slice. Where they come by name, the first device of a card is the first in kube-scheduler's order.
    pub fn add(&mut self, slice: &ResourceSlice) {
        let spec = &slice.spec;
        if let Some(node) = &spec.node_name {
            let drivers = self.drivers.entry(node.clone()).or_default();
            if !drivers.contains(&spec.driver) {
                drivers.insert(spec.driver.clone());
            }
        }
        if spec.shared_counters.as_ref().is_some_and(|counters| !counters.is_empty()) {
            let drivers = self.counters.entry(spec.pool.name.clone()).or_default();
            if !drivers.contains(&spec.driver) {
                drivers.insert(spec.driver.clone());
            }
        }
        for device in spec.devices.iter().flatten() {
            self.try_selectors(slice, device);
        }
        if spec.driver != self.driver {
            return;
        }
        let known = self.pools.entry(spec.pool.name.clone()).or_default();
        if known.there == 0 || spec.pool.generation > known.generation {
            let (generation, wanted) = (spec.pool.generation, spec.pool.resource_slice_count);
            *known = Pool { generation, wanted, ..Pool::default() };
        }
        if spec.pool.generation == known.generation {
            known.add(slice, &self.driver);
        }
    }

    fn try_selectors(&mut self, slice: &ResourceSlice, device: &Device) {
        let driver = &slice.spec.driver;
        let is_new = self.kinds.insert(devices::kind(driver, device));
        let mut evaluated = None;
        for asked in self.asked.iter_mut().filter(|asked| asked.is_open(is_new)) {
            let evaluated = evaluated.get_or_insert_with(|| devices::of_published(driver, device).ok());
            if let Some(evaluated) = evaluated {
                asked.try_on(device, slice.spec.node_name.as_deref(), evaluated, *driver == self.driver);
            }
        }
    }

    /// Names of pools whose counters several drivers publish.
    pub fn twins(&self) -> Vec<&str> {
        let several = self.counters.iter().filter(|(_, drivers)| drivers.len() > 1);
        several.map(|(name, _)| name.as_str()).collect()
    }

    /// Pools of the driver by name.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &Pool)> {
        self.pools.iter().map(|(name, pool)| (name.as_str(), pool))
    }

    /// The pool of the given name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.get(name)
    }

    /// Nodes with devices published by the driver.
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.pools.values().filter_map(|pool| pool.node.as_deref()).collect()
    }

    /// The cgroup version of the node, if its plugin reports one.
    pub fn cgroup_version(&self, node: &str) -> Option<u8> {
        let mut pools = self.pools.values().filter(|pool| pool.node.as_deref() == Some(node));
        pools.find_map(|pool| pool.cgroup_version)
    }

    /// The version of the node's NVIDIA container toolkit, if its hooks are unsafe.
    pub fn unsafe_container_toolkit(&self, node: &str) -> Option<&str> {
        let mut pools = self.pools.values().filter(|pool| pool.node.as_deref() == Some(node));
        pools.find_map(|pool| pool.unsafe_container_toolkit.as_deref())
    }

    /// Drivers publishing devices of the node.
    pub fn drivers_of(&self, node: &str) -> BTreeSet<&str> {
        self.drivers.get(node).into_iter().flatten().map(String::as_str).collect()
    }

    /// Whether the driver publishes this device.
    pub fn has(&self, pool: &str, device: &str) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.devices.contains(device))
    }

    /// Owners of selectors for devices of the driver; empty while no device is published.
    pub fn asked(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(|_| !self.kinds.is_empty())
    }
}

impl Pool {
    fn add(&mut self, slice: &ResourceSlice, driver: &str) {
        self.there += 1;
        self.has_counters |= slice.spec.shared_counters.is_some();
        self.node.clone_from(&slice.spec.node_name);
        let annotations = slice.metadata.annotations.as_ref();
        let report = annotations.and_then(|all| all.get(node_report::ANNOTATION));
        if let Some(report) = report.and_then(|text| serde_json::from_str::<NodeReport>(text).ok()) {
            let managed = report.cards.iter().filter(|(_, card)| card.allocation == Allocation::Managed);
            self.managed = managed.map(|(address, _)| *address).collect();
            self.cgroup_version = report.cgroup_version;
            self.unsafe_container_toolkit = report.unsafe_container_toolkit;
        }
        for device in slice.spec.devices.iter().flatten() {
            self.devices.insert(device.name.as_str().into());
            if self.driver_version.is_none() {
                let attributes = device.attributes.as_ref();
                self.driver_version =
                    attributes.and_then(|all| all.get(attribute::DRIVER_VERSION)?.version.clone());
            }
            let Ok(name) = device.name.parse::<DeviceName>() else { continue };
            self.cards.entry(name.card()).or_insert_with(|| Card::of(device, driver));
        }
    }
}

impl Card {
    fn of(device: &Device, driver: &str) -> Self {
        let taints = || device.taints.iter().flatten();
        Card {
            sick: devices::fault(device, driver),
            is_tainted: taints().any(|taint| taint.key == managed::TAINT_KEY),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tessera_cluster::Key;

    use super::*;
    use crate::doctor::asked::Verdict;

    fn slice(name: &str, generation: i64, devices: &serde_json::Value) -> ResourceSlice {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "driver": "d", "nodeName": "n",
            "pool": { "name": "p", "generation": generation, "resourceSliceCount": 1 }, "devices": devices } }))
        .unwrap()
    }

    fn published(expression: &str, slices: &[ResourceSlice]) -> Published {
        let class = json!({ "metadata": { "name": "c" },
            "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == 'd' && {expression}") } }] } });
        let classes = [(Key::cluster("c"), serde_json::from_value(class).unwrap())].into();
        let objects = Objects { classes, ..Objects::default() };
        let mut published = Published::new("d", &objects, KubernetesVersion::default());
        slices.iter().for_each(|slice| published.add(slice));
        published
    }

    fn card(name: &str, uuid: &str) -> serde_json::Value {
        json!({ "name": name, "attributes": { "uuid": { "string": uuid } } })
    }

    #[test]
    fn the_newest_generation_counts_whichever_comes_first() {
        let (old, new) = (
            slice("a", 1, &json!([card("gpu-01-00", "1")])),
            slice("b", 2, &json!([card("gpu-02-00", "2")])),
        );
        for slices in [[old.clone(), new.clone()], [new, old]] {
            let published = published("true", &slices);
            assert!(published.has("p", "gpu-02-00") && !published.has("p", "gpu-01-00"));
            let (_, pool) = published.pools().next().unwrap();
            assert_eq!((pool.there, pool.wanted, pool.cards.len()), (1, 1, 1));
        }
    }

    #[test]
    fn each_device_is_tried_where_a_class_asks_for_one() {
        let slices = [slice("a", 1, &json!([card("gpu-01-00", "1"), card("gpu-02-00", "2")]))];
        let second = "device.attributes['d'].uuid == '2'";
        let verdict = |published: &Published, wanted: fn(&Verdict<'_>) -> bool| {
            published.asked().all(|asked| wanted(&asked.verdict("d"))) && published.asked().count() == 1
        };
        assert!(verdict(&published(second, &slices), |verdict| *verdict == Verdict::Well));
        let third = published("device.attributes['d'].uuid == '3'", &slices);
        assert!(verdict(&third, |verdict| *verdict == Verdict::Nothing));
        let wrong = published("nonsense(", &slices);
        assert!(verdict(&wrong, |verdict| matches!(verdict, Verdict::Wrong(_))));
        let fails = published("device.attributes['d'].serial == '3'", &slices);
        assert!(verdict(
            &fails,
            |verdict| matches!(verdict, Verdict::Fails(failure) if failure.device == "gpu-01-00")
        ));
        assert_eq!(published(second, &[]).asked().count(), 0, "nobody publishes yet");
    }
}
