//! Who waits for managed cards, as `kubectl gpu queue` tells it, and who has to make room.

use serde_json::{Value, json};
use tessera_harness::{Cluster, PodState};

use super::{NAMESPACE, apply, kubectl_gpu, life, node, until};

/// A pod with one card that others may be preferred to.
fn of_low_priority(name: &str) -> Value {
    let mut pod: Value = serde_json::from_str(&life::one_card(name)).unwrap();
    pod["spec"]["priorityClassName"] = json!("low");
    pod
}

/// The queue as JSON; what was said instead, where there is none.
async fn queue(cluster: &Cluster) -> Result<Vec<Value>, String> {
    let output = kubectl_gpu(cluster, &["queue", "--namespace", NAMESPACE, "-o", "json"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).map_err(|_| said)
}

async fn table(cluster: &Cluster) -> String {
    let output = kubectl_gpu(cluster, &["queue", "--namespace", NAMESPACE]).await;
    String::from_utf8(output.stdout).unwrap()
}

/// Two cards are free. A gang that needs both waits behind a pod that has one of them, and is seen waiting; a pod of higher priority that
/// needs both has the other pod evicted; when it is done the gang runs, and nobody waits.
pub async fn shows_who_waits(cluster: &Cluster) {
    let low = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": { "name": "low" }, "value": -10 });
    cluster.apply(&low.to_string()).await.unwrap();
    apply(cluster, &of_low_priority("in-the-way").to_string()).await;
    node(cluster, "in-the-way", PodState::Ready).await;
    for name in ["pair-0", "pair-1"] {
        let mut pod = of_low_priority(name);
        pod["metadata"]["labels"] =
            json!({ "gpu.tessera.dev/group": "pair", "gpu.tessera.dev/group-size": "2" });
        apply(cluster, &pod.to_string()).await;
    }
    let why = "gang pair: 1 of 2 pods that it needs fit now";
    until("the gang is in the queue, with its place and what it waits for", async || {
        let rows = queue(cluster).await.unwrap_or_default();
        let is_gang = |row: &Value| {
            row["name"] == format!("{NAMESPACE}/pair") && row["pods"] == 2 && row["priority"] == -10
        };
        let [row] = &rows[..] else { return false };
        is_gang(row) && row["place"] == 1 && row["why"].as_str().unwrap().contains(why)
    })
    .await;
    let shown = table(cluster).await;
    assert!(shown.starts_with("PLACE") && shown.contains(why), "{shown}");

    let mut urgent: Value = serde_json::from_str(&life::one_card("urgent")).unwrap();
    urgent["spec"]["resourceClaims"] = ["card", "other"]
        .map(|name| json!({ "name": name, "resourceClaimTemplateName": "one-card" }))
        .to_vec()
        .into();
    urgent["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "card" }, { "name": "other" }]);
    apply(cluster, &urgent.to_string()).await;
    node(cluster, "urgent", PodState::Ready).await;
    // The card is free once the evicted pod has ended; its object may stay a little longer, until the kubelet has cleared its volumes.
    let phases = r#"jsonpath={range .items[*]}{.metadata.name}={.status.phase}{"\n"}{end}"#;
    let left = cluster.kubectl(&["get", "pods", "--namespace", NAMESPACE, "-o", phases]).await.unwrap();
    let phase = |pod: &str| left.lines().find_map(|line| line.strip_prefix(&format!("{pod}=")));
    assert!(matches!(phase("in-the-way"), None | Some("Succeeded" | "Failed")), "{left}");
    assert_eq!(phase("managed"), Some("Running"), "{left}");

    cluster.delete_pod(NAMESPACE, "urgent").await.unwrap();
    for name in ["pair-0", "pair-1"] {
        node(cluster, name, PodState::Ready).await;
    }
    until("nobody waits", async || queue(cluster).await.is_ok_and(|rows| rows.is_empty())).await;
    assert_eq!(table(cluster).await, format!("no pod waits in namespace {NAMESPACE}\n"));
    for name in ["pair-0", "pair-1"] {
        cluster.delete_pod(NAMESPACE, name).await.unwrap();
    }
}
