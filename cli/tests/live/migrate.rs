use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tessera_harness::shared;

use crate::run;

/// A release as helm keeps it, in the cluster; and for somebody who may not read Secrets.
#[tokio::test(flavor = "multi_thread")]
async fn reads_what_helm_was_told_where_it_may() {
    const NAMESPACE: &str = "cli-migrate";
    let cluster = shared::scheduler_tier().await.unwrap();
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate/device-plugin-release.json");
    let mut release: Value = serde_json::from_str(&std::fs::read_to_string(release).unwrap()).unwrap();
    release["namespace"] = NAMESPACE.into();
    release["config"]["config"] = json!({ "name": "sharing" });
    // Not packed, as the first versions of helm 3 wrote it.
    let data = STANDARD.encode(STANDARD.encode(release.to_string()));
    let labels = json!({ "owner": "helm", "status": "deployed", "name": "nvdp", "version": "1" });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": { "release": data },
            "metadata": { "name": "sh.helm.release.v1.nvdp.v1", "namespace": NAMESPACE, "labels": labels } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "sharing", "namespace": NAMESPACE },
            "data": { "any": "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}" } }),
    ];
    cluster.apply(&objects.map(|object| object.to_string()).join("\n---\n")).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let migrate = ["migrate", "--from", "device-plugin", "-n", NAMESPACE, "-o", "json"];
    let (code, said, plan) = run(&kubeconfig, &migrate).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(plan["pools"][0]["spec"]["offer"]["sharing"]["timeSlicing"]["replicas"], 3, "{said}");
    assert_eq!(plan["found"][1], "ConfigMap cli-migrate/sharing", "{said}");

    // The administrator's file, acting for somebody who may list these alone.
    let rights = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": NAMESPACE }, "rules": [{ "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices", "deviceclasses"], "verbs": ["list"] }] });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": NAMESPACE },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAMESPACE },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NAMESPACE }] });
    cluster.apply(&format!("{rights}\n---\n{binding}")).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let reader = folder.path().join("reader.kubeconfig");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"]["as"] = NAMESPACE.into();
    std::fs::write(&reader, config.to_string()).unwrap();
    // The API server's authorizer reads its own cache.
    let end = std::time::Instant::now() + crate::LIMIT;
    let said = loop {
        let (code, said, _) = run(&reader, &migrate).await;
        assert_eq!(code, 2, "{said}");
        if !said.contains("and this command needs them") {
            break said;
        }
        assert!(std::time::Instant::now() < end, "{said}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    // In the end nothing was found; what could not be read is said before.
    for part in [
        "you may not list secrets in the whole cluster: the helm values are unknown",
        "you may not list daemonsets.apps in the whole cluster",
        "error: NVIDIA's device plugin was not found",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}
