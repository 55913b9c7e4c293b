//! Devices and room taken after events, answers and trials in any order.
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

use super::*;
use crate::Kind;

const DEVICES: [&str; 3] = ["x", "y", "z"];

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A node with three devices.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    let allocatable = json!({ "cpu": "4", "pods": "10" });
    let node = json!({ "metadata": { "name": "a" }, "status": { "allocatable": allocatable } });
    cluster.apply(read::<Node>(node)).unwrap();
    let devices = DEVICES.map(|name| json!({ "name": name }));
    let slice: ResourceSlice = read(json!({ "metadata": { "name": "s" }, "spec": { "driver": "d",
        "nodeName": "a", "devices": devices,
        "pool": { "name": "a", "generation": 1, "resourceSliceCount": 1 } } }));
    cluster.apply(slice).unwrap();
    cluster
}

/// A claim of this name, with the device, if any.
fn claim(name: &str, device: Option<&str>) -> ResourceClaim {
    let results = device.map(|device| {
        json!({ "devices": { "results": [{ "driver": "d", "pool": "a", "device": device, "request": "r" }] } })
    });
    read(json!({ "metadata": { "name": name, "namespace": "n", "uid": name },
        "status": { "allocation": results } }))
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    let containers = json!([{ "name": "c", "resources": { "requests": { "cpu": "1" } } }]);
    read(json!({ "metadata": { "name": name, "namespace": "n" },
        "spec": { "nodeName": node, "containers": containers } }))
}

fn taken(cluster: &Cluster) -> Vec<(&str, Vec<String>)> {
    let holders = |device| cluster.holders(device).map(Holder::to_string).collect();
    let all = cluster.inventory().devices().map(|device| (device.name(), holders(device)));
    all.filter(|(_, holders): &(_, Vec<String>)| !holders.is_empty()).collect()
}

#[test]
fn what_is_observed_counts_and_what_was_expected_no_more() {
    let (mut cluster, key) = (cluster(), Key::new("n", "p"));
    let by = |holder: &str| vec![holder.to_owned()];
    cluster.apply(claim("c", None)).unwrap();
    cluster.assume(&key, &pod("p", None), "a", vec![claim("c", Some("x"))]).unwrap();
    assert_eq!(taken(&cluster), [("x", by("n/c"))]);
    cluster.apply(claim("c", Some("y"))).unwrap();
    assert_eq!(taken(&cluster), [("y", by("n/c"))]);
    // The scheduler deallocated the claim, but the pod is still on its way.
    cluster.apply(claim("c", None)).unwrap();
    assert_eq!(taken(&cluster), [("x", by("n/c"))]);
    cluster.forget(&key);
    assert_eq!(taken(&cluster), []);
}

#[test]
fn a_nomination_takes_what_others_hold() {
    let (mut cluster, key) = (cluster(), Key::new("n", "p"));
    cluster.apply(claim("c", Some("x"))).unwrap();
    let allocated = claim("nominated", Some("x"));
    cluster.nominate(&key, &pod("p", None), "a", allocated.results());
    let both = vec!["n/c".to_owned(), "nomination of pod n/p".to_owned()];
    assert_eq!(taken(&cluster), [("x", both)]);
    let victim = Holder::Claim(Key::new("n", "c"));
    let tried = cluster.try_hold(&victim, None).unwrap();
    assert_eq!(tried.nodes.into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(taken(&cluster), [("x", vec!["nomination of pod n/p".to_owned()])]);
    cluster.try_hold(&victim, tried.before);
    cluster.forget(&key);
    assert_eq!(taken(&cluster), [("x", vec!["n/c".to_owned()])]);
}

#[test]
fn a_difference_is_told() {
    let mut cluster = cluster();
    cluster.apply(pod("p", Some("a"))).unwrap();
    cluster.apply(claim("c", Some("x"))).unwrap();
    assert_eq!(cluster.check_taken(), Ok(()));
    let pods = std::mem::take(&mut cluster.objects.pods);
    assert!(cluster.check_taken().unwrap_err().starts_with("pod n/p takes"));
    cluster.objects.pods = pods;
    cluster.taken.held_mut().add(&cluster.inventory, &claim("c", Some("y"))).unwrap();
    assert!(cluster.check_taken().unwrap_err().contains("some device"));
}

/// Events, answers and trials in any order.
#[test]
fn the_index_is_what_holders_take_after_every_step() {
    for seed in 0..200u64 {
        let (mut cluster, mut random) = (cluster(), seed);
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for step in 0..60 {
            let key = Key::new("n", ["p", "q"][next(2)]);
            let of_claim = Key::new("n", ["c", "d"][next(2)]);
            let device = [DEVICES.as_slice(), &["unknown"]].concat().get(next(5)).copied();
            let (allocated, node) = (claim(&of_claim.name, device), ["a"].get(next(2)).copied());
            match next(14) {
                0 => cluster.charge_for([None, Some("d")][next(2)]),
                13 => cluster.charge_guessed_anew(),
                12 => drop(cluster.apply(allocated).unwrap()),
                1 => cluster.delete(Kind::ResourceClaim, &of_claim),
                2 => drop(cluster.apply(pod(&key.name, node)).unwrap()),
                3 => cluster.delete(Kind::Pod, &key),
                4 => cluster.assume(&key, &pod(&key.name, None), "a", vec![allocated]).unwrap(),
                5 => cluster.assume_claims(&key, vec![allocated]).unwrap(),
                6 => cluster.assume_claim(&allocated).unwrap(),
                7 => cluster.forget_claim(&of_claim),
                8 => cluster.forget(&key),
                9 => cluster.forget_claims(&key),
                10 => cluster.nominate(&key, &pod(&key.name, None), "a", allocated.results()),
                _ => {
                    let mut undo = Vec::new();
                    let planned = Cluster::holds_on("a", &key, &pod(&key.name, None), &[allocated]).unwrap();
                    let gone = [Holder::Pod(key), Holder::Claim(of_claim)].map(|holder| (holder, None));
                    let planned = planned.into_iter().map(|(holder, hold)| (holder, Some(hold)));
                    for (holder, hold) in gone.into_iter().chain(planned) {
                        let replaced = cluster.try_hold(&holder, hold);
                        undo.extend(replaced.map(|replaced| (holder, replaced.before)));
                    }
                    for (holder, before) in undo.into_iter().rev() {
                        cluster.try_hold(&holder, before);
                    }
                }
            }
            assert_eq!(cluster.check_taken(), Ok(()), "seed {seed}, step {step}");
        }
    }
}
