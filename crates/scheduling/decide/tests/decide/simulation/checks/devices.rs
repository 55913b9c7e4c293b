//! No device has two owners, and no counter is overrun.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::Device;
use tessera_cluster::{Key, Kind, Object};

use crate::simulation::api_server::{Server, Surroundings};
use crate::simulation::oracle::{DeviceId, devices_of};

/// Whether both are the same device, or one is part of the other.
pub fn overlap(one: &DeviceId, other: &DeviceId) -> bool {
    let part = |longer: &str, whole: &str| longer.starts_with(&format!("{whole}-mig"));
    one == other || (one.0 == other.0 && (part(&one.1, &other.1) || part(&other.1, &one.1)))
}

/// Checks the claim's devices against those of all other claims.
pub fn of_claim(around: &mut Surroundings, server: &Server, name: &Key) {
    let mine: Vec<DeviceId> = server.claim(name).into_iter().flat_map(devices_of).collect();
    if mine.is_empty() {
        return;
    }
    for (other, claim) in server.claims().filter(|(other, _)| other != name) {
        for device in devices_of(claim) {
            if mine.iter().any(|mine| overlap(mine, &device)) {
                around.violated(|| format!("{} and {} have {device:?}", name.name, other.name));
            }
        }
    }
    counters(around, server);
}

/// Checks all allocations against the counters of published devices, which are independent of overlaps by name.
fn counters(around: &mut Surroundings, server: &Server) {
    let amount = |text: &str| text.parse::<i64>().expect("counters here are small numbers");
    let mut left: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    let mut devices: BTreeMap<DeviceId, &Device> = BTreeMap::new();
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
        for taken in devices_of(claim) {
            // Slices may be withdrawn while claims hold their devices.
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
