//! Devices in use on each counter, and their claims.

use std::collections::{HashMap, HashSet};

use tessera_cluster::{AllocationExt, ClaimExt, Objects, reference};

use crate::devices::{DeviceId, Place};

/// Driver, pool, counter set and counter.
type Key = (String, String, String, String);

/// The users of a counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Their claims.
    pub claims: Vec<String>,
    /// Names of their devices.
    pub devices: Vec<String>,
}

/// Claims by the counters their devices consume.
#[derive(Debug, Default)]
pub struct CounterUsers {
    by_counter: HashMap<Key, Users>,
    held: HashSet<DeviceId>,
}

impl CounterUsers {
    /// All allocated claims, except the ones named in `without`.
    pub fn new(objects: &Objects, places: &[Place<'_>], without: &[String]) -> Self {
        let mut holders: HashMap<DeviceId, Vec<String>> = HashMap::new();
        for claim in objects.claims.values() {
            let name = reference(claim);
            let allocation = claim.allocation();
            let Some(allocation) = allocation.filter(|_| !without.contains(&name)) else { continue };
            for result in allocation.results().iter().filter(|result| result.admin_access != Some(true)) {
                let id = DeviceId {
                    driver: result.driver.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                };
                holders.entry(id).or_default().push(name.clone());
            }
        }
        let mut users = CounterUsers::default();
        for place in places {
            let Some(claims) = holders.get(&place.id) else { continue };
            for consumption in place.device.consumes_counters.iter().flatten() {
                for counter in consumption.counters.keys() {
                    let key = key(&place.id, &consumption.counter_set, counter);
                    let of_counter = users.by_counter.entry(key).or_default();
                    for claim in claims {
                        if !of_counter.claims.contains(claim) {
                            of_counter.claims.push(claim.clone());
                        }
                    }
                    of_counter.devices.push(place.id.device.clone());
                }
            }
        }
        users.held = holders.into_keys().collect();
        users
    }

    /// The users of a counter of the device's pool.
    pub fn of(&self, device: &DeviceId, set: &str, counter: &str) -> Users {
        self.by_counter.get(&key(device, set, counter)).cloned().unwrap_or_default()
    }

    /// Whether the device, or a counter shared with others, is in use.
    pub fn is_touched(&self, place: &Place<'_>) -> bool {
        self.held.contains(&place.id)
            || place.device.consumes_counters.iter().flatten().any(|consumption| {
                consumption.counters.keys().any(|counter| {
                    self.by_counter.contains_key(&key(&place.id, &consumption.counter_set, counter))
                })
            })
    }
}

fn key(device: &DeviceId, set: &str, counter: &str) -> Key {
    (device.driver.clone(), device.pool.clone(), set.to_owned(), counter.to_owned())
}
