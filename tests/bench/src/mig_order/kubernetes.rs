//! Checks that Kubernetes' allocator is first-fit over counters.

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::json;
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::{DEFAULT_DRIVER_NAME, attribute};
use tessera_inventory::Pool;

use super::published::Published;

const NODE: &str = "node";
const CLASS: &str = "any";

/// Compares Kubernetes' allocator and first-fit on the same random claims and releases.
///
/// # Errors
/// At the first difference.
pub fn agrees(pool: &Pool, steps: usize, seed: u64) -> Result<()> {
    let published = Published::of_pool(pool)?;
    let mut inventory = Inventory::new();
    for slice in slices(pool)? {
        inventory.add(&slice)?;
    }
    let classes: Classes = [Class { name: CLASS.to_owned(), ..Class::default() }].into_iter().collect();
    let node = Node { name: NODE.to_owned(), ..Node::default() };
    let mut selectors = SelectorCache::new();
    let mut held = Held::new();
    let mut allocated = published.empty();
    let mut live: Vec<(ResourceClaim, usize)> = Vec::new();
    let mut random = Rng::with_seed(seed);
    for step in 0..steps {
        // Phases of filling up and of emptying.
        let departs = if step / 50 % 2 == 0 { 0.2 } else { 0.6 };
        if !live.is_empty() && random.f64() < departs {
            let (claim, device) = live.swap_remove(random.usize(..live.len()));
            held.remove(&inventory, &claim)?;
            published.give_back(&mut allocated, device);
            continue;
        }
        let profile = random.usize(..published.profile_count());
        let name = published.profile_name(profile);
        let mut claim = claim(&format!("claim-{step}"), name)?;
        let allocator = Allocator::new(&inventory, &held, &classes);
        let request = Claim::try_from(&claim)?;
        let results = allocator.allocate(&node, &[request], &mut selectors, &mut String::new)?;
        let theirs = results.map(|mut results| results.swap_remove(0));
        let ours = published.first_fit(&allocated, profile);
        let their_device = theirs
            .as_ref()
            .and_then(|result| result.devices.as_ref()?.results.as_ref()?.first())
            .map(|result| result.device.as_str());
        let our_device = ours.map(|device| published.devices()[device].name.as_str());
        ensure!(
            their_device == our_device,
            "step {step}, {name}: Kubernetes allocates {their_device:?}, first-fit {our_device:?}"
        );
        if let (Some(result), Some(device)) = (theirs, ours) {
            claim.status.get_or_insert_default().allocation = Some(result);
            held.add(&inventory, &claim)?;
            published.take(&mut allocated, device);
            live.push((claim, device));
        }
    }
    Ok(())
}

fn slices(pool: &Pool) -> Result<Vec<ResourceSlice>> {
    let slice = |slice: &tessera_inventory::pool::Slice| -> Result<ResourceSlice> {
        let spec = json!({
            "driver": DEFAULT_DRIVER_NAME,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": pool.slices.len()},
        });
        let object = json!({"metadata": {"name": format!("{NODE}-{}", slice.name_suffix)}, "spec": spec});
        let mut object: ResourceSlice = serde_json::from_value(object).context("a slice as an object")?;
        slice.contents.put_into(&mut object.spec);
        Ok(object)
    };
    pool.slices.iter().map(slice).collect()
}

fn claim(name: &str, profile: &str) -> Result<ResourceClaim> {
    let expression = format!(
        "device.attributes[{DEFAULT_DRIVER_NAME:?}].?{}.orValue(\"\") == {profile:?}",
        attribute::PROFILE
    );
    let exactly = json!({
        "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    });
    let object = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "partition", "exactly": exactly}]}},
    });
    serde_json::from_value(object).context("a claim as an object")
}
