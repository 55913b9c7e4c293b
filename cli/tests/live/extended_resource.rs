use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};
use tessera_harness::{PodState, shared};

use crate::{LIMIT, run};

/// A pod that asks for `cli.example.com/card: 2` as it asks for CPU: what is foretold is the claim that kube-scheduler
/// makes.
#[tokio::test(flavor = "multi_thread")]
async fn foretells_the_claim_of_an_extended_resource() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-extended").await.unwrap();
    let devices: Vec<Value> = (1..=3).map(|index| json!({ "name": format!("card-{index}") })).collect();
    let documents = [
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": "cli-extended" },
            "spec": {
                "driver": "extended.tessera.dev",
                "nodeName": "cli-extended",
                "pool": { "name": "cli-extended", "generation": 1, "resourceSliceCount": 1 },
                "devices": devices,
            },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": { "name": "cli-extended" },
            "spec": {
                "extendedResourceName": "cli.example.com/card",
                "selectors": [{ "cel": { "expression": "device.driver == \"extended.tessera.dev\"" } }],
            },
        }),
    ];
    let text = documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&text).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let pod = |name: &str, count: u32| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "containers": [
                { "name": "a", "image": "none", "resources": { "limits": { "cli.example.com/card": count.to_string() } } },
            ] },
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.json");
    std::fs::write(&file, pod("extended", 2).to_string()).unwrap();
    let arguments = ["allocate", "pod/extended", "-o", "json", "-f", file.to_str().unwrap()];
    let (code, said, foretold) = run(&kubeconfig, &arguments).await;
    assert_eq!(code, 0, "{said}");
    let nodes = foretold[0]["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["node"] == "cli-extended").unwrap();
    let foretold = node["claims"][0]["allocation"].clone();

    cluster.apply(&std::fs::read_to_string(&file).unwrap()).await.unwrap();
    cluster.wait_for_pod("default", "extended", PodState::Scheduled, LIMIT).await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
    let status = pods.get("extended").await.unwrap().status.unwrap();
    let made =
        status.extended_resource_claim_status.expect("kube-scheduler made a claim").resource_claim_name;
    let claims: kube::Api<ResourceClaim> = kube::Api::default_namespaced(client);
    let real = claims.get(&made).await.unwrap().status.unwrap().allocation.unwrap();
    let mut real = serde_json::to_value(real).unwrap();
    real.as_object_mut().unwrap().remove("allocationTimestamp");
    assert_eq!(foretold, real, "kube-scheduler did something else");

    let (code, said, _) = run(&kubeconfig, &["explain", "pod/extended"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("has its devices") && said.contains("card-1") && said.contains("card-2"), "{said}");

    // One is left. A name nobody provides is told.
    std::fs::write(&file, pod("extended-more", 2).to_string()).unwrap();
    let (code, said, _) =
        run(&kubeconfig, &["explain", "pod/extended-more", "-f", file.to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    for part in ["wants 2 of class cli-extended: 1 of 3 devices free", "(pod extended) ends: cli-extended"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let unknown =
        pod("extended-unknown", 1).to_string().replace("cli.example.com/card", "cli.example.com/cord");
    std::fs::write(&file, unknown).unwrap();
    let (code, said, _) =
        run(&kubeconfig, &["explain", "pod/extended-unknown", "-f", file.to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("did you mean cli.example.com/card?"), "{said}");
}
