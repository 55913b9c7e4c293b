//! Against a real control plane: `allocate` foretells what kube-scheduler then does, `explain` says why a pod waits and
//! why a claim got its device.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};
use tessera_tests::{PodState, shared};

const LIMIT: Duration = Duration::from_secs(60);

async fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, Value) {
    let output: Output = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let said = format!("{text}{}", String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said, value)
}

fn slice(node: &str) -> Value {
    let device =
        |name: &str, memory: u32| json!({ "name": name, "attributes": { "memoryMiB": { "int": memory } } });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "cli-live" },
        "spec": {
            "driver": "cli.tessera.dev",
            "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [device("small", 16000), device("large-1", 80000), device("large-2", 80000)],
        },
    })
}

fn claim(name: &str, count: u32) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": {
            "deviceClassName": "cli-live",
            "count": count,
            "selectors": [{ "cel": {
                "expression": "device.attributes[\"cli.tessera.dev\"].memoryMiB >= 40000",
            } }],
        } }] } },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn foretells_and_explains_what_the_scheduler_does() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-live").await.unwrap();
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "cli-live" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"cli.tessera.dev\"" } }] },
    });
    let documents = |all: &[Value]| all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&documents(&[slice("cli-live"), class])).await.unwrap();
    let kubeconfig = cluster.kubeconfig();

    // Before anything is created: claim and pod from a file, the rest from the cluster.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.yaml");
    std::fs::write(&file, documents(&[claim("first", 1), pod("first")])).unwrap();
    let arguments = ["allocate", "pod/first", "-o", "json", "-f", file.to_str().unwrap()];
    let (code, said, foretold) = run(&kubeconfig, &arguments).await;
    assert_eq!(code, 0, "{said}");
    let foretold = &foretold[0]["nodes"][0]["claims"][0]["allocation"];
    assert_eq!(foretold["devices"]["results"][0]["device"], "large-1", "{said}");

    cluster.apply(&std::fs::read_to_string(&file).unwrap()).await.unwrap();
    cluster.wait_for_pod("default", "first", PodState::Scheduled, LIMIT).await.unwrap();
    let claims: kube::Api<ResourceClaim> = kube::Api::default_namespaced(cluster.client().await.unwrap());
    let real = claims.get("first").await.unwrap().status.unwrap().allocation.unwrap();
    let mut real = serde_json::to_value(real).unwrap();
    // The scheduler adds the time, which no dry run can know.
    real.as_object_mut().unwrap().remove("allocationTimestamp");
    assert_eq!(*foretold, real, "kube-scheduler did something else");

    let (code, said, _) = run(&kubeconfig, &["explain", "claim/first"]).await;
    assert_eq!(code, 0, "{said}");
    for part in ["has its devices", "for pod/first", "large-1", "memoryMiB >= 40000", "the same devices"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    // One card is left, two are asked for.
    cluster.apply(&documents(&[claim("second", 2), pod("second")])).await.unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::default_namespaced(cluster.client().await.unwrap());
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let conditions = pods.get("second").await.unwrap().status.unwrap().conditions.unwrap_or_default();
        if conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable")) {
            break;
        }
        assert!(std::time::Instant::now() < end, "kube-scheduler never said that it does not fit");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (code, said, _) = run(&kubeconfig, &["allocate", "pod/second"]).await;
    assert_eq!(code, 1, "{said}");
    let (code, said, _) = run(&kubeconfig, &["explain", "pod/second"]).await;
    assert_eq!(code, 1, "{said}");
    for part in [
        "wants 2 of class cli-live: 1 of 3 devices free",
        "in use by default/first",
        "claim default/first (pod first) ends: cli-live",
        "asks for 1 instead of 2",
        "kube-scheduler says: ",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    println!("{said}");

    let (code, said, _) =
        run(&kubeconfig, &["cel", "device.attributes['cli.tessera.dev'].memoryMiB > 20000"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("2 of 3 devices match"), "{said}");
}
