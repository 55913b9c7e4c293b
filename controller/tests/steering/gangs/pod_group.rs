//! Gangs by Kubernetes' own PodGroup.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_harness::{Cluster, KubernetesVersion};

use crate::instance::Instance;
use crate::{fleet, pods};

fn pod_group(name: &str, min: usize) -> Value {
    json!({
        "apiVersion": KubernetesVersion::of_tests().pod_groups(), "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": min } } },
    })
}

fn member(group: &str, number: usize) -> Value {
    let mut pod = pods::pod(&format!("{group}-{number}"), 4);
    pod["metadata"]["labels"] = json!({ "app": group });
    pod["spec"]["schedulingGroup"] = json!({ "podGroupName": group });
    pod
}

async fn gated(cluster: &Cluster, app: &str) -> usize {
    pods::of_app(cluster, app).await.iter().filter(|pod| super::is_gated(pod)).count()
}

/// kube-scheduler waits for all pods of the group, too; both get on with each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_group_is_a_gang() {
    let cluster = fleet::start_with(3, 4, "Managed").await;
    let first = Instance::start(&cluster.kubeconfig(), "first");
    let taken = pods::run(&cluster, "in-the-way", 1).await;
    fleet::apply(&cluster, &[pod_group("tied", 2), pod_group("large", 3)]).await;
    // One of them would fit, but not all have come.
    cluster.create_pod(member("tied", 0)).await.unwrap();
    assert_eq!(pods::run(&cluster, "beside", 1).await, taken);
    assert_eq!(gated(&cluster, "tied").await, 1);
    // All have come, but only two would fit.
    for number in 0..3 {
        cluster.create_pod(member("large", number)).await.unwrap();
    }
    let why = crate::steered::told(&cluster, "large-0", "NotAllocated").await;
    assert!(why.contains("gang large: 2 of 3 pods that it needs fit now"), "{why}");
    assert_eq!((gated(&cluster, "large").await, super::allocated(&cluster, "large").await), (3, 0));

    cluster.create_pod(member("tied", 1)).await.unwrap();
    let nodes = pods::nodes_of_app(&cluster, "tied", 2).await;
    assert_eq!(nodes.iter().filter(|node| **node != taken).collect::<BTreeSet<_>>().len(), 2);
    assert_eq!(gated(&cluster, "large").await, 3);

    // Those that hold cards end, and the large one has all of its pods bound.
    for name in ["tied-0", "tied-1", "in-the-way", "beside"] {
        cluster.delete_pod("default", name).await.unwrap();
    }
    assert_eq!(pods::nodes_of_app(&cluster, "large", 3).await.iter().collect::<BTreeSet<_>>().len(), 3);
    cluster.kubectl(&["delete", "podgroups", "tied", "large", "--wait=false"]).await.unwrap();
    first.terminate();
}
