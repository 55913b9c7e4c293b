//! Reasons why devices are not available: each reason, and that reasons and allocations agree.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::error::AllocateError;
use tessera_allocator::explain::{Explanation, Reason, UnusablePool};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_oracle::Generator;

struct World {
    inventory: Inventory,
    held: Held,
    classes: Classes,
    claims: Vec<Claim>,
    node: Node,
}

fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).expect("a list of objects")
}

impl World {
    fn new(request: &Value) -> Self {
        let mut inventory = Inventory::new();
        for slice in list::<ResourceSlice>(&request["slices"]) {
            inventory.add(&slice).expect("good quantities");
        }
        let mut held = Held::new();
        for claim in list::<ResourceClaim>(&request["allocated"]) {
            held.add(&inventory, &claim).expect("good quantities");
        }
        let claims = list::<ResourceClaim>(&request["claims"]);
        let node: core::Node = serde_json::from_value(request["node"].clone()).expect("a node");
        World {
            inventory,
            held,
            classes: list::<DeviceClass>(&request["classes"]).iter().map(Class::from).collect(),
            claims: claims.iter().map(Claim::try_from).collect::<Result<_, _>>().expect("good quantities"),
            node: Node::from(&node),
        }
    }

    fn allocator(&self) -> Allocator<'_> {
        Allocator::new(&self.inventory, &self.held, &self.classes)
    }

    fn explain(&self) -> Explanation<'_> {
        let mut selectors = SelectorCache::new();
        self.allocator().explain(&self.node, &self.claims, &mut selectors).expect("pools can be told")
    }
}

fn request(slices: Value, allocated: Value, ask: Value) -> Value {
    json!({
        "node": {"metadata": {"name": "node-a", "labels": {"zone": "a"}}},
        "slices": slices, "allocated": allocated,
        "classes": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [
            {"cel": {"expression": "device.driver == \"gpu.example.com\""}},
            {"cel": {"expression": "!has(device.attributes[\"gpu.example.com\"].old)"}},
        ]}}],
        "claims": [{"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {
            "requests": [{"name": "r", "exactly": ask}],
            "constraints": [{"matchAttribute": "gpu.example.com/root"}],
        }}}],
    })
}

fn slice(name: &str, driver: &str, count: u32, content: Value) -> Value {
    let mut slice = json!({"metadata": {"name": name}, "spec": {
        "driver": driver, "nodeName": "node-a",
        "pool": {"name": format!("{driver}/node-a"), "generation": 1, "resourceSliceCount": count},
    }});
    let spec = slice["spec"].as_object_mut().expect("an object");
    spec.extend(content.as_object().expect("an object").clone());
    slice
}

fn held(device: &str, more: Value) -> Value {
    let mut result = json!({"request": "r", "driver": "gpu.example.com", "pool": "gpu.example.com/node-a", "device": device});
    result.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"metadata": {"name": format!("of-{device}"), "namespace": "other"}, "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [result]}}}})
}

