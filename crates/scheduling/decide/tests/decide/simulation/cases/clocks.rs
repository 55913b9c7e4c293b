//! A kind whose list never arrives, and a clock running behind.

use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use tessera_api::device_status::READY;
use tessera_cluster::{Key, Kind};

use super::{Act, gated, labelled, must_be_bound, nobody_may_be_evicted, with};
use crate::objects;
use crate::simulation::api_server::{Server, Surroundings};
use crate::simulation::kubernetes::{DOES_NOT_START, seconds, timestamp};
use crate::simulation::oracle;

/// Pods not involving the unlisted kind are still scheduled.
pub fn never_lists() -> Vec<(f32, Act)> {
    vec![
        (60.0, Act::ControllerIsStale(Kind::JobSet, 10_000)),
        (125.0, Act::Create(gated("of-no-set", "two"))),
        (180.0, Act::Do(|around, server| must_be_bound(around, server, "of-no-set"))),
    ]
}

/// How far the node's clock is behind, in seconds.
const BEHIND: i64 = 600;

/// Reports devices of the pod's claim as ready or not, since a time by the node's clock.
fn set_ready(around: &mut Surroundings, server: &mut Server, is_ready: bool) {
    let pod = server.pod(&objects::key("slow")).cloned();
    let asked = pod.as_ref().and_then(|pod| oracle::asked(server.view(), pod)).unwrap_or_default();
    let claims: Vec<Key> = asked.iter().filter_map(|asked| asked.key()).collect();
    let since = timestamp((seconds(around.now) - BEHIND).max(0));
    for claim in claims {
        server.update_claim(around, &claim, |claim| {
            let devices = oracle::devices_of(claim).map(|(pool, device)| AllocatedDeviceStatus {
                driver: objects::DRIVER.to_owned(),
                pool,
                device,
                conditions: Some(vec![Condition {
                    type_: READY.to_owned(),
                    status: if is_ready { "True" } else { "False" }.to_owned(),
                    reason: "Preparing".to_owned(),
                    last_transition_time: since.clone(),
                    message: String::new(),
                    observed_generation: None,
                }]),
                ..AllocatedDeviceStatus::default()
            });
            let devices = devices.collect();
            claim.status.get_or_insert_default().devices = Some(devices);
        });
    }
}

/// No pod is evicted for a new condition with an old timestamp.
pub fn behind() -> Vec<(f32, Act)> {
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "owner", "uid": "owner",
        "controller": true }]);
    let slow = with(gated("slow", "one"), "/metadata/ownerReferences", owner);
    vec![
        (425.0, Act::Create(labelled(slow, DOES_NOT_START))),
        (460.0, Act::Do(|around, server| must_be_bound(around, server, "slow"))),
        (800.0, Act::Do(|around, server| set_ready(around, server, false))),
        (820.0, Act::Do(|around, server| set_ready(around, server, true))),
        (830.0, Act::Do(|around, server| nobody_may_be_evicted(around, server))),
    ]
}
