//! An inventory after additions and removals equals one built anew from the remaining slices.

#![allow(clippy::expect_used)]

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use proptest::prelude::*;
use serde_json::Value;
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::{DeviceRef, Inventory};
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_oracle::Generator;

/// A step that changes the inventory.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Updates or adds a slice: its index among the requests' slices, and the index of the one whose content it gets.
    Update(usize, usize),
    Remove(usize),
    /// Holds or releases the devices of some claims.
    Hold(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<usize>(), any::<usize>()).prop_map(|(slice, form)| Step::Update(slice, form)),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Hold),
    ];
    proptest::collection::vec(step, 1..60)
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("what the generator makes is an object")
}

fn name(slice: &ResourceSlice) -> &str {
    slice.metadata.name.as_deref().unwrap_or_default()
}

fn identity(device: DeviceRef<'_>) -> String {
    let capacities: Vec<_> = device.capacity_texts().collect();
    let id = (device.driver_name(), device.pool(), device.slice_name(), device.name());
    format!("{id:?} on {:?} with {capacities:?}", device.node_name())
}

struct Asked {
    node: Node,
    claims: Vec<Claim>,
    classes: Classes,
}

impl Asked {
    fn new(request: &Value) -> Self {
        let classes: Vec<DeviceClass> = read(&request["classes"]);
        let claims: Vec<ResourceClaim> = read(&request["claims"]);
        Asked {
            node: Node::from(&read::<core::Node>(&request["node"])),
            claims: claims.iter().map(|claim| Claim::try_from(claim).expect("a good claim")).collect(),
            classes: classes.iter().map(Class::from).collect(),
        }
    }

    /// Everything that an inventory answers to this.
    fn answers(&self, inventory: &Inventory, held: &Held, selectors: &mut SelectorCache) -> String {
        let allocator = Allocator::new(inventory, held, &self.classes);
        let mut shares = 0;
        let mut share_id = || {
            shares += 1;
            format!("share-{shares}")
        };
        let given = allocator.allocate(&self.node, &self.claims, selectors, &mut share_id);
        let explained = allocator.explain(&self.node, &self.claims, selectors).map(|explanation| {
            let devices = explanation.requests.into_iter().map(|request| {
                let devices = request.devices.into_iter();
                let devices =
                    devices.map(|found| (identity(found.device), found.reason, held.holders(found.device)));
                (request.request, request.count, devices.collect::<Vec<_>>())
            });
            (devices.collect::<Vec<_>>(), explanation.unusable_pools, explanation.error)
        });
        format!("{given:?} {explained:?}")
    }
}