#[test]
fn every_reason() {
    let root = json!({"root": {"string": "r0"}});
    let share = json!({"allowMultipleAllocations": true});
    let device = |name: &str, more: Value| {
        let mut device = json!({"name": name, "attributes": root, "capacity": {"memory": {"value": "40Gi"}}});
        device.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        device
    };
    let taken = |set: &str, memory: &str| json!({"consumesCounters": [{"counterSet": set, "counters": {"memory": {"value": memory}}}]});
    let shared = |memory: Value| {
        let mut more = share.clone();
        more["capacity"] = json!({"memory": memory});
        more
    };
    let policy = json!({"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "5Gi"}}});
    let devices = json!([
        device("free", json!({})),
        device("old", json!({"attributes": {"root": {"string": "r0"}, "old": {"bool": true}}})),
        device("second", json!({"attributes": {"root": {"string": "r0"}, "model": {"string": "b"}}})),
        device("used", json!({})),
        device("without-capacity", json!({"capacity": {}})),
        device("small", shared(json!({"value": "5Gi"}))),
        device("shared", shared(json!({"value": "40Gi"}))),
        device("policy", shared(policy)),
        device("of-card-0", taken("card-0", "80Gi")),
        device("partition-0", taken("card-0", "10Gi")),
        device("tainted", json!({"taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]})),
        device("rootless", json!({"attributes": {}})),
    ]);
    let sets = json!([{"name": "card-0", "counters": {"memory": {"value": "80Gi"}}}]);
    let slices = json!([
        slice("a", "gpu.example.com", 2, json!({"devices": devices})),
        slice("b", "gpu.example.com", 2, json!({"sharedCounters": sets})),
        slice("n", "nic.example.com", 1, json!({"devices": [{"name": "nic"}]})),
        slice("x", "gone.example.com", 2, json!({"devices": [{"name": "half"}]})),
        slice("y", "twice.example.com", 1, json!({"devices": [{"name": "d"}, {"name": "d"}]})),
    ]);
    let share_of = |memory: &str| json!({"shareID": "11111111-2222-4333-8444-000000000000", "consumedCapacity": {"memory": memory}});
    let allocated =
        json!([held("used", json!({})), held("shared", share_of("35Gi")), held("of-card-0", json!({}))]);
    let selector = "device.attributes[device.driver].?model.orValue(\"a\") == \"a\"";
    let ask = json!({
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": selector}}], "capacity": {"requests": {"memory": "10Gi"}},
    });
    let request = request(slices, allocated, ask);
    let world = World::new(&request);
    let explanation = world.explain();
    assert_eq!(explanation.error, None);
    let unusable = |driver: &str, fault: Option<&str>| UnusablePool {
        driver: driver.to_owned(),
        pool: format!("{driver}/node-a"),
        fault: fault.map(str::to_owned),
    };
    assert_eq!(
        explanation.unusable_pools,
        [unusable("gone.example.com", None), unusable("twice.example.com", Some("duplicate device name d"))]
    );
    let [report] = &explanation.requests[..] else { panic!("{explanation:?}") };
    assert_eq!((report.claim, report.request.as_str(), report.count), (0, "r", 1));
    let reasons: BTreeMap<&str, Option<Reason>> =
        report.devices.iter().map(|report| (report.device.name(), report.reason.clone())).collect();
    let text = str::to_owned;
    let class = |place: usize, expression: &str| Reason::Selector {
        class: Some("gpu".to_owned()),
        place,
        expression: expression.to_owned(),
    };
    let expected = BTreeMap::from([
        ("free", None),
        ("old", Some(class(1, "!has(device.attributes[\"gpu.example.com\"].old)"))),
        ("second", Some(Reason::Selector { class: None, place: 0, expression: text(selector) })),
        ("used", Some(Reason::InUse(vec![text("other/of-used")]))),
        ("without-capacity", Some(Reason::NoSuchCapacity(text("memory")))),
        (
            "small",
            Some(Reason::Capacity {
                name: text("memory"),
                requested: Some(text("10Gi")),
                needed: text("10Gi"),
                left: text("5Gi"),
                holders: vec![],
            }),
        ),
        (
            "shared",
            Some(Reason::Capacity {
                name: text("memory"),
                requested: Some(text("10Gi")),
                needed: text("10Gi"),
                left: text("5Gi"),
                holders: vec![text("other/of-shared")],
            }),
        ),
        (
            "policy",
            Some(Reason::Policy {
                name: text("memory"),
                requested: text("10Gi"),
                allowed: text("1Gi to 5Gi"),
            }),
        ),
        ("of-card-0", Some(Reason::InUse(vec![text("other/of-of-card-0")]))),
        (
            "partition-0",
            Some(Reason::Counter {
                set: text("card-0"),
                counter: text("memory"),
                needed: text("10Gi"),
                left: text("0"),
            }),
        ),
        (
            "tainted",
            Some(Reason::Taint { key: text("broken"), value: text("yes"), effect: text("NoSchedule") }),
        ),
        (
            "rootless",
            Some(Reason::NoSuchAttribute { constraint: 0, attribute: text("gpu.example.com/root") }),
        ),
        ("nic", Some(class(0, "device.driver == \"gpu.example.com\""))),
    ]);
    assert_eq!(reasons, expected);
}

#[test]
fn failing_selectors_and_other_nodes() {
    let mut slices = json!([slice(
        "a",
        "gpu.example.com",
        1,
        json!({"devices": [
            {"name": "here", "nodeName": "node-a"}, {"name": "there", "nodeName": "node-b"},
        ]})
    )]);
    let spec = slices[0]["spec"].as_object_mut().expect("an object");
    spec.remove("nodeName");
    spec.insert("perDeviceNodeSelection".to_owned(), json!(true));
    let mut ask = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let world = World::new(&request(slices.clone(), json!([]), ask.clone()));
    let explanation = world.explain();
    let reasons: Vec<_> =
        explanation.requests[0].devices.iter().map(|report| report.reason.clone()).collect();
    let no_root = Reason::NoSuchAttribute { constraint: 0, attribute: "gpu.example.com/root".to_owned() };
    assert_eq!(reasons, [Some(no_root), Some(Reason::NotForNode)]);

    ask["selectors"] =
        json!([{"cel": {"expression": "device.attributes[\"gpu.example.com\"].missing == 1"}}]);
    let world = World::new(&request(slices.clone(), json!([]), ask.clone()));
    let explanation = world.explain();
    for report in &explanation.requests[0].devices {
        let Some(Reason::SelectorFails(text)) = &report.reason else { panic!("{report:?}") };
        for part in
            ["claim default/c: selector #0 on device ", ": CEL runtime error: no such key: missing. consider"]
        {
            assert!(text.contains(part), "{text}");
        }
    }

    ask["deviceClassName"] = json!("missing");
    let world = World::new(&request(slices, json!([]), ask));
    let explanation = world.explain();
    let Some(AllocateError::Fatal(text)) = &explanation.error else { panic!("{explanation:?}") };
    assert!(text.contains("could not retrieve device class missing"), "{text}");
    assert!(explanation.requests.is_empty());
}

/// One device for one request: it is allocated if and only if some device has no obstacle, and it is the first such
/// device.
#[test]
fn reasons_and_allocations_agree() {
    let mut generator = Generator::new(91);
    let (mut allocated, mut unfit) = (0, 0);
    for id in 0..4_000 {
        let mut request = generator.request(id);
        let claims = request["claims"].as_array_mut().expect("a list");
        claims.truncate(1);
        let requests = claims[0]["spec"]["devices"]["requests"].as_array_mut().expect("a list");
        requests.truncate(1);
        if requests[0]["exactly"]["count"] != json!(1) {
            continue;
        }
        let world = World::new(&request);
        let mut selectors = SelectorCache::new();
        let answer = world
            .allocator()
            .allocate(&world.node, &world.claims, &mut selectors, &mut || "share".to_owned());
        let answer = match answer {
            Ok(answer) => answer,
            // There is no solution then; the fault of a pool says why.
            Err(AllocateError::InvalidPools) => None,
            Err(_) => continue,
        };
        let explanation = world.explain();
        let report = &explanation.requests[0];
        let first = report.devices.iter().find(|report| report.reason.is_none());
        let first =
            first.map(|report| (report.device.driver_name(), report.device.pool(), report.device.name()));
        let results =
            answer.iter().flatten().filter_map(|result| result.devices.as_ref()?.results.as_ref()).flatten();
        let given: Vec<_> = results
            .map(|result| (result.driver.as_str(), result.pool.as_str(), result.device.as_str()))
            .collect();
        assert_eq!(given.first().copied(), first, "{request}");
        if first.is_some() { allocated += 1 } else { unfit += 1 }
    }
    assert!(allocated > 300 && unfit > 300, "{allocated} allocated, {unfit} do not fit");
}
