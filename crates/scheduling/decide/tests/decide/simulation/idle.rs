//! Pods that use no devices for a while, in pools that give idle devices to those who wait.

use serde_json::{Value, json};
use tessera_api::device_status::{BELOW, IDLE};
use tessera_api::gpu_pool::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, KEEP, RESUME};
use tessera_cluster::Key;
use tessera_decide::Time;

use super::api_server::{Server, Surroundings, node_name};
use super::kubernetes::{seconds, timestamp};
use super::oracle;

/// The time between the first Event and an eviction.
pub const GRACE: Time = Time::from_secs(3);

/// What the pool says of idle claims.
pub fn idle_of_pool() -> Value {
    json!({ "action": "WhenWanted", "graceSeconds": GRACE.as_secs() })
}

/// Pods cease to use their devices and use them again, some want to keep them, and owners let pods go on.
pub fn step(around: &mut Surroundings, server: &mut Server) {
    let claims: Vec<Key> = server.claims().map(|(key, _)| key).collect();
    for key in claims {
        if around.percent(4) {
            let is_idle = around.percent(75);
            set(around, server, &key, is_idle);
        }
    }
    let pods: Vec<Key> = server.pods().map(|(key, _)| key).collect();
    for key in pods {
        let Some(pod) = server.pod(&key) else { continue };
        let is_held =
            pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(IDLE_EVICTED_ANNOTATION));
        let is_running = node_name(pod).is_some();
        let value = match () {
            () if is_held && around.rng.u32(0..1_000) < 3 => RESUME,
            () if is_running && around.rng.u32(0..1_000) < 2 => KEEP,
            () => continue,
        };
        around.note(|| format!("{}: {IDLE_ANNOTATION}: {value}", key.name));
        server.update_pod(around, &key, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(IDLE_ANNOTATION.to_owned(), value.to_owned());
        });
    }
}

/// All pods use their devices from now on.
pub fn end(around: &mut Surroundings, server: &mut Server) {
    let claims: Vec<Key> = server.claims().map(|(key, _)| key).collect();
    claims.iter().for_each(|key| set(around, server, key, false));
}

/// The plugin's condition of each device.
fn set(around: &mut Surroundings, server: &mut Server, key: &Key, is_idle: bool) {
    let Some(allocation) = server.claim(key).and_then(oracle::allocation) else { return };
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let status = if is_idle { "True" } else { "False" };
    let told: Vec<Value> = results
        .map(|result| {
            json!({ "driver": result.driver, "pool": result.pool, "device": result.device, "conditions": [{
                "type": IDLE, "status": status, "reason": BELOW, "message": "below 5%",
                "lastTransitionTime": timestamp(seconds(around.now)) }] })
        })
        .collect();
    around.note(|| format!("{} is idle: {status}", key.name));
    server.update_claim(around, key, |claim| {
        claim.status.get_or_insert_default().devices = Some(crate::objects::read(json!(told)));
    });
}
