//! Pods waiting for cards allocated by kube-scheduler.

use std::time::Instant;

use serde_json::{Value, json};
use tessera_api::fleet_view::WaitingPod;
use tessera_cluster::Kind;

use crate::objects::*;

/// A fleet whose cards are in a native pool, or in none.
fn fleet(pool: &Value) -> Fed {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    slices("a", 2, pool.clone()).into_iter().for_each(|slice| fed.apply(slice));
    fed
}

fn native() -> Value {
    json!({ "pool": "main", "allocation": "Native" })
}

/// A pod without a gate, unschedulable for kube-scheduler.
fn unplaced(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["priority"] = json!(7);
    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 cannot allocate all claims." }]);
    pod
}

fn ask(fed: &mut Fed, name: &str, class: &str, count: usize) {
    fed.apply_pod(unplaced(name));
    fed.apply_claim(claim(name, class, count));
}

/// Waiting pods, and the unmet demand reported by pools.
fn waiting(fed: &mut Fed) -> (Vec<WaitingPod>, u32) {
    fed.decide();
    let unmet =
        fed.decider.pools().get("main").map_or(0, |pool| pool.unmet.iter().map(|shape| shape.pods).sum());
    let mut pass = tessera_decide::ViewPass::default();
    while fed.decider.view_next(&mut pass) {}
    (fed.decider.view(pass, fed.now).into_view().waiting, unmet)
}

fn names(fed: &mut Fed) -> Vec<String> {
    waiting(fed).0.into_iter().map(|pod| pod.name).collect()
}

#[test]
fn pods_of_native_pools_wait_with_the_reason_of_kube_scheduler() {
    let mut fed = fleet(&native());
    ask(&mut fed, "greedy", "gpu", 9);
    let (pods, unmet) = waiting(&mut fed);
    let [pod] = pods.as_slice() else { panic!("{pods:?}") };
    assert_eq!((pod.name.as_str(), pod.place, pod.priority, unmet), ("greedy", 0, 7, 1));
    assert_eq!(pod.why, "kube-scheduler: 0/1 nodes are available: 1 cannot allocate all claims.");
    assert_eq!(pod.pools, ["main"]);
    // The pod gets its devices. Its remaining wait is not ours.
    fed.apply_claim(allocated(claim("greedy", "gpu", 1), "a", &[card(0)]));
    assert_eq!((names(&mut fed), waiting(&mut fed).1), (vec![], 0));
    fed.apply_claim(claim("greedy", "gpu", 1));
    assert_eq!(names(&mut fed), ["greedy"]);
    fed.delete(Kind::Pod, "greedy");
    assert_eq!((names(&mut fed), waiting(&mut fed).1), (vec![], 0));
}

#[test]
fn who_does_not_wait_for_our_devices_is_not_counted() {
    let mut fed = fleet(&native());
    let others = json!({ "metadata": { "name": "nic" }, "spec": { "extendedResourceName": "example.com/nic",
        "selectors": [{ "cel": { "expression": "device.driver == 'nic.example.com'" } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(others).into());
    ask(&mut fed, "network", "nic", 1);
    // Not tried yet, on a node, or ended.
    for (name, change) in [("new", "conditions"), ("bound", "node"), ("ended", "phase")] {
        let mut pod = unplaced(name);
        match change {
            "conditions" => pod["status"]["conditions"] = json!([]),
            "node" => pod["spec"]["nodeName"] = json!("a"),
            _ => pod["status"]["phase"] = json!("Failed"),
        }
        fed.apply_claim(claim(name, "gpu", 1));
        fed.apply_pod(pod);
    }
    let mut nic = unplaced("extended-nic");
    nic["spec"]["resourceClaims"] = json!([]);
    nic["spec"]["containers"][0]["resources"] = json!({ "limits": { "example.com/nic": "1" } });
    fed.apply_pod(nic);
    assert_eq!((names(&mut fed), waiting(&mut fed).1), (vec![], 0));
}

#[test]
fn extended_resources_and_cards_of_no_pool_count() {
    let mut fed = fleet(&json!({}));
    let mut pod = unplaced("extended");
    pod["spec"]["resourceClaims"] = json!([]);
    pod["status"]["resourceClaimStatuses"] = json!([]);
    pod["spec"]["containers"][0]["resources"] = json!({ "limits": { "nvidia.com/gpu": "3" } });
    fed.apply_pod(pod);
    assert!(names(&mut fed).is_empty(), "no class has the name");
    let class = json!({ "metadata": { "name": "nvidia" }, "spec": { "extendedResourceName": "nvidia.com/gpu", "selectors": [
        { "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(class).into());
    let (pods, _) = waiting(&mut fed);
    assert_eq!(
        pods.iter().map(|pod| (pod.name.as_str(), pod.pools.len())).collect::<Vec<_>>(),
        [("extended", 0)]
    );
}

#[test]
fn who_waits_for_managed_or_steered_cards_is_counted_once() {
    let mut fed = crate::leader::leader(&[("b", 1)]);
    ask(&mut fed, "managed", "gpu", 2);
    fed.ask("gated", "gpu", 2);
    let (pods, unmet) = waiting(&mut fed);
    let found: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.place > 0, pod.pools.len())).collect();
    assert_eq!(found, [("gated", true, 1), ("managed", true, 1)]);
    assert_eq!(unmet, 2);
    assert!(pods.iter().all(|pod| !pod.why.starts_with("kube-scheduler")), "{pods:?}");
}

/// A fleet with a whole month's jobs waiting: neither examining the pods nor reporting them takes long.
#[test]
fn five_thousand_wait_cheaply() {
    let mut fed = fleet(&native());
    let begun = Instant::now();
    for number in 0..5_000 {
        ask(&mut fed, &format!("p{number}"), "gpu", 3 + number % 400);
    }
    fed.decide();
    let seen = begun.elapsed();
    let begun = Instant::now();
    fed.decider.pools();
    let first = begun.elapsed();
    let begun = Instant::now();
    let unmet = &fed.decider.pools()["main"].unmet;
    let again = begun.elapsed();
    println!("seen in {seen:?}, looked at in {first:?}, again in {again:?}");
    assert_eq!(unmet.len(), 16);
    assert_eq!(names(&mut fed).len(), 5_000);
    assert!(again.as_secs() < 5, "{again:?}: not all are looked at again");
}
