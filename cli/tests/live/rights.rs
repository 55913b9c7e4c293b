use std::time::Duration;

use serde_json::{Value, json};
use tessera_harness::shared;

use crate::{LIMIT, run};

/// Someone who may read little is told what is missing, and gets what can be answered.
#[tokio::test(flavor = "multi_thread")]
async fn says_which_right_is_missing() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-rights").await.unwrap();
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "cli-rights" },
        "spec": {
            "driver": "rights.tessera.dev",
            "nodeName": "cli-rights",
            "pool": { "name": "cli-rights", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "only" }],
        },
    });
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "cli-rights" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"rights.tessera.dev\"" } }] },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cli-rights" } });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "mine", "namespace": "cli-rights" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "cli-rights" } }] } },
    });
    let role = |kind: &str, resources: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": "cli-rights", "namespace": if kind == "Role" { Some("cli-rights") } else { None } },
            "rules": [{ "apiGroups": ["", "resource.k8s.io"], "resources": resources, "verbs": ["list"] }],
        })
    };
    let binding = |kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": { "name": "cli-rights", "namespace": if kind == "Role" { Some("cli-rights") } else { None } },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "cli-rights" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" }],
        })
    };
    let documents = |all: &[Value]| all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&documents(&[namespace, slice, class, claim])).await.unwrap();
    // The administrator's file, acting for somebody else.
    let folder = tempfile::tempdir().unwrap();
    let reader = folder.path().join("reader.kubeconfig");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    config["users"][0]["user"]["as"] = "reader".into();
    std::fs::write(&reader, config.to_string()).unwrap();

    let explain = ["explain", "claim/mine", "-n", "cli-rights"];
    let (code, said, _) = run(&reader, &explain).await;
    assert_eq!(code, 2, "{said}");
    for part in
        ["you may not list resourceslices.resource.k8s.io", "ClusterRole", "User \"reader\" cannot list"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    let of_cluster = ["resourceslices", "deviceclasses"];
    let of_namespace = ["resourceclaims", "pods"];
    let roles = [role("ClusterRole", &of_cluster), role("Role", &of_namespace)];
    cluster
        .apply(&documents(&[&roles[..], &[binding("ClusterRole"), binding("Role")]].concat()))
        .await
        .unwrap();
    // The API server's authorizer reads its own cache.
    let end = std::time::Instant::now() + LIMIT;
    let said = loop {
        let (code, said, _) = run(&reader, &explain).await;
        if code == 0 && !said.contains("nor in namespace cli-rights: devices") {
            break said;
        }
        assert!(std::time::Instant::now() < end, "{said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for part in [
        "claim/mine: fits now",
        "cli-rights: only for card",
        "you may not list nodes in the whole cluster: the nodes are taken from the ResourceSlices",
        "devices held by claims outside namespace cli-rights count as free",
        "resourceclaimtemplates.resource.k8s.io, neither in the whole cluster nor in namespace cli-rights",
        "only pods in namespace cli-rights take room",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    // Of a selector alone, slices are all that is needed.
    let (code, said, _) = run(&reader, &["cel", "device.driver == 'rights.tessera.dev'"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("warning"), "{said}");
}
