//! One node's devices under kube-scheduler's rules.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::{DeviceName, Quantity};
use tessera_cel::{PublishedAttribute, Selector};
use tessera_harness::workspace;
use tessera_inventory::Pool;

use crate::DRIVER;

const NODE: &str = "node-a";

/// A claim with one allocated device.
pub struct Granted {
    claim: ResourceClaim,
    /// The device's name.
    pub device: String,
    /// What a share consumes.
    consumed: BTreeMap<String, Quantity>,
}

impl Granted {
    pub fn name(&self) -> DeviceName {
        self.device.parse().unwrap()
    }
}

pub struct Scheduler {
    inventory: Inventory,
    classes: Classes,
    selectors: SelectorCache,
    held: Held,
    devices: BTreeMap<String, Device>,
    counters: BTreeMap<(String, String), i128>,
    live: BTreeMap<String, (String, BTreeMap<String, Quantity>)>,
    claims: u64,
}

impl Scheduler {
    /// A node that publishes `pool`, with nothing allocated.
    pub fn new(pool: &Pool) -> Self {
        let mut inventory = Inventory::new();
        for slice in &pool.slices {
            let spec = json!({"driver": DRIVER, "nodeName": NODE, "pool":
                {"name": format!("{DRIVER}/{NODE}"), "generation": 1, "resourceSliceCount": pool.slices.len()}});
            let name = format!("{NODE}-{DRIVER}-{}", slice.name_suffix);
            let mut object: ResourceSlice =
                serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
            slice.contents.put_into(&mut object.spec);
            inventory.add(&object).unwrap();
        }
        let counters = pool.counter_sets().flat_map(|set| {
            let counter = move |(name, counter): (String, k8s_openapi::api::resource::v1::Counter)| {
                ((set.name.clone(), name), value(&counter.value.0))
            };
            set.counters.into_iter().map(counter)
        });
        Self {
            inventory,
            classes: classes(),
            selectors: SelectorCache::new(),
            held: Held::new(),
            devices: pool.devices().map(|device| (device.name.clone(), device)).collect(),
            counters: counters.collect(),
            live: BTreeMap::new(),
            claims: 0,
        }
    }

    /// Allocates a claim for one device of the class, as for a pod; `None` if it has to wait.
    pub fn allocate(&mut self, class: &str, selector: Option<&str>, capacity: Value) -> Option<Granted> {
        let mut request = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
        if let Some(selector) = selector {
            request["selectors"] = json!([{"cel": {"expression": selector}}]);
        }
        if capacity.as_object().is_some_and(|capacity| !capacity.is_empty()) {
            request["capacity"] = json!({"requests": capacity});
        }
        self.allocate_spec(&json!({"devices": {"requests": [{"name": "device", "exactly": request}]}}))
    }

    /// Allocates a claim with this `spec`, for one device.
    pub fn allocate_spec(&mut self, spec: &Value) -> Option<Granted> {
        self.claims += 1;
        let name = format!("claim-{}", self.claims);
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        let mut claim: ResourceClaim =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let request = Claim::try_from(&claim).unwrap();
        let node: Node = Node::from(&serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap());
        let allocator = Allocator::new(&self.inventory, &self.held, &self.classes);
        let mut shares = 0;
        let number = self.claims;
        let mut share_id = || {
            shares += 1;
            format!("{number:08x}-0000-4000-8000-{shares:012x}")
        };
        let result =
            allocator.allocate(&node, &[request], &mut self.selectors, &mut share_id).unwrap()?.remove(0);
        let granted = result.devices.as_ref().unwrap().results.as_ref().unwrap()[0].clone();
        claim.status.get_or_insert_default().allocation = Some(result);
        self.held.add(&self.inventory, &claim).unwrap();
        let consumed: BTreeMap<String, Quantity> = granted
            .consumed_capacity
            .iter()
            .flatten()
            .map(|(name, quantity)| (name.clone(), quantity.0.parse().unwrap()))
            .collect();
        let name = claim.metadata.name.clone().unwrap();
        self.live.insert(name, (granted.device.clone(), consumed.clone()));
        Some(Granted { claim, device: granted.device, consumed })
    }

