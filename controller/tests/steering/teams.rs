//! Two teams on a real control plane: a limit, what is borrowed, and what is taken back.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_quota::{GpuQuota, GpuQuotaStatus};
use tessera_fakes::poll;
use tessera_harness::{Cluster, PodState};

use crate::instance::Instance;
use crate::steered::told;
use crate::{fleet, pods};

/// The quota of the namespaces with the team's name as their label `team`.
fn quota(team: &str, amount: Value) -> Value {
    json!({
        "apiVersion": "gpu.tessera.dev/v1alpha1",
        "kind": "GpuQuota",
        "metadata": { "name": team },
        "spec": { "namespaceSelector": { "matchLabels": { "team": team } }, "amounts": [amount], "minRuntimeSeconds": 0 },
    })
}

async fn until_status(cluster: &Cluster, team: &str, what: &str, is_so: impl Fn(&GpuQuotaStatus) -> bool) {
    let quotas: Api<GpuQuota> = Api::all(cluster.client().await.unwrap());
    let seen = async || quotas.get(team).await.unwrap().status.is_some_and(|status| is_so(&status));
    poll::until_async(&format!("the status of {team} says {what}"), seen).await;
}

/// A namespace of the team with a template for one card.
async fn namespace(cluster: &Cluster, name: &str) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "team": name } } });
    let template = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "gpus-1", "namespace": name },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "gpus", "exactly": { "deviceClassName": "gpu" } }] } } },
    });
    fleet::apply(cluster, &[namespace, template]).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await.unwrap(), name);
    poll::until_async("pods can be made", async || accounts.get("default").await.is_ok()).await;
}

/// One team borrows what the other does not use, up to its limit; the other has its guarantee back when it comes, while the controller is
/// killed in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_borrowed_is_taken_back_for_a_team_below_its_guarantee() {
    let cluster = fleet::start_with(1, 4, "Managed").await;
    cluster.kubectl(&["label", "namespace", "default", "team=nlp", "--overwrite"]).await.unwrap();
    namespace(&cluster, "vision").await;
    let guaranteed = json!({ "name": "cards", "unit": "Cards", "guaranteed": 2 });
    let limited = json!({ "name": "cards", "unit": "Cards", "limit": 3 });
    fleet::apply(&cluster, &[quota("vision", guaranteed), quota("nlp", limited)]).await;
    let first = Instance::start(&cluster.kubeconfig(), "first");

    // Until the cards are handed over pods wait for another reason, and the next Event about one comes half a minute later.
    cluster.create_pod(pods::pod("first", 1)).await.unwrap();
    cluster.wait_for_pod("default", "first", PodState::Scheduled, pods::LIMIT).await.unwrap();
    cluster.kubectl(&["delete", "pod", "first", "--force", "--grace-period=0"]).await.unwrap();
    fleet::apply(&cluster, &[pods::deployment("train", 4, 1)]).await;
    pods::nodes_of_app(&cluster, "train", 3).await;
    poll::until_async("all of them exist", async || pods::of_app(&cluster, "train").await.len() == 4).await;
    let waiting = pods::of_app(&cluster, "train")
        .await
        .into_iter()
        .find(|pod| pod.spec.as_ref().unwrap().node_name.is_none());
    let why = told(&cluster, &waiting.unwrap().name_any(), "NotAllocated").await;
    assert!(why.contains("team nlp has 3.00 of 3.00 (cards)"), "{why}");
    until_status(&cluster, "nlp", "three are borrowed", |status| {
        let amount = status.amounts.first();
        amount.is_some_and(|amount| amount.used == "3.00" && amount.borrowed == "3.00") && status.waiting == 1
    })
    .await;
    until_status(&cluster, "vision", "two are lent", |status| {
        status.amounts.first().is_some_and(|amount| amount.lent == "2.00" && amount.used == "0.00")
    })
    .await;

    for name in ["one", "two"] {
        let mut pod = pods::pod(name, 1);
        pod["metadata"]["namespace"] = json!("vision");
        cluster.create_pod(pod).await.unwrap();
    }
    cluster.wait_for_pod("vision", "one", PodState::Scheduled, pods::LIMIT).await.unwrap();
    first.kill();
    let second = Instance::start(&cluster.kubeconfig(), "second");
    cluster.wait_for_pod("vision", "two", PodState::Scheduled, pods::LIMIT).await.unwrap();
    let bound = pods::nodes_of_app(&cluster, "train", 2).await;
    assert_eq!(bound.len(), 2, "one of three gave its card back");
    until_status(&cluster, "vision", "nothing is lent any more", |status| {
        status.amounts.first().is_some_and(|amount| amount.lent == "0.00" && amount.used == "2.00")
    })
    .await;

    // Without quotas whoever is next gets what is free.
    let quotas: Api<GpuQuota> = Api::all(cluster.client().await.unwrap());
    quotas.delete_collection(&Default::default(), &ListParams::default()).await.unwrap();
    let in_vision: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "vision");
    in_vision.delete_collection(&Default::default(), &ListParams::default()).await.unwrap();
    pods::nodes_of_app(&cluster, "train", 4).await;
    cluster.kubectl(&["delete", "namespace", "vision"]).await.unwrap();
    cluster.kubectl(&["label", "namespace", "default", "team-"]).await.unwrap();
    second.terminate();
}
