//! No device has two owners, no counter is overrun, and nothing that fits waits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceClaim};
use tessera_api::managed;
use tessera_cluster::subject::Subject;
use tessera_cluster::{AllocationExt, Asker, Cluster, Key, Kind, Object, PlacementLimits, outcome};

use crate::simulation::api_server::{Server, Surroundings};

/// Pool and device.
type Held = (String, String);

fn held(claim: &ResourceClaim) -> Vec<Held> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.into_iter().flat_map(AllocationExt::results);
    results.map(|result| (result.pool.clone(), result.device.clone())).collect()
}

fn overlap(one: &Held, other: &Held) -> bool {
    let part = |longer: &str, whole: &str| longer.starts_with(&format!("{whole}-mig"));
    one == other || (one.0 == other.0 && (part(&one.1, &other.1) || part(&other.1, &one.1)))
}

/// What the claim has now, beside what all others have.
pub fn devices_of(around: &mut Surroundings, server: &Server, name: &Key) {
    let Some(mine) = server.claim(name).map(held).filter(|mine| !mine.is_empty()) else { return };
    for (other, claim) in server.claims().filter(|(other, _)| other != name) {
        for device in held(claim) {
            if mine.iter().any(|mine| overlap(mine, &device)) {
                around.violated(|| format!("{} and {} have {device:?}", name.name, other.name));
            }
        }
    }
    counters(around, server);
}

/// What the counters of published devices say of all that is allocated: they know nothing of what overlaps by name.
fn counters(around: &mut Surroundings, server: &Server) {
    let amount = |text: &str| text.parse::<i64>().expect("counters here are small numbers");
    let mut left: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    let mut devices: BTreeMap<Held, &Device> = BTreeMap::new();
    for object in server.of_kind(Kind::ResourceSlice) {
        let Object::ResourceSlice(slice) = object.as_ref() else { continue };
        let pool = &slice.spec.pool.name;
        for set in slice.spec.shared_counters.iter().flatten() {
            for (counter, value) in &set.counters {
                let name = (pool.clone(), set.name.clone(), counter.clone());
                left.insert(name, amount(&value.value.0));
            }
        }
        let own = slice.spec.devices.iter().flatten();
        devices.extend(own.map(|device| ((pool.clone(), device.name.clone()), device)));
    }
    for (name, claim) in server.claims() {
        for taken in held(claim) {
            // Slices may be withdrawn while claims hold what was in them.
            let Some(device) = devices.get(&taken) else { continue };
            for consumed in device.consumes_counters.iter().flatten() {
                for (counter, value) in &consumed.counters {
                    let set = (taken.0.clone(), consumed.counter_set.clone(), counter.clone());
                    let Some(left) = left.get_mut(&set) else { continue };
                    *left -= amount(&value.value.0);
                    if *left < 0 {
                        around.violated(|| format!("{counter} of {taken:?} is overrun with {}", name.name));
                    }
                }
            }
        }
    }
}

/// Whether the pod's claims could have devices on the node, of managed cards or of others.
pub fn fits(cluster: &Cluster, subject: &Subject, node: &Node, asker: &mut Asker) -> bool {
    let Some(pod) = subject.pod.as_ref() else { return false };
    if outcome::refusal(subject, node).is_some() || cluster.shortage(pod, node).is_some() {
        return false;
    }
    let Ok(claims) = outcome::converted(&outcome::to_allocate(subject, node)) else { return false };
    let limits = PlacementLimits { tolerated: &[managed::TAINT_KEY], may_give: &|_| true, steps: 10_000 };
    cluster.place(node, &claims, &limits, asker, |_| 0).ok().flatten().is_some()
}

/// Whether the controller gives out devices of the node.
pub fn has_managed(cluster: &Cluster, node: &str) -> bool {
    cluster.inventory().devices_of_node(node).any(|device| device.is_tainted_besides(""))
}
