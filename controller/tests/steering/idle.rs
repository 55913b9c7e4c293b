//! Pods that do not use their devices, in pools that evict them.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_api::device_status::{BELOW, IDLE};
use tessera_api::gpu_pool::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, RESUME};
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};
use tessera_fakes::poll;

use crate::instance::Instance;
use crate::managed::{allocation, claims, ungated};
use crate::steered::told;
use crate::{fleet, pods};

/// The pod's claim says that its devices are not used.
async fn unused(claims: &Api<ResourceClaim>, pod: &str) {
    let all = claims.list(&Default::default()).await.unwrap().items;
    let of_pod = |claim: &&ResourceClaim| claim.owner_references().iter().any(|owner| owner.name == pod);
    let claim = all.iter().find(of_pod).expect("the pod's claim");
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_ref()).expect("results").iter();
    let condition = json!({ "type": IDLE, "status": "True", "reason": BELOW, "message": "below 5% since noon",
        "lastTransitionTime": Timestamp::now() });
    let told = results.map(|device| {
        json!({ "driver": device.driver, "pool": device.pool, "device": device.device, "conditions": [condition] })
    });
    let patch = Patch::Merge(json!({ "status": { "devices": told.collect::<Vec<_>>() } }));
    claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await.expect("its status");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_pod_is_told_and_evicted_and_a_disruption_budget_keeps_another() {
    let cluster = fleet::start_with(1, 2, "Managed").await;
    fleet::report(&cluster, 0, "idle", &json!({ "action": "Evict", "graceSeconds": 2 })).await;
    let instance = Instance::start(&cluster.kubeconfig(), "first");
    let mut kept = ungated("kept", 1);
    kept["metadata"]["labels"] = json!({ "app": "kept" });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "kept", "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "kept" } } },
    });
    fleet::apply(&cluster, &[budget]).await;
    for pod in [kept, ungated("unused", 1)] {
        cluster.create_pod(pod).await.unwrap();
    }
    let claims = claims(&cluster).await;
    for pod in ["kept", "unused"] {
        pods::node(&cluster, pod).await;
        unused(&claims, pod).await;
    }
    for pod in ["kept", "unused"] {
        let note = told(&cluster, pod, "Idle").await;
        assert!(note.contains("below 5% since noon. It is evicted at"), "{note}");
    }
    let note = told(&cluster, "unused", "Evicted").await;
    assert!(note.contains("below 5% since noon"), "{note}");
    let of_namespace: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    poll::until_async("the pod is gone", async || of_namespace.get_opt("unused").await.unwrap().is_none())
        .await;
    assert!(of_namespace.get("kept").await.unwrap().metadata.deletion_timestamp.is_none());
    instance.terminate();
    cluster.kubectl(&["delete", "pdb", "kept", "-n", "default"]).await.unwrap();
}

/// The kind of reason for which the pod waits, as written on the pod.
fn waits(pod: &Pod) -> Option<String> {
    Some(Waiting::decode(pod.annotations().get(WAITING_ANNOTATION)?)?.kind)
}

/// A restart of the controller before the eviction and after it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_pod_makes_room_and_the_one_in_its_place_waits_until_it_is_resumed() {
    let cluster = fleet::start_with(1, 2, "Managed").await;
    fleet::report(&cluster, 0, "idle", &json!({ "action": "WhenWanted", "graceSeconds": 3 })).await;
    let instance = Instance::start(&cluster.kubeconfig(), "first");
    fleet::apply(&cluster, &[pods::deployment("server", 1, 2)]).await;
    pods::nodes_of_app(&cluster, "server", 1).await;
    let server = pods::of_app(&cluster, "server").await[0].name_any();
    unused(&claims(&cluster).await, &server).await;
    cluster.create_pod(ungated("asker", 2)).await.unwrap();
    let note = told(&cluster, &server, "Idle").await;
    assert!(note.contains("evicted for default/asker, which waits, at"), "{note}");
    instance.kill();

    let instance = Instance::start(&cluster.kubeconfig(), "second");
    let note = told(&cluster, &server, "Evicted").await;
    assert!(note.contains("now to default/asker"), "{note}");
    pods::node(&cluster, "asker").await;
    let next = async || {
        let pods = pods::of_app(&cluster, "server").await;
        pods.into_iter()
            .find(|pod| pod.name_any() != server && pod.annotations().contains_key(IDLE_EVICTED_ANNOTATION))
    };
    poll::until_async("the next pod of the Deployment is known", async || next().await.is_some()).await;
    instance.kill();

    let instance = Instance::start(&cluster.kubeconfig(), "third");
    // Of pods created in the same second the first by name goes first.
    cluster.create_pod(ungated("visitor", 2)).await.unwrap();
    let kind = async || next().await.and_then(|pod| waits(&pod));
    poll::until_async("it waits", async || kind().await.as_deref() == Some("IdleEvicted")).await;
    let name = next().await.unwrap().name_any();
    let resume = format!("{IDLE_ANNOTATION}={RESUME}");
    cluster.kubectl(&["annotate", "pod", &name, "-n", "default", &resume]).await.unwrap();
    poll::until_async("it waits as any other", async || kind().await.as_deref() == Some("NoNode")).await;
    cluster.kubectl(&["delete", "pod", "asker", "-n", "default", "--force"]).await.unwrap();
    // It came before the visitor.
    pods::node(&cluster, &name).await;
    instance.terminate();
}