fn anew(slices: &[ResourceSlice]) -> Inventory {
    let mut inventory = Inventory::new();
    for slice in slices {
        inventory.add(slice).expect("a good slice");
    }
    inventory.shrink_to_fit();
    inventory
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn slices_in_and_out_leave_nothing_behind(seed in 0u64..10_000, steps in steps()) {
        let mut generator = Generator::new(seed);
        let requests: Vec<Value> = (0..4).map(|id| generator.request(id)).collect();
        let slices: Vec<ResourceSlice> = requests.iter().flat_map(|request| read::<Vec<_>>(&request["slices"])).collect();
        let claims: Vec<ResourceClaim> =
            requests.iter().flat_map(|request| read::<Vec<_>>(&request["allocated"])).collect();
        prop_assume!(!slices.is_empty());
        let mut inventory = Inventory::new();
        let mut held = Held::new();
        let mut selectors = SelectorCache::new();
        let mut left: Vec<ResourceSlice> = Vec::new();
        let mut holding: Vec<usize> = Vec::new();
        for step in steps {
            match step {
                Step::Update(slice, form) => {
                    let mut slice = ResourceSlice {
                        metadata: slices[slice % slices.len()].metadata.clone(),
                        spec: slices[form % slices.len()].spec.clone(),
                    };
                    // A text that no other slice has, so that garbage would show.
                    for device in slice.spec.devices.iter_mut().flatten() {
                        let attributes = device.attributes.get_or_insert_default();
                        let text = Some(format!("{form}"));
                        attributes.entry("own".to_owned()).or_default().string = text;
                    }
                    let change = inventory.update(&slice).expect("a good slice");
                    held.follow(&inventory, &change);
                    match left.iter_mut().find(|known| name(known) == name(&slice)) {
                        Some(known) => *known = slice,
                        None => left.push(slice),
                    }
                }
                Step::Remove(slice) => {
                    let gone = name(&slices[slice % slices.len()]);
                    let change = inventory.remove(gone);
                    held.follow(&inventory, &change);
                    left.retain(|known| name(known) != gone);
                }
                Step::Hold(_) if claims.is_empty() => {}
                Step::Hold(claim) => {
                    let claim = claim % claims.len();
                    if holding.contains(&claim) {
                        held.remove(&inventory, &claims[claim]).expect("good quantities");
                        holding.retain(|other| *other != claim);
                    } else {
                        held.add(&inventory, &claims[claim]).expect("good quantities");
                        holding.push(claim);
                    }
                }
            }
            let fresh = anew(&left);
            let mut held_anew = Held::new();
            for claim in &holding {
                held_anew.add(&fresh, &claims[*claim]).expect("good quantities");
            }
            prop_assert_eq!(&held, &held_anew);
            prop_assert_eq!(inventory.device_count(), fresh.device_count());
            let devices = |inventory: &Inventory| inventory.devices().map(identity).collect::<Vec<_>>();
            prop_assert_eq!(devices(&inventory), devices(&fresh));
            for request in &requests {
                let asked = Asked::new(request);
                prop_assert_eq!(
                    asked.answers(&inventory, &held, &mut selectors),
                    asked.answers(&fresh, &held_anew, &mut SelectorCache::new())
                );
            }
        }
    }
}

/// Replaces the slices of a fleet again and again, each time with new texts: memory stays within a few times that of an
/// inventory built anew.
#[test]
fn memory_follows_what_is_left() {
    let slice = |node: usize, round: usize| -> ResourceSlice {
        let devices: Vec<Value> = (0..8)
            .map(|index| {
                serde_json::json!({"name": format!("gpu-{index}"), "attributes": {
                    "uuid": {"string": format!("GPU-{node}-{index}-{round}-0123456789abcdef")},
                }, "capacity": {"memory": {"value": format!("{}Mi", 80_000 + round)}}})
            })
            .collect();
        read(&serde_json::json!({"metadata": {"name": format!("slice-{node}")}, "spec": {
            "driver": "gpu.example.com", "nodeName": format!("node-{node}"), "devices": devices,
            "pool": {"name": format!("node-{node}"), "generation": round, "resourceSliceCount": 1},
        }}))
    };
    const NODES: usize = 500;
    let claim: ResourceClaim = read(
        &serde_json::json!({"metadata": {"name": "c"}, "status": {"allocation": {
            "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "node-7", "device": "gpu-3"}]},
        }}}),
    );
    let mut inventory = Inventory::new();
    let mut held = Held::new();
    held.add(&inventory, &claim).expect("good quantities");
    let mut most = 0;
    for round in 0..12 {
        for node in 0..NODES {
            let change = inventory.update(&slice(node, round)).expect("a good slice");
            held.follow(&inventory, &change);
            most = most.max(inventory.footprint().bytes);
            if round > 0 {
                let all = inventory.devices().filter(|device| !held.holders(*device).is_empty());
                assert!(
                    node % 50 > 0
                        || all.map(|device| (device.pool(), device.name())).eq([("node-7", "gpu-3")])
                );
            }
        }
    }
    let fresh = anew(&(0..NODES).map(|node| slice(node, 11)).collect::<Vec<_>>()).footprint();
    assert_eq!(inventory.footprint().devices, fresh.devices);
    assert!(most < 5 * fresh.bytes, "{most} bytes at most, {} anew", fresh.bytes);
    for node in 0..NODES {
        let _ = inventory.remove(&format!("slice-{node}"));
    }
    assert_eq!(inventory.device_count(), 0);
    assert_eq!(inventory.node_names().count(), 0);
    assert!(inventory.footprint().bytes < fresh.bytes, "{:?}", inventory.footprint());
}
