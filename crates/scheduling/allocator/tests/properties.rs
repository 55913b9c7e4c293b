//! Properties of every allocation, independent of Kubernetes.

#![allow(clippy::expect_used)]

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::claim::{Ask, Claim, Class, Classes, DeviceRequest, Request};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::{DeviceRef, Inventory};
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_oracle::{Generator, ours};

#[test]
fn the_same_request_has_the_same_answer() {
    let mut generator = Generator::new(71);
    let mut kept = SelectorCache::new();
    for id in 0..400 {
        let request = generator.request(id);
        let first = ours::answer(&request, &mut kept, None);
        assert_eq!(ours::answer(&request, &mut SelectorCache::new(), None), first, "{request}");
        assert_eq!(ours::answer(&request, &mut kept, Some(u64::MAX)), first, "{request}");
        assert_eq!(ours::answer(&request, &mut kept, Some(0)), first, "{request}");
    }
}

/// The devices' positions in the order in which they are tried.
fn places(request: &Value) -> HashMap<[String; 3], usize> {
    let mut inventory = Inventory::new();
    for slice in request["slices"].as_array().expect("a list") {
        let slice: ResourceSlice = serde_json::from_value(slice.clone()).expect("a slice");
        inventory.add(&slice).expect("a good slice");
    }
    let node: core::Node = serde_json::from_value(request["node"].clone()).expect("a node");
    let (node, held) = (Node::from(&node), Held::new());
    let classes = Classes::from_iter([Class { name: "any".to_owned(), ..Class::default() }]);
    let ask = DeviceRequest {
        class: "any".to_owned(),
        allocation_mode: "ExactCount".to_owned(),
        count: 1,
        ..DeviceRequest::default()
    };
    let requests = vec![Request { name: "r".to_owned(), ask: Ask::Exactly(ask) }];
    let claims = [Claim { requests, ..Claim::default() }];
    let allocator = Allocator::new(&inventory, &held, &classes);
    let explanation =
        allocator.explain(&node, &claims, &mut SelectorCache::new()).expect("pools can be told");
    let devices = explanation.requests[0].devices.iter().map(|report| report.device);
    let id = |device: DeviceRef<'_>| [device.driver_name(), device.pool(), device.name()].map(str::to_owned);
    devices.enumerate().map(|(place, device)| (id(device), place)).collect()
}

/// A solution in the form that upstream's order compares: for each device in turn, the alternative of its request, and
/// the device's position.
fn choices(answer: &Value, places: &HashMap<[String; 3], usize>) -> Vec<(usize, usize)> {
    let results = answer["allocations"].as_array().into_iter().flatten();
    let results = results.flat_map(|result| result["devices"]["results"].as_array().into_iter().flatten());
    results
        .map(|result| {
            let text = |name: &str| result[name].as_str().expect("a text").to_owned();
            // The generator's alternatives are named s0, s1 and so on.
            let alternative =
                text("request").split_once("/s").map_or(0, |(_, number)| number.parse().expect("a number"));
            (alternative, places[&["driver", "pool", "device"].map(text)])
        })
        .collect()
}

