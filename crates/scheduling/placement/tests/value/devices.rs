//! Nodes with devices, and claims for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::{DeviceRef, Inventory};
use tessera_allocator::node::Node;
use tessera_allocator::placement::Placement;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::gpu_pool::TopologyPolicy;
use tessera_api::{DeviceName, DeviceType, PciBusId, counter};
use tessera_placement::node_cards::{CardState, Parts};
use tessera_placement::value::{CardSets, NodeValue, RequestMix};

pub const DRIVER: &str = "gpu.tessera.dev";

/// A node of one slice with counters and one with devices.
pub struct Devices {
    pub inventory: Inventory,
    pub states: BTreeMap<PciBusId, CardState>,
    pub topology: TopologyPolicy,
    pub mix: RequestMix,
}

impl Devices {
    /// `sets` are the counter sets.
    pub fn new(devices: &[Value], sets: &[Value]) -> Self {
        let mut inventory = Inventory::new();
        for (name, contents) in [("0", json!({"sharedCounters": sets})), ("1", json!({"devices": devices}))] {
            let mut spec = json!({"driver": DRIVER, "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}});
            spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
            let slice = json!({"metadata": {"name": name}, "spec": spec});
            inventory.add(&serde_json::from_value(slice).unwrap()).unwrap();
        }
        let topology = TopologyPolicy::default();
        Devices { inventory, states: BTreeMap::new(), topology, mix: RequestMix::default() }
    }

    /// Names of the devices allocated to a claim for `count` devices.
    pub fn place(&self, sets: Option<&CardSets>, count: usize, selector: &str) -> Vec<String> {
        let held = Held::new();
        let classes: Classes = [tessera_allocator::claim::Class {
            name: "any".to_owned(),
            ..tessera_allocator::claim::Class::default()
        }]
        .into_iter()
        .collect();
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "any", "allocationMode": "ExactCount", "count": count,
            "selectors": [{"cel": {"expression": selector}}],
        }}]}}});
        let claim: k8s_openapi::api::resource::v1::ResourceClaim = serde_json::from_value(claim).unwrap();
        let claims = [Claim::try_from(&claim).unwrap()];
        let node = json!({"metadata": {"name": "n"}});
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
        let parts = Parts::of(self.inventory.devices_of_node("n"), DRIVER);
        let value = NodeValue::new(DRIVER, &parts, self.states.clone(), (sets, &self.mix), self.topology);
        let states = &self.states;
        // Stands in for the allocator's knowledge from claims.
        let is_free = |device: DeviceRef<'_>| {
            let name: DeviceName = device.name().parse().unwrap();
            let state = states.get(&name.card()).copied().unwrap_or_default();
            let mut slices =
                device.counters().filter_map(|(_, counter, _)| counter::memory_slice_number(counter));
            match name.device_type() {
                DeviceType::Gpu => state.used == 0,
                _ => slices.all(|slice| state.slices >> slice & 1 == 0),
            }
        };
        let mut placement = Placement::new(&self.inventory, &held, &classes);
        placement.may_give = &is_free;
        let mut share_id = || "share".to_owned();
        let placed =
            placement.place(&Node::from(&node), &claims, &mut SelectorCache::new(), &mut share_id, |picks| {
                value.cost(picks)
            });
        let placed = placed.unwrap().expect("it fits");
        assert!(placed.is_best, "{} steps", placed.steps);
        let devices = placed.allocations[0].devices.as_ref().unwrap();
        devices.results.iter().flatten().map(|result| result.device.clone()).collect()
    }
}
