//! Cost of a round while many kinds of pods wait and one node changes: `shapes NODES SHAPES` prints one line of JSON.
//!
//! Each node has 8 cards, all held except one on the changing node. Each pod asks for two cards by a selector of its own.
//! `shapes NODES SHAPES MANAGED COSTLY` begins with rounds in which as many pods wait whose selectors are as costly as the API server
//! allows, different for each card. MANAGED is 0 for steered cards.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{Decider, Observation};

const DRIVER: &str = "gpu.tessera.dev";
const CARDS: usize = 8;
const ROUNDS: usize = 9;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

fn apply(decider: &mut Decider, now: Duration, object: impl Into<Object>) {
    decider.observe(now, Observation::Applied(Box::new(object.into()))).expect("a good object");
}

/// A node whose cards belong to one pool.
fn node(name: &str, allocation: &str) -> Vec<Object> {
    let taints = match allocation {
        "Managed" => json!([{ "key": tessera_api::managed::TAINT_KEY, "effect": "NoSchedule" }]),
        _ => json!([]),
    };
    let device = |number: usize| {
        json!({ "name": card(number), "taints": taints, "attributes": {
            "type": { "string": "gpu" }, "uuid": { "string": format!("{name}-{number}") }, "memoryMiB": { "int": 81_559 } } })
    };
    let devices: Vec<Value> = (0..CARDS).map(device).collect();
    let cards: serde_json::Map<String, Value> = (0..CARDS)
        .map(|number| {
            (format!("0000:{:02x}:00.0", number + 1), json!({ "pool": "p", "allocation": allocation }))
        })
        .collect();
    let report = json!({ "cards": cards, "otherPairs": "SYS" }).to_string();
    let slice = json!({
        "metadata": { "name": name, "annotations": { "gpu.tessera.dev/node-report": report } },
        "spec": { "driver": DRIVER, "nodeName": name, "devices": devices,
            "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 } },
    });
    let object =
        json!({ "metadata": { "name": name }, "status": { "allocatable": { "cpu": "192", "pods": "110" } } });
    vec![
        read::<k8s_openapi::api::core::v1::Node>(object).into(),
        read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice).into(),
    ]
}

fn claim(
    name: &str,
    selector: &str,
    held: Option<(&str, usize)>,
) -> k8s_openapi::api::resource::v1::ResourceClaim {
    let mut claim = json!({
        "metadata": { "name": format!("{name}-c"), "namespace": "n", "uid": format!("{name}-c"), "resourceVersion": "1",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu",
            "allocationMode": "ExactCount", "count": 2, "selectors": [{ "cel": { "expression": selector } }] } }] } },
    });
    if let Some((node, number)) = held {
        claim["status"] = json!({
            "allocation": { "devices": { "results": [{ "request": "r", "driver": DRIVER, "pool": node, "device": card(number) }] } },
            "reservedFor": [{ "resource": "pods", "name": name, "uid": name }],
        });
    }
    read(claim)
}

fn pod(name: &str, node: Option<&str>) -> k8s_openapi::api::core::v1::Pod {
    let gates = if node.is_some() { json!([]) } else { json!([{ "name": "gpu.tessera.dev/steering" }]) };
    read(json!({
        "metadata": { "name": name, "namespace": "n", "uid": name },
        "spec": { "schedulingGates": gates, "nodeName": node,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] },
        "status": { "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": format!("{name}-c") }] },
    }))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (nodes, shapes) = (number(50), number(1_000));
    let allocation = if number(0) == 0 { "Steered" } else { "Managed" };
    let mut shares = 0_u64;
    let share_id = move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut now = Duration::from_secs(10_000);
    let mut decider = Decider::new(DRIVER, share_id);
    let class = json!({ "metadata": { "name": "gpu" }, "spec": { "selectors": [
        { "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] } });
    apply(&mut decider, now, read::<k8s_openapi::api::resource::v1::DeviceClass>(class));
    for place in 0..nodes {
        let name = format!("n{place}");
        node(&name, allocation).into_iter().for_each(|object| apply(&mut decider, now, object));
        for number in 0..CARDS {
            let of = format!("old-{place}-{number}");
            apply(&mut decider, now, claim(&of, "true", Some((&name, number))));
            apply(&mut decider, now, pod(&of, Some(&name)));
        }
    }
    for number in 0..shapes {
        let name = format!("new-{number}");
        let selector = format!("device.attributes['{DRIVER}'].memoryMiB > {number}");
        apply(&mut decider, now, claim(&name, &selector, None));
        apply(&mut decider, now, pod(&name, None));
    }
    decider.lead(now, "epoch");
    let costly = number(0);
    for number in 0..costly {
        let name = format!("costly-{number}");
        let all = |variable: &str, inner: &str| format!("lists.range(42).all({variable}, {inner})");
        let loops = all("a", &all("b", &all("c", "a + b + c >= 0")));
        let selector = format!("device.attributes['{DRIVER}'].uuid != '{number}' && {loops}");
        apply(&mut decider, now, claim(&name, &selector, None));
        apply(&mut decider, now, pod(&name, None));
    }
    let mut costly_times = Vec::new();
    while costly > 0 && costly_times.len() < 50 {
        now += Duration::from_millis(100);
        let begun = Instant::now();
        decider.decide(now);
        costly_times.push(begun.elapsed());
    }
    for number in 0..costly {
        let observation = Observation::Deleted(Kind::Pod, Key::new("n", format!("costly-{number}")));
        decider.observe(now, observation).expect("no object");
    }
    let begun = Instant::now();
    decider.decide(now);
    let first = begun.elapsed();
    let asked_at = now;
    decider.observe(now, Observation::ClaimsListed { asked_at }).expect("no object");
    now += Duration::from_secs(100);
    decider.decide(now);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        now += Duration::from_secs(60);
        // One held card more, or one less, on the first node.
        let held = (round % 2 == 1).then_some(("n0", 0));
        apply(&mut decider, now, claim("old-0-0", "true", held));
        let begun = Instant::now();
        decider.decide(now);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{}",
        json!({ "nodes": nodes, "shapes": shapes,
            "costly_ms": costly_times.iter().max().map(|time| ms(*time)), "first_ms": ms(first), "p50_ms": ms(times[ROUNDS / 2]),
            "max_ms": ms(times[ROUNDS - 1]), "waiting": decider.waiting().count() })
    );
}
