//! Claims that hold what others have.

#![allow(clippy::expect_used)]

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::inventory::Inventory;
use tessera_allocator::overlap::{Overlap, overlaps};
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::{Generator, ours};

fn inventory(slices: &Value) -> Inventory {
    let mut inventory = Inventory::new();
    for slice in slices.as_array().into_iter().flatten() {
        let slice: ResourceSlice = serde_json::from_value(slice.clone()).expect("a slice");
        inventory.add(&slice).expect("a good slice");
    }
    inventory
}

fn claim(results: Value) -> ResourceClaim {
    let allocation = json!({ "devices": { "results": results } });
    serde_json::from_value(json!({ "metadata": {}, "spec": {}, "status": { "allocation": allocation } }))
        .expect("a claim")
}

fn found(inventory: &Inventory, claims: &[ResourceClaim]) -> Vec<Overlap> {
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    let results =
        claims.iter().filter_map(|claim| claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref());
    let drivers: BTreeSet<String> = results
        .flat_map(|devices| devices.results.iter().flatten())
        .map(|result| result.driver.clone())
        .collect();
    let mut all: Vec<Overlap> =
        drivers.iter().flat_map(|driver| overlaps(inventory, driver, &claims)).collect();
    all.sort_by_key(|overlap| overlap.claim);
    all.dedup_by_key(|overlap| overlap.claim);
    all
}

/// A card of two halves, whole too, and one that is shared.
fn card() -> Inventory {
    let device = |name: &str, counters: Value| {
        let consumes = json!([{ "counterSet": "card", "counters": counters }]);
        json!({ "name": name, "consumesCounters": consumes })
    };
    let one = json!({ "value": "1" });
    let slice = |name: &str, contents: Value| {
        let pool = json!({ "name": "n", "generation": 1, "resourceSliceCount": 2 });
        let mut spec = json!({ "driver": "d", "nodeName": "n", "pool": pool });
        spec.as_object_mut().expect("an object").extend(contents.as_object().expect("an object").clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    inventory(&json!([
        slice("0", json!({ "sharedCounters": [{ "name": "card", "counters": { "a": one, "b": one } }] })),
        slice(
            "1",
            json!({ "devices": [
            device("low", json!({ "a": one })),
            device("high", json!({ "b": one })),
            device("whole", json!({ "a": one, "b": one })),
            { "name": "shared", "allowMultipleAllocations": true, "capacity": { "memory": { "value": "8Gi" } } },
        ] })
        ),
    ]))
}

fn of(device: &str) -> ResourceClaim {
    claim(json!([{ "request": "r", "driver": "d", "pool": "n", "device": device }]))
}

fn share(id: &str, memory: &str) -> ResourceClaim {
    let consumed = json!({ "memory": memory });
    let device = json!({ "request": "r", "driver": "d", "pool": "n", "device": "shared", "shareID": id, "consumedCapacity": consumed });
    claim(json!([device]))
}

#[test]
fn one_device_has_one_owner() {
    assert_eq!(found(&card(), &[of("low"), of("high")]), []);
    let twice = Overlap { claim: 2, device: "low".to_owned() };
    assert_eq!(found(&card(), &[of("low"), of("high"), of("low")]), [twice]);
    // What is not published, or only looked at, is nobody's.
    assert_eq!(found(&card(), &[of("gone"), of("gone")]), []);
    let mut looks = of("low");
    let devices = looks.status.as_mut().and_then(|status| status.allocation.as_mut()?.devices.as_mut());
    devices.and_then(|devices| devices.results.as_mut()).expect("results")[0].admin_access = Some(true);
    assert_eq!(found(&card(), &[looks.clone(), of("low"), looks]), []);
}

#[test]
fn a_partition_and_its_card_have_one_owner() {
    assert_eq!(found(&card(), &[of("low"), of("whole")]), [Overlap { claim: 1, device: "whole".to_owned() }]);
    // A claim that has to go takes nothing from those after it.
    let lost = [Overlap { claim: 1, device: "whole".to_owned() }];
    assert_eq!(found(&card(), &[of("low"), of("whole"), of("high")]), lost);
}

#[test]
fn shares_have_room_together() {
    assert_eq!(found(&card(), &[share("1", "4Gi"), share("2", "4Gi")]), []);
    let over = [Overlap { claim: 2, device: "shared".to_owned() }];
    assert_eq!(found(&card(), &[share("1", "4Gi"), share("2", "3Gi"), share("3", "2Gi")]), over);
    assert_eq!(found(&card(), &[share("1", "4Gi"), of("shared")])[0].claim, 1);
    assert_eq!(found(&card(), &[of("shared"), share("1", "4Gi")])[0].claim, 1);
}

/// Whether each device was published once: of several of one name it depends on the node which one is meant.
fn is_unambiguous(inventory: &Inventory, claim: &ResourceClaim) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let mut results = devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.all(|result| inventory.find(&result.driver, &result.pool, &result.device).count() == 1)
}

/// What Kubernetes' allocator gives does not overlap; given to two it does.
#[test]
fn allocations_of_one_attempt_do_not_overlap() {
    let mut generator = Generator::new(91);
    let mut selectors = SelectorCache::new();
    let (mut allocated, mut doubled) = (0, 0);
    for id in 0..2_000 {
        let mut request = generator.request(id);
        // Where kube-scheduler does not know counters, nobody counts.
        request["features"] = Value::Null;
        // What is allocated already may overlap.
        request["allocated"] = json!([]);
        let inventory = inventory(&request["slices"]);
        let answer = ours::answer(&request, &mut selectors, None);
        let allocations = answer["allocations"].as_array().into_iter().flatten();
        let claims: Vec<ResourceClaim> =
            allocations.map(|allocation| claim(allocation["devices"]["results"].clone())).collect();
        if !claims.iter().all(|claim| is_unambiguous(&inventory, claim)) {
            continue;
        }
        assert_eq!(found(&inventory, &claims), [], "{request}\n{answer}");
        allocated += claims.len();
        for claim in &claims {
            let status = claim.status.as_ref().expect("a status");
            let devices = status.allocation.as_ref().and_then(|allocation| allocation.devices.as_ref());
            let mut results = devices.iter().flat_map(|devices| devices.results.iter().flatten());
            let is_exclusive =
                results.any(|result| result.share_id.is_none() && result.admin_access != Some(true));
            if is_exclusive {
                assert_eq!(found(&inventory, &[claim.clone(), claim.clone()]).len(), 1, "{request}");
                doubled += 1;
            }
        }
    }
    println!("{allocated} claims, {doubled} given twice");
    assert!(allocated > 300 && doubled > 200);
}