    /// Releases a claim.
    pub fn release(&mut self, granted: &Granted) {
        self.held.remove(&self.inventory, &granted.claim).unwrap();
        let (_, consumed) = self.live.remove(granted.claim.metadata.name.as_ref().unwrap()).unwrap();
        assert_eq!(consumed, granted.consumed);
    }

    /// The devices that class and selector match, in use or not.
    pub fn candidates(&self, class: &str, selector: Option<&str>) -> Vec<String> {
        let own = selector.map(|selector| Selector::compile(selector).unwrap());
        let selectors: Vec<Selector> = class_selectors(class).into_iter().chain(own).collect();
        let matches = |device: &Device| {
            let device = as_cel_sees(device);
            selectors.iter().all(|selector| selector.matches(&device).unwrap())
        };
        self.devices.values().filter(|device| matches(device)).map(|device| device.name.clone()).collect()
    }

    /// No counter below zero, no capacity exceeded, no exclusive device twice.
    pub fn check_sums(&self) {
        let mut left = self.counters.clone();
        let mut taken: BTreeMap<&str, BTreeMap<&str, i128>> = BTreeMap::new();
        for (name, consumed) in self.live.values() {
            let device = &self.devices[name];
            let is_first = !taken.contains_key(name.as_str());
            assert!(is_first || device.allow_multiple_allocations == Some(true), "{name} twice");
            if is_first {
                for consumption in device.consumes_counters.iter().flatten() {
                    for (counter, drawn) in &consumption.counters {
                        *left.get_mut(&(consumption.counter_set.clone(), counter.clone())).unwrap() -=
                            value(&drawn.value.0);
                    }
                }
            }
            let taken = taken.entry(name).or_default();
            for (capacity, quantity) in consumed {
                *taken.entry(capacity).or_default() += quantity.nanos();
                let there = value(&device.capacity.as_ref().unwrap()[capacity].value.0);
                assert!(taken[capacity.as_str()] <= there, "{name}: {capacity}");
            }
        }
        for (counter, left) in left {
            assert!(left >= 0, "{counter:?} is at {left}");
        }
    }
}

/// The selectors of a class.
pub fn class_selectors(class: &str) -> Vec<Selector> {
    let objects = class_objects();
    let class = objects.iter().find(|object| object.metadata.name.as_deref() == Some(class)).unwrap();
    let expressions =
        class.spec.as_ref().unwrap().selectors.iter().flatten().flat_map(|selector| &selector.cel);
    expressions.map(|cel| Selector::compile(&cel.expression).unwrap()).collect()
}

/// A device in the form that CEL evaluates.
pub fn as_cel_sees(device: &Device) -> tessera_cel::Device {
    let attribute = |(name, value): (&String, &k8s_openapi::api::resource::v1::DeviceAttribute)| {
        let published = match (&value.string, value.int, value.bool, &value.version) {
            (Some(text), ..) => PublishedAttribute::String(text.clone()),
            (_, Some(number), ..) => PublishedAttribute::Int(number),
            (_, _, Some(truth), _) => PublishedAttribute::Bool(truth),
            (.., Some(version)) => PublishedAttribute::Version(version.clone()),
            _ => PublishedAttribute::Unknown,
        };
        (name.clone(), published)
    };
    let capacity =
        device.capacity.iter().flatten().map(|(name, capacity)| (name.clone(), capacity.value.0.clone()));
    tessera_cel::Device::new(DRIVER)
        .with_multiple_allocations(device.allow_multiple_allocations == Some(true))
        .with_attributes(&device.attributes.iter().flatten().map(attribute).collect(), false)
        .with_capacity(&capacity.collect())
        .unwrap()
}

fn value(text: &str) -> i128 {
    text.parse::<Quantity>().unwrap().nanos()
}

/// The classes of the repository, and one without a selector.
fn class_objects() -> Vec<DeviceClass> {
    let files = std::fs::read_dir(workspace::root().join("deviceclasses")).unwrap();
    let paths = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut classes: Vec<DeviceClass> =
        paths.map(|path| serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect();
    classes.push(serde_json::from_value(json!({"metadata": {"name": "any"}, "spec": {}})).unwrap());
    classes
}

/// The same in the allocator's form.
pub fn classes() -> Classes {
    class_objects().iter().map(Class::from).collect()
}
