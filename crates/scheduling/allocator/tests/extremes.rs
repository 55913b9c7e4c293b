//! Input that the API server would reject: the same answers as Kubernetes' own code, in bounded time and memory.
#![allow(clippy::expect_used)]

use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::convert::ConvertError;
use tessera_allocator::error::AllocateError;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::{Oracle, ours};

fn slice(devices: &Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-a", "devices": devices,
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
    }})
}

fn exactly(name: &str, count: i64) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}})
}

fn claim(requests: &Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": requests}}})
}

fn request(slices: &[Value], claims: &[Value]) -> Value {
    json!({
        "id": 0, "node": {"metadata": {"name": "node-a"}}, "slices": slices, "allocated": [],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}], "claims": claims,
    })
}

fn simple() -> Value {
    let devices = json!([{"name": "d0"}, {"name": "d1"}]);
    request(&[slice(&devices)], &[claim(&json!([exactly("r", 1)]))])
}

/// Asks both sides. For something that is not a request, each side has its own error text.
fn compare(version: KubernetesVersion, oracle: &mut Oracle, request: &Value) -> Result<Value, String> {
    let both = |answer: Value| {
        let refused = answer["error"].as_str().is_some_and(|text| text.starts_with("bad request"));
        if refused { json!("refused") } else { ours::comparable(&answer) }
    };
    let theirs =
        both(serde_json::from_str(&oracle.ask(&request.to_string())).expect("the oracle answers in JSON"));
    for patience in [None, Some(0)] {
        let ours = both(ours::answer_as(version, request, &mut SelectorCache::new(), patience));
        if ours != theirs {
            return Err(format!("ours   {ours}\n  theirs {theirs}\n  {:.2000}", request.to_string()));
        }
    }
    Ok(theirs)
}

/// The oldest release and the newest, with their oracles.
fn oracles() -> [(KubernetesVersion, Oracle); 2] {
    [KubernetesVersion::V1_36_3, KubernetesVersion::V1_37].map(|version| (version, Oracle::start(version)))
}

/// Texts of quantities: numbers of every size, and near misses.
const QUANTITIES: [&str; 43] = [
    "NaN",
    "nan",
    "Inf",
    "-Inf",
    "infinity",
    "",
    " ",
    "0",
    "-0",
    "+0",
    "00",
    "+1",
    "-1",
    "--1",
    "+-1",
    "1.",
    ".1",
    ".",
    "1e",
    "1e3",
    "1E3",
    "1e-3",
    "1e400",
    "1e-400",
    "1e99999999999999999999",
    "0x10",
    "1_000",
    "1,5",
    "1 Gi",
    "1Gi ",
    "1gi",
    "1GI",
    "1Ki1",
    "9Ei",
    "-9Ei",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999999999999999999999999999",
    "0.000000000000000000000000001",
    "1n",
    "0.5n",
    "\u{661}",
    "1\u{0}",
];

#[test]
fn quantities_are_read_and_refused_alike() {
    let mut oracles = oracles();
    let (mut refused, mut read) = (0, 0);
    let mut disagreements = Vec::new();
    for quantity in QUANTITIES {
        let device = |value: &str| json!({"name": "d", "allowMultipleAllocations": true, "capacity": {"memory": {"value": value}}});
        let mut of_device =
            request(&[slice(&json!([device(quantity)]))], &[claim(&json!([exactly("r", 1)]))]);
        let mut of_request = of_device.clone();
        of_request["slices"][0]["spec"]["devices"] = json!([device("10")]);
        of_request["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] =
            json!({"requests": {"memory": quantity}});
        let mut of_policy = of_request.clone();
        of_policy["slices"][0]["spec"]["devices"][0]["capacity"]["memory"]["requestPolicy"] =
            json!({"default": "1", "validRange": {"min": "1", "step": quantity}});
        of_policy["claims"] = json!([claim(&json!([exactly("r", 1)]))]);
        let mut of_held = of_device.clone();
        of_held["slices"] = of_request["slices"].clone();
        of_held["allocated"] = json!([{"metadata": {"name": "h"}, "spec": {"devices": {}}, "status": {"allocation": {
            "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "node-a", "device": "d",
                "shareID": "11111111-2222-4333-8444-000000000000", "consumedCapacity": {"memory": quantity}}]}}}}]);
        let counters = |left: &str, taken: &str| {
            let mut request = simple();
            request["slices"][0]["spec"]["pool"]["resourceSliceCount"] = json!(2);
            request["slices"][0]["spec"]["devices"][0]["consumesCounters"] =
                json!([{"counterSet": "card", "counters": {"memory": {"value": taken}}}]);
            let mut sets = slice(&Value::Null);
            sets["metadata"]["name"] = json!("sets");
            sets["spec"]["pool"]["resourceSliceCount"] = json!(2);
            sets["spec"]["sharedCounters"] =
                json!([{"name": "card", "counters": {"memory": {"value": left}}}]);
            request["slices"].as_array_mut().expect("a list").push(sets);
            request
        };
        of_device["id"] = json!(1);
        for case in
            [of_device, of_request, of_policy, of_held, counters(quantity, "1"), counters("1", quantity)]
        {
            for (version, oracle) in &mut oracles {
                match compare(*version, oracle, &case) {
                    Ok(answer) if answer == "refused" => refused += 1,
                    Ok(_) => read += 1,
                    Err(text) => disagreements.push(format!("{version}: {quantity:?}: {text}")),
                }
            }
        }
    }
    assert!(disagreements.is_empty(), "{}:\n{}", disagreements.len(), disagreements.join("\n"));
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}

