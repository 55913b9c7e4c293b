//! What it takes to plan a gang on a large fleet: `gangs NODES PODS` prints one line of JSON. For `cargo xtask bench gangs`.
//!
//! Each node has 8 managed cards, on average half of them held, and is in one of some racks; each pod of the gang asks for 8.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_cluster::Object;
use tessera_decide::{Decider, Intent, Observation};

const DRIVER: &str = "gpu.tessera.dev";
const CARDS: usize = 8;
/// Nodes in a rack.
const RACK: usize = 16;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

fn slices(node: &str) -> [Value; 2] {
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let set =
        |number: usize| json!({ "name": format!("{}-counter-set", card(number)), "counters": counters });
    let device = |number: usize| {
        json!({
            "name": card(number),
            "taints": [{ "key": "gpu.tessera.dev/managed", "effect": "NoSchedule" }],
            "attributes": { "type": { "string": "gpu" } },
            "capacity": { "memory": { "value": "80Gi" } },
            "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
        })
    };
    let pool = json!({ "pool": "main", "allocation": "Managed" });
    let cards: serde_json::Map<String, Value> =
        (0..CARDS).map(|number| (format!("0000:{:02x}:00.0", number + 1), pool.clone())).collect();
    let report = json!({ "cards": cards, "otherPairs": "SYS" }).to_string();
    let slice = |suffix: &str, annotations: Value, content: Value| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 } });
        spec.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        json!({ "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations }, "spec": spec })
    };
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": (0..CARDS).map(set).collect::<Vec<_>>() }),
        ),
        slice("2-cards", json!({}), json!({ "devices": (0..CARDS).map(device).collect::<Vec<_>>() })),
    ]
}

fn claim(pod: &str, cards: usize) -> Value {
    json!({
        "metadata": { "name": format!("{pod}-c"), "namespace": "n", "uid": format!("claim-{pod}"), "resourceVersion": "1",
            "annotations": { "gpu.tessera.dev/controller-epoch": "one" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": cards } }] } },
    })
}

fn held(node: &str, numbers: &[usize]) -> Value {
    let mut claim = claim(&format!("old-{node}"), numbers.len());
    let results: Vec<Value> = numbers
        .iter()
        .map(|number| json!({ "request": "r", "driver": DRIVER, "pool": format!("{DRIVER}/{node}"), "device": card(*number) }))
        .collect();
    claim["status"] = json!({ "allocation": { "devices": { "results": results } } });
    claim
}

fn member(gang: &str, number: usize, size: usize) -> Value {
    let name = format!("{gang}-{number}");
    json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": {
            "gpu.tessera.dev/group": gang, "gpu.tessera.dev/group-size": size.to_string() } },
        "spec": { "schedulingGates": [{ "name": "gpu.tessera.dev/steering" }],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] },
        "status": { "phase": "Pending",
            "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": format!("{name}-c") }] },
    })
}

fn main() {
    let argument = |place: usize, default| {
        std::env::args().nth(place).and_then(|text| text.parse::<usize>().ok()).unwrap_or(default)
    };
    let (nodes, size) = (argument(1, 5_000), argument(2, 64));
    let mut shares = 0u64;
    let share_id = move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut decider = Decider::new(DRIVER, share_id).with_handover(Duration::ZERO);
    let now = Duration::from_secs(1_000);
    let apply = |decider: &mut Decider, object: Object| {
        decider.observe(now, Observation::Applied(Box::new(object))).expect("a good object");
    };
    let expression = format!("device.driver == '{DRIVER}'");
    let class = json!({ "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
    apply(&mut decider, read::<k8s_openapi::api::resource::v1::DeviceClass>(class).into());
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..nodes {
        let name = format!("node-{number:04}");
        let labels = json!({ "topology.kubernetes.io/rack": format!("rack-{:03}", number / RACK),
            "topology.kubernetes.io/zone": format!("zone-{}", number * 4 / nodes) });
        let node = json!({ "metadata": { "name": name, "labels": labels },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        apply(&mut decider, read::<k8s_openapi::api::core::v1::Node>(node).into());
        for slice in slices(&name) {
            apply(&mut decider, read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice).into());
        }
        let mut cards: Vec<usize> = (0..CARDS).collect();
        random.shuffle(&mut cards);
        let taken = &cards[..random.usize(0..=CARDS)];
        if !taken.is_empty() {
            apply(
                &mut decider,
                read::<k8s_openapi::api::resource::v1::ResourceClaim>(held(&name, taken)).into(),
            );
        }
    }
    decider.lead(now, "one");
    decider.decide(now);
    decider.observe(now, Observation::ClaimsListed { asked_at: now }).expect("nothing to refuse");
    decider.decide(now);
    let mut times = Vec::new();
    // The first one ranks all nodes, as after a start; the second has to look at what changed.
    // The pods of the last are no gang: each gets its cards as it comes.
    for gang in ["first", "second", "alone"] {
        for number in 0..size {
            let mut pod = member(gang, number, size);
            if gang == "alone" {
                pod["metadata"]["labels"] = json!({});
            }
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            apply(
                &mut decider,
                read::<k8s_openapi::api::resource::v1::ResourceClaim>(claim(&name, CARDS)).into(),
            );
            apply(&mut decider, read::<k8s_openapi::api::core::v1::Pod>(pod).into());
        }
        let begun = Instant::now();
        let intents = decider.decide(now);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let placed = intents.iter().filter(|intent| matches!(intent, Intent::Allocate { .. })).count();
        assert_eq!(placed, size, "{:?}", intents.first());
    }
    let [first, next, alone] = times.as_slice() else { unreachable!("three were timed") };
    println!(
        "{}",
        json!({ "nodes": nodes, "pods": size, "first_ms": first, "next_ms": next, "alone_ms": alone })
    );
}
