use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tessera_harness::{Cluster, shared};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{LIMIT, run};

/// A claim gets one of the cards, while somebody watches.
async fn watches(cluster: &Cluster, kubeconfig: &Path) {
    let mut watch = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(["get", "--node", "cli-cards-1", "-o", "json", "-w", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    };
    for device in ["gpu-07-00", "gpu-0f-00"] {
        let row = next().await;
        assert_eq!((&row["device"], &row["held"]), (&json!(device), &json!([])), "{row}");
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "cli-watched", "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "cli-watched" } }] } },
    });
    cluster.apply(&claim.to_string()).await.unwrap();
    let allocation = json!({ "status": { "allocation": { "devices": { "results": [{
        "request": "card", "driver": "cards.tessera.dev", "pool": "cli-cards-1", "device": "gpu-0f-00" }] } } } });
    let patch = [
        "patch",
        "resourceclaim",
        "cli-watched",
        "-n",
        "default",
        "--subresource=status",
        "--type=merge",
        "--patch",
    ];
    let allocation = allocation.to_string();
    cluster.kubectl(&[&patch[..], &[allocation.as_str()]].concat()).await.unwrap();
    let row = next().await;
    assert_eq!(row["device"], "gpu-0f-00", "only what changed: {row}");
    assert_eq!(row["held"][0]["claim"], "default/cli-watched", "{row}");
    watch.kill().await.unwrap();
    cluster.kubectl(&["delete", "resourceclaim", "cli-watched", "-n", "default"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_the_cards_of_a_node() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let slice = |node: &str, report: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": node,
                "annotations": { tessera_api::node_report::ANNOTATION: report.to_string() },
            },
            "spec": {
                "driver": "cards.tessera.dev",
                "nodeName": node,
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
                "devices": [{ "name": "gpu-07-00" }, { "name": "gpu-0f-00" }],
            },
        })
    };
    let report = json!({
        "cards": { "0000:07:00.0": {}, "0000:0f:00.0": { "pool": "training" } },
        "links": [["0000:07:00.0", "0000:0f:00.0", 12]],
        "otherPairs": "SYS",
    });
    let slices = [slice("cli-cards-1", report), slice("cli-cards-2", json!({}))];
    cluster.apply(&slices.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, one) = run(&kubeconfig, &["topology", "cli-cards-1", "-o", "json"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        one["links"],
        json!([{ "cards": ["0000:07:00.0", "0000:0f:00.0"], "nvlinks": 12, "pcie": "SYS" }])
    );
    assert_eq!(one["cards"][1]["pool"], "training", "{said}");
    let (code, said, rows) =
        run(&kubeconfig, &["get", "devices", "--node", "cli-cards-1", "-o", "json"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(rows[0]["device"], "gpu-07-00", "{said}");
    assert_eq!(rows[1]["device"], "gpu-0f-00", "{said}");
    assert_eq!(rows.as_array().unwrap().len(), 2, "of this node alone: {said}");
    watches(cluster, &kubeconfig).await;
    let (code, said, _) = run(&kubeconfig, &["topology"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cli-cards-1") && said.contains("cli-cards-2"), "{said}");
}
