//! Cost of a round in which many pods wait and others could be evicted: `victims NODES PODS CARDS EVICTABLE` prints one line of JSON.
//!
//! Each node has 8 managed cards, each held by a pod. Of the running pods the first EVICTABLE ones have a lower priority. Each waiting
//! pod asks for CARDS cards.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

#[path = "month/objects.rs"]
#[allow(dead_code, reason = "shared with others")]
mod objects;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_cluster::Object;
use tessera_decide::{Decider, Intent, Observation};

use objects::{CARDS, DRIVER, card, claim, class, member, read, slices};

const ROUNDS: usize = 5;

fn pod(name: &str, priority: i32, node: Option<&str>) -> Value {
    let mut pod = member(name, 0, 1);
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(name);
    pod["metadata"]["labels"] = json!({});
    pod["spec"]["priority"] = json!(priority);
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] =
        claim(name, 1)["metadata"]["name"].clone();
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["schedulingGates"] = json!([]);
    }
    pod
}

fn main() {
    let argument = |place: usize, default| {
        std::env::args().nth(place).and_then(|text| text.parse::<usize>().ok()).unwrap_or(default)
    };
    let (nodes, pods, cards) = (argument(1, 50), argument(2, 500), argument(3, 9));
    let evictable = argument(4, nodes * CARDS);
    let mut shares = 0u64;
    let share_id = move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut decider = Decider::new(DRIVER, share_id).with_handover(Duration::ZERO);
    let mut now = Duration::from_secs(1_000);
    let apply = |decider: &mut Decider, now: Duration, object: Object| {
        decider.observe(now, Observation::Applied(Box::new(object))).expect("a good object");
    };
    apply(&mut decider, now, read::<k8s_openapi::api::resource::v1::DeviceClass>(class()).into());
    for number in 0..nodes {
        let node = format!("node-{number:04}");
        let object = json!({ "metadata": { "name": node },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        apply(&mut decider, now, read::<k8s_openapi::api::core::v1::Node>(object).into());
        for slice in slices(&node, &json!({})) {
            apply(&mut decider, now, read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice).into());
        }
        for place in 0..CARDS {
            let name = format!("old-{number}-{place}");
            let mut held = claim(&name, 1);
            held["status"] = json!({
                "allocation": { "devices": { "results": [{ "request": "r", "driver": DRIVER,
                    "pool": format!("{DRIVER}/{node}"), "device": card(place) }] },
                    "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
                        { "key": "metadata.name", "operator": "In", "values": [node] }] }] } },
                "reservedFor": [{ "resource": "pods", "name": name, "uid": name }],
            });
            apply(&mut decider, now, read::<k8s_openapi::api::resource::v1::ResourceClaim>(held).into());
            let priority = if number * CARDS + place < evictable { -10 } else { 10 };
            apply(
                &mut decider,
                now,
                read::<k8s_openapi::api::core::v1::Pod>(pod(&name, priority, Some(&node))).into(),
            );
        }
    }
    decider.lead(now, "one");
    decider.decide(now);
    decider.observe(now, Observation::ClaimsListed { asked_at: now }).expect("nothing to refuse");
    decider.decide(now);
    for number in 0..pods {
        let name = format!("new-{number}");
        apply(
            &mut decider,
            now,
            read::<k8s_openapi::api::resource::v1::ResourceClaim>(claim(&name, cards)).into(),
        );
        apply(&mut decider, now, read::<k8s_openapi::api::core::v1::Pod>(pod(&name, 0, None)).into());
    }
    let (mut times, mut nominated) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        now += Duration::from_secs(11);
        let label = json!({ "metadata": { "name": "node-0000", "labels": { "round": round.to_string() } },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        apply(&mut decider, now, read::<k8s_openapi::api::core::v1::Node>(label).into());
        let begun = Instant::now();
        let intents = decider.decide(now);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        nominated += intents.iter().filter(|intent| matches!(intent, Intent::Nominate { .. })).count();
    }
    let first = times[0];
    times.sort_by(f64::total_cmp);
    println!(
        "{}",
        json!({ "nodes": nodes, "pods": pods, "cards": cards, "evictable": evictable, "first_ms": first,
            "p50_ms": times[ROUNDS / 2], "max_ms": times[ROUNDS - 1], "nominated": nominated,
            "waiting": decider.waiting().count() })
    );
}
