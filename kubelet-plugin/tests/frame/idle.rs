//! Claims whose pods do not use their devices, as the plugin tells them.

use k8s_openapi::api::{events::v1::Event, resource::v1::ResourceClaim};
use kube::{Api, api::ListParams};
use serde_json::json;
use std::time::{Duration, Instant};
use tessera_harness::kubelet_stand_in::Claim;

use crate::{
    node::Node,
    plugin::LONG,
    usage::{claim, device, pod, start},
};

/// A condition of the claim: status and reason.
pub async fn condition(node: &Node, claim: &Claim, kind: &str) -> Option<(String, String)> {
    let claims: Api<ResourceClaim> = Api::namespaced(node.client.clone(), "default");
    let devices = claims.get(&claim.name).await.unwrap().status?.devices?;
    let conditions = devices.into_iter().flat_map(|device| device.conditions.unwrap_or_default());
    let condition = conditions.into_iter().find(|condition| condition.type_ == kind)?;
    assert!(!condition.message.is_empty());
    Some((condition.status, condition.reason))
}

async fn until(node: &Node, claim: &Claim, status: &str, reason: &str) {
    until_condition(node, claim, "Idle", status, reason).await;
}

/// Waits for a state of a condition of the claim.
pub async fn until_condition(node: &Node, claim: &Claim, kind: &str, status: &str, reason: &str) {
    let since = Instant::now();
    loop {
        let now = condition(node, claim, kind).await;
        if now == Some((status.to_owned(), reason.to_owned())) {
            return;
        }
        assert!(since.elapsed() < LONG, "{now:?} instead of {status} {reason}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Notes of the Events of a pod with this reason.
pub async fn notes(node: &Node, pod: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(node.client.clone(), "default");
    let of_pod = ListParams::default().fields(&format!("reason={reason},regarding.name={pod}"));
    let events = events.list(&of_pod).await.unwrap().items;
    events.into_iter().filter_map(|event| event.note).collect()
}

/// A process of a container of a pod.
pub fn process(node: &Node, pid: u32, pod: &str, container: &str) {
    let directory = node.machine.root().join(format!("proc/{pid}"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("cgroup"), format!("0::/kubepods/pod{pod}/{container}\n")).unwrap();
}

#[tokio::test]
async fn a_claim_says_that_its_pod_does_not_use_it() {
    let node = Node::new("idle", "hgx-h100-80gb").await;
    node.pool("idle", json!({"idle": {"action": "Tell", "afterSeconds": 15}})).await;
    let plugin = start(&node, 4);
    let registered = node.register().await;
    plugin.ready().await;
    let (used, unused) = (pod(&node).await, pod(&node).await);
    let busy = claim(&node, &device(&node, 2), &used).await;
    let idle = claim(&node, &device(&node, 1), &unused).await;
    // From the first look on.
    process(&node, 61, &used.1, "sandbox");
    process(&node, 62, &used.1, "container");
    node.machine.let_happen("process add --card 2 --pid 62 --memory-mib 100 --busy 60");
    for answer in registered.prepare(&[busy.clone(), idle.clone()]).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    process(&node, 71, &unused.1, "sandbox");
    until(&node, &idle, "True", "NotStarted").await;

    // A program with memory and without a kernel.
    process(&node, 72, &unused.1, "container");
    node.machine.let_happen("process add --card 1 --pid 72 --memory-mib 2048 --busy 0");
    until(&node, &idle, "False", "Started").await;
    until(&node, &idle, "True", "BelowLimit").await;

    // No use is known while the card does not answer.
    node.machine.let_happen("fault --call nvmlDeviceGetTemperature --card 1 --delay-ms 3600000");
    until(&node, &idle, "False", "UseUnknown").await;
    node.machine.let_happen("restore");
    until(&node, &idle, "True", "BelowLimit").await;

    // The next instance knows nothing of the time before.
    assert_eq!(plugin.terminate().await.code(), Some(0));
    let plugin = start(&node, 4);
    until(&node, &idle, "False", "FirstLook").await;
    until(&node, &idle, "True", "BelowLimit").await;
    node.machine.let_happen("process remove --card 1 --pid 72");
    node.machine.let_happen("process add --card 1 --pid 72 --memory-mib 2048 --busy 60");
    until(&node, &idle, "False", "InUse").await;

    let notes = notes(&node, &unused.0, "Idle").await;
    assert!(notes.iter().any(|note| note.contains("no container of its pods has started")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("holds 2048 MiB of memory")), "{notes:?}");
    assert_eq!(condition(&node, &busy, "Idle").await, None);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
