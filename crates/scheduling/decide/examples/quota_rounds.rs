//! Cost of a round with many teams: `quota_rounds NODES PODS TEAMS` prints one line of JSON. For `cargo xtask bench teams`.
//!
//! Each node has 8 managed cards, and 90 % of all are held. Each waiting pod asks for two cards of a node, and no node has two free.
//! With TEAMS > 0 as many namespaces have a GpuQuota each: half of the teams are below their guarantee, and the others borrow. With 0
//! there are the same namespaces without quotas. Every second a node changes. Nominations are written to their pods; pods evicted for them do not end. Times are the
//! processor's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

#[path = "month/objects.rs"]
#[allow(dead_code, reason = "shared with others")]
mod objects;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_api::managed::NOMINATION_ANNOTATION;
use tessera_cluster::{GpuQuota, Object};
use tessera_decide::{Decider, Intent, Observation};

use objects::{CARDS, DRIVER, card, claim, class, member, read, slices};

const ROUNDS: usize = 60;
/// Namespaces, each of a team where there are any.
const NAMESPACES: usize = 200;

/// Processor time of this thread so far.
fn cpu_time() -> Duration {
    // The kernel counts up to the last switch.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|text| text.parse().ok()).expect("nanoseconds"))
}

fn namespace(number: usize) -> String {
    format!("n{}", number % NAMESPACES)
}

fn of(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = member(name, 0, 1);
    (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
    pod["metadata"]["labels"] = json!({});
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] =
        claim(name, 1)["metadata"]["name"].clone();
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["status"]["startTime"] = json!("1970-01-01T00:00:00Z");
    }
    pod
}

fn held(name: &str, node: &str, place: usize) -> Value {
    let mut held = claim(name, 1);
    held["status"] = json!({
        "allocation": { "devices": { "results": [{ "request": "r", "driver": DRIVER,
            "pool": format!("{DRIVER}/{node}"), "device": card(place) }] },
            "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": [node] }] }] } },
        "reservedFor": [{ "resource": "pods", "name": name, "uid": name }],
    });
    held
}

fn main() {
    let argument = |place: usize, default| {
        std::env::args().nth(place).and_then(|text| text.parse::<usize>().ok()).unwrap_or(default)
    };
    let (nodes, pods, teams) = (argument(1, 50), argument(2, 500), argument(3, NAMESPACES));
    let mut shares = 0u64;
    let share_id = move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut decider = Decider::new(DRIVER, share_id).with_handover(Duration::ZERO);
    let mut now = Duration::from_secs(10_000);
    let apply = |decider: &mut Decider, now: Duration, object: Object| {
        decider.observe(now, Observation::Applied(Box::new(object))).expect("a good object");
    };
    apply(&mut decider, now, read::<DeviceClass>(class()).into());
    for number in 0..NAMESPACES {
        let name = namespace(number);
        let labels = json!({ "team": name });
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        apply(&mut decider, now, read::<Namespace>(object).into());
        if number < teams {
            // The cards are held by the namespaces of the first half.
            let guaranteed = nodes * CARDS / NAMESPACES;
            let quota = json!({ "metadata": { "name": name }, "spec": {
                "namespaceSelector": { "matchLabels": labels },
                "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": guaranteed }] } });
            apply(&mut decider, now, read::<GpuQuota>(quota).into());
        }
    }
    for number in 0..nodes {
        let node = format!("node-{number:04}");
        let object = |round: usize| {
            json!({ "metadata": { "name": node, "labels": { "round": round.to_string() } },
                "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } })
        };
        apply(&mut decider, now, read::<Node>(object(0)).into());
        for slice in slices(&node, &json!({})) {
            apply(&mut decider, now, read::<ResourceSlice>(slice).into());
        }
        // One of five nodes is full, and the others have a card left.
        let count = if number % 5 == 0 { CARDS } else { CARDS - 1 };
        for place in 0..count {
            let name = format!("old-{number}-{place}");
            let namespace = namespace((number * CARDS + place) % (NAMESPACES / 2));
            apply(&mut decider, now, read::<ResourceClaim>(of(&namespace, held(&name, &node, place))).into());
            apply(&mut decider, now, read::<Pod>(of(&namespace, pod(&name, Some(&node)))).into());
        }
    }
    decider.lead(now, "one");
    decider.decide(now);
    decider.observe(now, Observation::ClaimsListed { asked_at: now }).expect("nothing to refuse");
    decider.decide(now);
    // After the grace that follows a change of quotas.
    now += Duration::from_secs(100);
    for number in 0..pods {
        let (name, namespace) = (format!("new-{number}"), namespace(number));
        apply(&mut decider, now, read::<ResourceClaim>(of(&namespace, claim(&name, 2))).into());
        apply(&mut decider, now, read::<Pod>(of(&namespace, pod(&name, None))).into());
    }
    let (mut times, mut nominated, mut evicted) = (Vec::new(), 0, 0);
    for round in 0..ROUNDS {
        now += Duration::from_secs(1);
        let label = json!({ "metadata": { "name": "node-0000", "labels": { "round": round.to_string() } },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        apply(&mut decider, now, read::<Node>(label).into());
        let begun = cpu_time();
        let intents = decider.decide(now);
        times.push((cpu_time() - begun).as_secs_f64() * 1e3);
        for intent in intents {
            match intent {
                Intent::Evict { .. } => evicted += 1,
                Intent::Nominate { pod, nomination } => {
                    nominated += 1;
                    let mut found = decider.cluster().objects().pods[&pod.key].as_ref().clone();
                    let text =
                        nomination.map(|nomination| (NOMINATION_ANNOTATION.to_owned(), nomination.encode()));
                    found.metadata.annotations = Some(text.into_iter().collect());
                    apply(&mut decider, now, found.into());
                }
                _ => {}
            }
        }
    }
    let first = times[0];
    times.sort_by(f64::total_cmp);
    println!(
        "{}",
        json!({ "nodes": nodes, "pods": pods, "teams": teams, "first_ms": first, "p50_ms": times[ROUNDS / 2],
            "p90_ms": times[ROUNDS * 9 / 10], "max_ms": times[ROUNDS - 1], "nominated": nominated, "evicted": evicted, "waiting": decider.waiting().count() })
    );
}
