//! Cost of planning a gang on a large fleet: `gangs NODES PODS` prints one line of JSON. For `cargo xtask bench gangs`.
//!
//! Each node is in a rack and has 8 managed cards, half of them held on average. Each pod of the gang asks for 8.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

#[path = "month/objects.rs"]
mod objects;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_cluster::Object;
use tessera_decide::{Decider, Intent, Observation};

use objects::{CARDS, DRIVER, card, claim, class, member, read, slices};

/// Nodes in a rack.
const RACK: usize = 16;

fn held(node: &str, numbers: &[usize]) -> Value {
    let mut claim = claim(&format!("old-{node}"), numbers.len());
    let results: Vec<Value> = numbers
        .iter()
        .map(|number| json!({ "request": "r", "driver": DRIVER, "pool": format!("{DRIVER}/{node}"), "device": card(*number) }))
        .collect();
    claim["status"] = json!({ "allocation": { "devices": { "results": results } } });
    claim
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
    apply(&mut decider, read::<k8s_openapi::api::resource::v1::DeviceClass>(class()).into());
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..nodes {
        let name = format!("node-{number:04}");
        let labels = json!({ "topology.kubernetes.io/rack": format!("rack-{:03}", number / RACK),
            "topology.kubernetes.io/zone": format!("zone-{}", number * 4 / nodes) });
        let node = json!({ "metadata": { "name": name, "labels": labels },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        apply(&mut decider, read::<k8s_openapi::api::core::v1::Node>(node).into());
        for slice in slices(&name, &json!({})) {
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
    // The first gang ranks all nodes, as after a start. The second only examines changes. The last pods are no gang, so each gets
    // cards on arrival.
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
