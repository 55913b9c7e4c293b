//! `simulate` goes on from what a cluster holds.

use serde_json::{Value, json};
use tessera_harness::shared;

use crate::run;

const DRIVER: &str = "simulate.tessera.dev";

/// More than other tests have nodes with reports: of several drivers the one with most is simulated.
const NODES: [&str; 4] = ["cli-simulate-1", "cli-simulate-2", "cli-simulate-3", "cli-simulate-4"];

fn slice(node: &str) -> Value {
    let device = |name: &str| {
        json!({ "name": name, "attributes": {
            "type": { "string": "gpu" }, "productName": { "string": "NVIDIA H100" } } })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": node, "annotations": { tessera_api::node_report::ANNOTATION: "{}" } },
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 1 },
            "devices": [device("gpu-07-00"), device("gpu-0f-00")],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn goes_on_from_what_a_cluster_holds() {
    let cluster = shared::scheduler_tier().await.unwrap();
    for node in NODES {
        cluster.add_node_object(node).await.unwrap();
        cluster.apply(&slice(node).to_string()).await.unwrap();
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "cli-simulate", "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": DRIVER } }] } },
    });
    cluster.apply(&claim.to_string()).await.unwrap();
    let allocation = json!({ "status": { "allocation": { "devices": { "results": [{
        "request": "card", "driver": DRIVER, "pool": format!("{DRIVER}/{}", NODES[0]), "device": "gpu-07-00" }] } } } });
    let (what, how) = (["patch", "resourceclaim", "cli-simulate", "-n", "default"], "--subresource=status");
    let allocation = allocation.to_string();
    cluster.kubectl(&[&what[..], &[how, "--type=merge", "--patch", &allocation]].concat()).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.yaml");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "whole-node" },
        "spec": {
            "containers": [{ "name": "c", "image": "none" }],
            "resourceClaims": [{ "name": "cards", "resourceClaimTemplateName": "two" }],
        },
    });
    let template = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "two" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "cards", "exactly": { "deviceClassName": DRIVER, "count": 2 } }] } } },
    });
    std::fs::write(&file, format!("{pod}\n---\n{template}\n")).unwrap();
    let kubeconfig = cluster.kubeconfig();
    let command = ["simulate", "-f", file.to_str().unwrap(), "--policy", "tessera,first-fit"];
    let (code, said, report) =
        run(&kubeconfig, &[&command[..], &["--wish", "gpu,2xgpu", "-o", "json"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    let fleet = &report["fleets"][0];
    assert_eq!((&fleet["nodes"], &fleet["cards"]["NVIDIA H100"]), (&json!(4), &json!(8)), "{said}");
    assert_eq!(fleet["claimsHeldFromTheBeginning"], 1, "{said}");
    for policy in ["tessera", "first-fit"] {
        let found = &fleet["policies"][policy];
        let map = &found["map"]["nodes"];
        assert_eq!(map[NODES[0]][0]["held"][0]["pod"], "claim default/cli-simulate", "{said}");
        // On the only nodes that are whole.
        let holders = |card: usize| map[NODES[1]][card]["held"][0]["pod"].clone();
        assert_eq!([holders(0), holders(1)], ["whole-node", "whole-node"], "{policy}: {said}");
        assert_eq!(found["wishes"], json!({ "gpu": 5, "2xgpu": 2 }), "{policy}: {said}");
    }
}
