//! A cluster changed object by object answers like one built from the remaining objects.

#![allow(clippy::expect_used)]

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_cluster::{Asker, Cluster, Key, Object, outcome, subject};
use tessera_oracle::Generator;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("what the generator makes is an object")
}

fn asker() -> Asker {
    Asker::new(|| "share".to_owned())
}

/// Objects of a few requests, of all kinds affecting answers.
fn objects(generator: &mut Generator) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for id in 0..3 {
        let request = generator.request(id);
        let list = |name: &str| request[name].as_array().cloned().unwrap_or_default();
        objects.extend(list("slices").into_iter().map(|slice| read::<ResourceSlice>(slice).into()));
        objects.extend(list("allocated").into_iter().map(|claim| read::<ResourceClaim>(claim).into()));
        objects.extend(list("claims").into_iter().map(|claim| read::<ResourceClaim>(claim).into()));
        objects.extend(list("classes").into_iter().map(|class| read::<DeviceClass>(class).into()));
        objects.push(read::<Node>(request["node"].clone()).into());
    }
    for (name, selector) in [("all", json!({})), ("some", json!({"device": "gpu-0"}))] {
        objects.push(
            read::<DeviceTaintRule>(json!({"metadata": {"name": name}, "spec": {
                "deviceSelector": selector, "taint": {"key": name, "effect": "NoSchedule"},
            }}))
            .into(),
        );
    }
    objects
}

fn answers(cluster: &Cluster) -> String {
    let mut asker = asker();
    let mut all = String::new();
    for subject in subject::waiting(cluster.objects()) {
        let nodes = outcome::of_nodes(cluster, &subject, &mut asker).expect("good quantities");
        all += &serde_json::to_string(&nodes).expect("outcomes are JSON");
    }
    all
}

#[test]
fn objects_in_and_out_leave_nothing_behind() {
    let mut some_fit = 0;
    for seed in 0..60 {
        let mut generator = Generator::new(1_000 + seed);
        let objects = objects(&mut generator);
        let mut random = seed as usize;
        let mut cluster = Cluster::default();
        let mut left: Vec<Object> = Vec::new();
        for step in 0..4 * objects.len() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let object = &objects[(random >> 33) % objects.len()];
            let place = left.iter().position(|other| {
                (other.kind(), Key::from(other.metadata())) == (object.kind(), Key::from(object.metadata()))
            });
            if (random >> 20).is_multiple_of(3) {
                cluster.delete(object.kind(), &Key::from(object.metadata()));
                if let Some(place) = place {
                    left.remove(place);
                }
            } else {
                cluster.apply(object.clone()).expect("good quantities");
                match place {
                    Some(place) => left[place] = object.clone(),
                    None => left.push(object.clone()),
                }
            }
            if step % 7 == 0 {
                let mut anew = Cluster::default();
                for object in &left {
                    anew.apply(object.clone()).expect("good quantities");
                }
                assert_eq!(cluster.held(), anew.held(), "seed {seed}, step {step}");
                let found = answers(&cluster);
                assert_eq!(found, answers(&anew), "seed {seed}, step {step}");
                some_fit += usize::from(found.contains("\"fits\":true"));
            }
        }
    }
    assert!(some_fit > 50, "only {some_fit} answers fit");
}

#[test]
fn many_read_at_once_and_what_if_copies_nothing() {
    let mut generator = Generator::new(7);
    let mut cluster = Cluster::default();
    for object in objects(&mut generator) {
        cluster.apply(object).expect("good quantities");
    }
    let expected = answers(&cluster);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| answers(&cluster))).collect();
        for thread in all {
            assert_eq!(thread.join().expect("no panic"), expected);
        }
    });
    let claims: Vec<&ResourceClaim> = cluster.objects().claims.values().map(AsRef::as_ref).collect();
    let without_all = cluster.held_without(&claims).expect("good quantities");
    assert_eq!(without_all.device_count(), 0);
    assert_eq!(without_all, tessera_allocator::held::Held::new());
    assert!(cluster.held().device_count() > 0);
}