/// Kubernetes' own parser takes more than ten minutes and a gigabyte for these.
#[test]
fn exponents_that_stall_kubernetes_take_no_time() {
    let begin = Instant::now();
    for quantity in ["1e999999999", "1e-999999999", "9e2147483647", "1e-2147483648", "0e999999999"] {
        let device = json!({"name": "d", "capacity": {"memory": {"value": quantity}}});
        let answer = ours::answer(
            &request(&[slice(&json!([device]))], &[claim(&json!([exactly("r", 1)]))]),
            &mut SelectorCache::new(),
            None,
        );
        assert!(answer["allocations"].is_array() || answer["error"].is_string(), "{quantity}: {answer}");
    }
    assert!(begin.elapsed() < Duration::from_secs(60), "took {:?}", begin.elapsed());
}

#[test]
fn a_refused_quantity_is_named_with_its_place() {
    let devices = json!([{"name": "d0"}, {"name": "d1", "capacity": {"memory": {"value": "NaN"}}}]);
    let slice: ResourceSlice = serde_json::from_value(slice(&devices)).expect("a slice");
    let mut inventory = Inventory::new();
    let error = inventory.add(&slice).expect_err("NaN is no quantity");
    assert!(matches!(error, ConvertError::Quantity { .. }));
    let text = error.to_string();
    for part in ["slice s", "device d1", "capacity memory", "such as 40Gi"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert_eq!(inventory.device_count(), 0, "a refused slice leaves nothing behind");
}

#[test]
fn numbers_and_lists_beyond_limits_agree() {
    let mut cases = Vec::new();
    for number in [i64::MIN, -1, 0, 1, 2, 31, 33, i64::from(i32::MAX), i64::MAX - 1, i64::MAX] {
        let mut case = simple();
        case["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(number);
        cases.push(case);
        let mut case = simple();
        case["slices"][0]["spec"]["pool"]["generation"] = json!(number);
        cases.push(case);
        let mut case = simple();
        case["slices"][0]["spec"]["pool"]["resourceSliceCount"] = json!(number);
        cases.push(case);
        let mut case = simple();
        case["claims"] = json!([claim(&json!([{"name": "r", "firstAvailable": [
            {"name": "a", "deviceClassName": "any", "allocationMode": "ExactCount", "count": number},
            {"name": "b", "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1},
        ]}, exactly("s", 1)]))]);
        cases.push(case);
    }
    // Limits of the API: 128 devices per slice, 32 attributes and capacities per device, 32 requests and constraints
    // per claim, 8 alternatives, 16 taints, 63 characters of a name.
    let many = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|index| {
                let attributes: serde_json::Map<String, Value> =
                    (0..count).map(|other| (format!("a{other}"), json!({"int": index * other % 7}))).collect();
                let capacity: serde_json::Map<String, Value> =
                    (0..count).map(|other| (format!("c{other}"), json!({"value": other.to_string()}))).collect();
                let taints: Vec<Value> =
                    (0..count).map(|other| json!({"key": format!("t{other}"), "effect": "None"})).collect();
                json!({"name": format!("d{index}"), "attributes": attributes, "capacity": capacity, "taints": taints})
            })
            .collect()
    };
    let mut case = request(&[slice(&json!(many(150)))], &[claim(&json!([exactly("r", 32)]))]);
    case["claims"][0]["spec"]["devices"]["constraints"] = json!(
        (0..40)
            .map(|index| json!({"matchAttribute": format!("gpu.example.com/a{}", index * 7)}))
            .collect::<Vec<_>>()
    );
    cases.push(case.clone());
    case["claims"] =
        json!([claim(&json!((0..40).map(|index| exactly(&format!("r{index}"), 1)).collect::<Vec<_>>()))]);
    cases.push(case.clone());
    case["claims"] =
        json!((0..6).map(|_| claim(&json!([exactly("same", 8), exactly("same", 8)]))).collect::<Vec<_>>());
    cases.push(case.clone());
    case["claims"] = json!([claim(&json!([{"name": "r", "firstAvailable": (0..40).map(|index| json!({
        "name": format!("s{}", index % 3), "deviceClassName": "any", "allocationMode": "ExactCount", "count": 33 - index / 2,
    })).collect::<Vec<_>>()}]))]);
    cases.push(case);
    // Names: not ASCII, empty, long, duplicate.
    for name in ["", " ", "Gerät-0", "世界", "\u{202e}x", "a/b", "a\u{0}b", "\u{10ffff}", &"x".repeat(20_000)]
    {
        let mut case = simple();
        case["slices"][0]["spec"]["devices"][0]["name"] = json!(name);
        case["slices"][0]["spec"]["pool"]["name"] = json!(name);
        case["slices"][0]["metadata"]["name"] = json!(name);
        case["slices"][0]["spec"]["driver"] = json!(name);
        case["slices"][0]["spec"]["devices"][0]["attributes"] =
            json!({name: {"string": name}, "v": {"version": "1.0.0"}});
        case["claims"][0]["metadata"]["name"] = json!(name);
        case["claims"][0]["spec"]["devices"]["requests"][0]["name"] = json!(name);
        case["claims"][0]["spec"]["devices"]["constraints"] =
            json!([{"matchAttribute": format!("{name}/{name}")}]);
        cases.push(case.clone());
        case["node"]["metadata"]["name"] = json!(name);
        case["slices"][0]["spec"]["nodeName"] = json!(name);
        cases.push(case.clone());
        case["classes"][0]["metadata"]["name"] = json!(name);
        cases.push(case);
    }
    let mut twice = simple();
    twice["slices"][0]["spec"]["devices"][1]["name"] = json!("d0");
    cases.push(twice);
    let mut disagreements = Vec::new();
    for (version, mut oracle) in oracles() {
        for case in &cases {
            disagreements.extend(compare(version, &mut oracle, case).err());
        }
    }
    assert!(
        disagreements.is_empty(),
        "{} of {}:\n{}",
        disagreements.len(),
        cases.len(),
        disagreements.join("\n")
    );
}

/// One node with a million devices, in slices a hundred times as long as the API allows.
#[test]
fn a_million_devices() {
    const SLICES: usize = 80;
    const DEVICES: usize = 12_500;
    let begin = Instant::now();
    let mut inventory = Inventory::new();
    for number in 0..SLICES {
        let mut slice: ResourceSlice = serde_json::from_value(slice(&json!([]))).expect("a slice");
        slice.metadata.name = Some(format!("s{number:03}"));
        slice.spec.pool.resource_slice_count = SLICES as i64;
        let device = |index: usize| Device {
            name: format!("d{number}-{index}"),
            attributes: Some(
                [(
                    "group".to_owned(),
                    DeviceAttribute { int: Some((index % 31_250) as i64), ..Default::default() },
                )]
                .into(),
            ),
            ..Default::default()
        };
        slice.spec.devices = Some((0..DEVICES).map(device).collect());
        inventory.add(&slice).expect("good quantities");
    }
    let footprint = inventory.footprint();
    assert_eq!(footprint.devices, SLICES * DEVICES);
    assert!(
        footprint.bytes / footprint.devices <= 200,
        "{} bytes a device",
        footprint.bytes / footprint.devices
    );
    let built = begin.elapsed();

    let classes = Classes::from_iter([Class { name: "any".to_owned(), ..Class::default() }]);
    let held = Held::new();
    let mut allocator = Allocator::new(&inventory, &held, &classes);
    allocator.effort_limit = 1_000_000;
    let node = Node { name: "node-a".to_owned(), ..Node::default() };
    let mut selectors = SelectorCache::new();
    let mut allocate = |requests: Value, constraints: Value| {
        let mut published = claim(&requests);
        published["spec"]["devices"]["constraints"] = constraints;
        let published: ResourceClaim = serde_json::from_value(published).expect("a claim");
        let claims = [Claim::try_from(&published).expect("good quantities")];
        let begin = Instant::now();
        let answer = allocator.allocate(&node, &claims, &mut selectors, &mut || "share".to_owned());
        (answer, begin.elapsed())
    };
    let selector = |expression: &str| {
        let mut request = exactly("r", 1);
        request["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
        json!([request])
    };
    let none = || json!([]);
    let group = |kind: &str| json!([{kind: "gpu.example.com/group"}]);
    let mut all = exactly("r", 0);
    all["exactly"]["allocationMode"] = json!("All");
    let singles: Vec<Value> = (0..32).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let (one, took_one) = allocate(json!([exactly("r", 32)]), none());
    assert!(one.expect("no error").is_some());
    // A selector that matches one device in 12,500: the last one of the first slice.
    let last = "device.attributes[\"gpu.example.com\"].group == 12499";
    let (some, took_some) = allocate(selector(last), none());
    assert!(some.expect("no error").is_some());
    let (nothing, took_nothing) = allocate(selector("device.driver == \"none\""), none());
    assert_eq!(nothing, Ok(None));
    let (too_many, took_all) = allocate(json!([all]), none());
    let error = too_many.expect_err("a claim has at most 32 devices").to_string();
    assert!(error.contains("adding 1000000 devices exceeds the claim limit of 32"), "{error}");
    let (distinct, took_distinct) = allocate(json!(singles), group("distinctAttribute"));
    assert!(distinct.expect("no error").is_some());
    let (matching, took_matching) = allocate(json!([exactly("r", 32)]), group("matchAttribute"));
    assert!(matching.expect("no error").is_some());
    println!(
        "built in {built:?}, {} bytes a device; 32 {took_one:?}, one by selector {took_some:?}, none {took_nothing:?}, \
         all {took_all:?}, 32 different {took_distinct:?}, 32 alike {took_matching:?}",
        footprint.bytes / footprint.devices
    );
    for took in [took_one, took_some, took_nothing, took_all, took_distinct, took_matching] {
        assert!(took < Duration::from_secs(60), "took {took:?}");
    }
}

#[test]
fn a_search_without_end_is_given_up() {
    // Each pair of groups has its own device, so that no two devices are alike and no bound detects the failure.
    let devices: Vec<Value> = (0..40)
        .map(|index| {
            json!({"name": format!("d{index}"), "attributes": {
                "a": {"int": index % 8}, "b": {"int": index / 8}, "own": {"int": index},
            }})
        })
        .collect();
    let singles: Vec<Value> = (0..8).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let mut published = claim(&json!(singles));
    published["spec"]["devices"]["constraints"] = json!([
        {"distinctAttribute": "gpu.example.com/a"}, {"distinctAttribute": "gpu.example.com/b"},
    ]);
    let mut inventory = Inventory::new();
    let slice: ResourceSlice = serde_json::from_value(slice(&json!(devices))).expect("a slice");
    inventory.add(&slice).expect("good quantities");
    let classes = Classes::from_iter([Class { name: "any".to_owned(), ..Class::default() }]);
    let published: ResourceClaim = serde_json::from_value(published).expect("a claim");
    let claims = [Claim::try_from(&published).expect("good quantities")];
    let held = Held::new();
    let mut allocator = Allocator::new(&inventory, &held, &classes);
    let node = Node { name: "node-a".to_owned(), ..Node::default() };
    (allocator.effort_limit, allocator.patience) = (500, u64::MAX);
    let answer = allocator.allocate(&node, &claims, &mut SelectorCache::new(), &mut || "share".to_owned());
    let error = answer.expect_err("eight different values of five do not exist");
    assert!(matches!(error, AllocateError::TooLong(tried) if tried > 500 && tried < 600), "{error}");
    assert!(error.to_string().contains("ask for less at once"), "{error}");
}
