//! An allocate request, made by the generator of the differential test and then changed as chosen by the input.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::error::AllocateError;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;

use tessera_oracle::Generator;

use super::choices::Choices;

/// Enough for any request of the generator; little enough for thousands of runs a second.
const EFFORT: u64 = 20_000;

/// Objects of a list, parsed one by one: an object rejected by its type is left out.
fn objects<T: DeserializeOwned>(all: &Value) -> Vec<T> {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
}

/// Runs one input; `parts` of the request are changed.
///
/// # Panics
/// When an invariant does not hold.
pub fn run(data: &[u8], parts: &[&str]) {
    let (mut choices, rest) = Choices::split(data);
    let mut request = Generator::from_bytes(rest).request(0);
    for _ in 0..choices.below(12) {
        let part = parts[choices.below(parts.len())];
        choices.change(&mut request[part]);
    }
    let inventory = inventory(&objects(&request["slices"]));
    let held = held(&inventory, &objects(&request["allocated"]));
    let classes: Classes = objects::<DeviceClass>(&request["classes"]).iter().map(Class::from).collect();
    let claims: Vec<Claim> = objects::<ResourceClaim>(&request["claims"])
        .iter()
        .filter_map(|claim| Claim::try_from(claim).ok())
        .collect();
    let node: core::Node = serde_json::from_value(request["node"].clone()).unwrap_or_default();
    let node = Node::from(&node);

    let answer = |patience: u64, selectors: &mut SelectorCache| {
        let mut allocator = Allocator::new(&inventory, &held, &classes);
        (allocator.patience, allocator.effort_limit) = (patience, EFFORT);
        let mut shares = 0;
        let mut share_id = || {
            shares += 1;
            format!("share-{shares}")
        };
        allocator.allocate(&node, &claims, selectors, &mut share_id)
    };
    let mut selectors = SelectorCache::new();
    let patient = answer(u64::MAX, &mut selectors);
    let impatient = answer(0, &mut selectors);
    let is_too_long = |answer: &Result<_, AllocateError>| matches!(answer, Err(AllocateError::TooLong(_)));
    if !is_too_long(&patient) && !is_too_long(&impatient) {
        assert_eq!(patient, impatient, "what is left out of the search changes its answer");
    }
    if let Ok(Some(results)) = &impatient {
        check(&inventory, &claims, results);
    }
    let allocator = Allocator::new(&inventory, &held, &classes);
    if let Ok(explanation) = allocator.explain(&node, &claims, &mut selectors) {
        for report in explanation.requests.iter().flat_map(|request| &request.devices) {
            let _ = (report.device.name(), report.device.capacity_texts().count(), &report.reason);
        }
    }
}

fn inventory(slices: &[ResourceSlice]) -> Inventory {
    let mut inventory = Inventory::new();
    let mut devices = 0;
    for slice in slices {
        if inventory.add(slice).is_ok() {
            devices += slice.spec.devices.as_ref().map_or(0, Vec::len);
        }
    }
    assert_eq!(inventory.device_count(), devices, "a refused slice leaves no device, an accepted one all");
    for device in inventory.devices() {
        let found = inventory.find(device.driver_name(), device.pool(), device.name());
        assert!(found.into_iter().any(|other| other.slice_name() == device.slice_name()), "a device is lost");
    }
    assert_eq!(inventory.footprint().devices, devices);
    inventory
}

fn held(inventory: &Inventory, claims: &[ResourceClaim]) -> Held {
    let mut held = Held::new();
    let mut states = Vec::new();
    for claim in claims {
        let before = held.clone();
        match held.add(inventory, claim) {
            Ok(()) => states.push((claim, before)),
            Err(_) => assert_eq!(held, before, "a refused claim holds something"),
        }
    }
    let all = held.clone();
    for (claim, before) in states.into_iter().rev() {
        held.remove(inventory, claim).expect("what was added can be removed");
        assert_eq!(held, before, "a release does not restore the state");
    }
    all
}

fn check(inventory: &Inventory, claims: &[Claim], results: &[AllocationResult]) {
    assert_eq!(results.len(), claims.len(), "one result for each claim");
    let mut whole = std::collections::HashSet::new();
    for result in results {
        serde_json::to_value(result).expect("a result is JSON");
        let devices = result.devices.as_ref().and_then(|devices| devices.results.as_ref());
        for device in devices.into_iter().flatten() {
            let id = (&device.driver, &device.pool, &device.device);
            assert!(inventory.find(id.0, id.1, id.2).next().is_some(), "no such device: {}", json!(device));
            if device.share_id.is_none() && device.admin_access != Some(true) {
                assert!(whole.insert(id), "given twice: {}", json!(device));
            }
        }
    }
}
