//! Pods of lower priority make room.

use std::collections::BTreeSet;
use std::time::Instant;

use kube::ResourceExt;
use serde_json::json;
use tessera_api::managed::NOMINATION_ANNOTATION;
use tessera_fakes::poll;

use super::{group, is_gated, job};
use crate::instance::Instance;
use crate::steered::told;
use crate::{fleet, pods};

/// A gang of higher priority: those in its way are evicted when what it will get stands on all of its pods, and none that a
/// disruption budget keeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_of_higher_priority_preempts() {
    let cluster = fleet::start_with(3, 4, "Managed").await;
    let first = Instance::start(&cluster.kubeconfig(), "first");
    let high = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": { "name": "high" }, "value": 1000 });
    let kept = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "kept", "namespace": "default" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "kept" } } } });
    fleet::apply(&cluster, &[high, kept, pods::deployment("kept", 1, 4)]).await;
    let kept = pods::nodes_of_app(&cluster, "kept", 1).await;
    fleet::apply(&cluster, &[pods::deployment("low", 2, 4)]).await;
    let low = pods::nodes_of_app(&cluster, "low", 2).await;
    let victims: BTreeSet<String> =
        pods::of_app(&cluster, "low").await.iter().map(ResourceExt::name_any).collect();

    // Three nodes: one of them is kept, so that nobody goes for nothing.
    let urgent = |name: &str, size: usize| {
        let mut urgent = job(name, size, 4, group(name, size));
        urgent["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
        urgent
    };
    fleet::apply(&cluster, &[urgent("too-large", 3)]).await;
    poll::until_async("all of its pods exist", async || pods::of_app(&cluster, "too-large").await.len() == 3)
        .await;
    let leader = pods::of_app(&cluster, "too-large").await.iter().map(ResourceExt::name_any).min().unwrap();
    let why = told(&cluster, &leader, "NotAllocated").await;
    assert!(why.contains("PodDisruptionBudget"), "{why}");
    cluster.kubectl(&["delete", "job", "too-large"]).await.unwrap();

    let begun = Instant::now();
    fleet::apply(&cluster, &[urgent("urgent", 2)]).await;
    let nodes = pods::nodes_of_app(&cluster, "urgent", 2).await;
    println!("2 x 4 by preemption: {:.1?}", begun.elapsed());
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>(), low.iter().collect::<BTreeSet<_>>());
    for pod in pods::of_app(&cluster, "urgent").await {
        let nomination = pod.annotations().get(NOMINATION_ANNOTATION);
        assert!(nomination.is_some_and(|text| text.contains("n0")), "{:?}", pod.annotations());
    }
    assert_eq!(pods::nodes_of_app(&cluster, "kept", 1).await, kept);
    // Those that were made in place of the evicted ones wait.
    let now = pods::of_app(&cluster, "low").await;
    assert!(now.iter().all(|pod| is_gated(pod) && !victims.contains(&pod.name_any())), "{now:?}");
    cluster.kubectl(&["delete", "poddisruptionbudget", "kept"]).await.unwrap();
    cluster.kubectl(&["delete", "priorityclass", "high"]).await.unwrap();
    first.terminate();
}