/// Devices that are tried after all others do not make an answer worse in upstream's order, and change no answer that
/// they have no part in. Precisely: if there was a solution, there still is one. Either it is the same, or it has a new
/// device and is *before* the old one: at the first device in which the two differ it has an earlier alternative or an
/// earlier device.
///
/// It need not be the same: upstream takes the first solution, and an earlier first choice that led nowhere may now lead
/// to one, with a new device as a later choice. With a single device (one request, no alternatives, a count of 1)
/// it is the same.
///
/// This holds for requests whose devices are searched one by one. "All" includes new devices; a selector that fails on
/// a new device ends the attempt; and a distinctAttribute constraint over several devices of a request forgets
/// depending on failed attempts (docs/upstream-allocator.md), those with new devices included.
#[test]
fn free_devices_at_the_end_change_no_solution_but_for_an_earlier_one() {
    let mut generator = Generator::new(72);
    let mut selectors = SelectorCache::new();
    let (mut same, mut earlier, mut single) = (0, 0, 0);
    for id in 0..3_000 {
        let mut request = generator.request(id);
        let text = request["claims"].to_string();
        if text.contains("\"All\"") || text.contains("distinctAttribute") {
            continue;
        }
        let before = ours::answer(&request, &mut selectors, None);
        if !before["allocations"].is_array() {
            continue;
        }
        // Pools with binding conditions come after all others, ordered by name.
        let devices: Vec<Value> = (0..4)
            .map(|index| {
                json!({
                    "name": format!("new-{index}"), "bindingConditions": ["ready"],
                    "attributes": {"gpu.example.com/model": {"string": "a"}, "std.example.com/root": {"string": "r1"}},
                    "capacity": {"memory": {"value": "80Gi"}},
                })
            })
            .collect();
        let slice = json!({"metadata": {"name": "zzz"}, "spec": {
            "driver": "zzz.example.com", "nodeName": "node-a", "devices": devices,
            "pool": {"name": "zzz", "generation": 1, "resourceSliceCount": 1},
        }});
        request["slices"].as_array_mut().expect("a list").push(slice);
        let after = ours::answer(&request, &mut selectors, None);
        if after["error"].is_string() {
            continue;
        }
        assert!(after["allocations"].is_array(), "{request}");
        let requests: Vec<&Value> = request["claims"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|claim| claim["spec"]["devices"]["requests"].as_array().expect("a list"))
            .collect();
        let is_single = requests.len() == 1 && requests[0]["exactly"]["count"] == json!(1);
        if ours::comparable(&after) == ours::comparable(&before) {
            same += 1;
            single += u32::from(is_single);
            continue;
        }
        assert!(!is_single, "one device: {request}");
        assert!(
            after.to_string().contains("\"zzz.example.com\""),
            "no new device in another solution: {request}"
        );
        let places = places(&request);
        assert!(choices(&after, &places) < choices(&before, &places), "a later solution: {request}");
        earlier += 1;
    }
    println!("{same} the same, {single} of them one device; {earlier} earlier");
    assert!(same > 300 && single > 50 && earlier > 3, "{same} the same, {single} single, {earlier} earlier");
}

#[test]
fn release_restores_the_exact_state() {
    let mut generator = Generator::new(73);
    let mut changed = 0;
    for id in 0..300 {
        let request = generator.request(id);
        let mut inventory = Inventory::new();
        for slice in request["slices"].as_array().expect("a list") {
            let slice: ResourceSlice = serde_json::from_value(slice.clone()).expect("a slice");
            inventory.add(&slice).expect("a good slice");
        }
        let claims: Vec<ResourceClaim> =
            serde_json::from_value(request["allocated"].clone()).expect("claims");
        let mut held = Held::new();
        let mut states = vec![held.clone()];
        for claim in &claims {
            held.add(&inventory, claim).expect("good quantities");
            states.push(held.clone());
        }
        for claim in claims.iter().rev() {
            changed += u32::from(states.pop().as_ref() == Some(&held));
            held.remove(&inventory, claim).expect("good quantities");
            assert_eq!(Some(&held), states.last(), "{request}");
        }
        assert_eq!(held, Held::new());
    }
    assert!(changed > 100, "only {changed} changes");
}

#[test]
fn pathological_requests_end_soon() {
    let devices: Vec<Value> = (0..32)
        .map(|index| {
            json!({"name": format!("d{index:02}"), "attributes": {
                "group": {"string": format!("g{}", index % 4)}, "own": {"int": index},
            }})
        })
        .collect();
    let slices = json!([{"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-a", "devices": devices,
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
    }}]);
    let exactly = |name: &str, count: u32| json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}});
    let singles: Vec<Value> = (0..9).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let same = json!({"matchAttribute": "gpu.example.com/group"});
    let different = json!({"distinctAttribute": "gpu.example.com/group"});
    for (requests, constraints) in [
        (vec![exactly("r", 9)], vec![same.clone()]),
        (singles.clone(), vec![same.clone()]),
        (singles.clone(), vec![different.clone()]),
        (singles, vec![same, different]),
    ] {
        let request = json!({
            "id": 1, "node": {"metadata": {"name": "node-a"}}, "slices": slices, "allocated": [],
            "classes": [{"metadata": {"name": "any"}, "spec": {}}],
            "claims": [{"metadata": {"name": "c"}, "spec": {"devices": {
                "requests": requests, "constraints": constraints,
            }}}],
        });
        let begin = std::time::Instant::now();
        let answer = ours::answer(&request, &mut SelectorCache::new(), None);
        assert_eq!(answer["error"], Value::Null, "{answer}");
        assert_eq!(answer["allocations"], Value::Null, "{answer}");
        assert!(begin.elapsed().as_secs() < 5, "took {:?}", begin.elapsed());
    }
}
