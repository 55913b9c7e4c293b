use std::time::Duration;

use kube::CustomResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tessera_api::gpu_quota::{GpuQuota, GpuQuotaSpec};
use tessera_harness::{Cluster, shared};

use crate::run;

/// Waits until the kind's objects can be listed.
async fn until_served(cluster: &Cluster, kind: &str) {
    for _ in 0..600 {
        if cluster.kubectl(&["get", kind]).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{kind} is not served");
}

/// What `doctor` says to somebody who may read devices and nothing of Kueue.
async fn doctor_of_devices_alone(cluster: &Cluster) -> String {
    let group = "rbac.authorization.k8s.io";
    let named = |kind: &str| json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "cli-devices" } });
    let mut role = named("ClusterRole");
    role["rules"] = json!([{ "apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["list"] }]);
    let mut binding = named("ClusterRoleBinding");
    binding["roleRef"] = json!({ "apiGroup": group, "kind": "ClusterRole", "name": "cli-devices" });
    binding["subjects"] = json!([{ "apiGroup": group, "kind": "User", "name": "cli-devices" }]);
    cluster.apply(&format!("{role}\n---\n{binding}")).await.unwrap();
    // The administrator's file, acting for somebody else.
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    config["users"][0]["user"]["as"] = "cli-devices".into();
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    // The API server's authorizer reads its own cache.
    for _ in 0..600 {
        let (code, said, _) = run(&kubeconfig, &["doctor"]).await;
        if code != 2 {
            return said;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the role is without effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn says_what_is_known_of_quotas() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, _) = run(&kubeconfig, &["quota"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("the CustomResourceDefinition gpuquotas.gpu.tessera.dev is not installed"),
        "{said}"
    );

    cluster.apply(&serde_json::to_string(&GpuQuota::crd()).unwrap()).await.unwrap();
    until_served(cluster, "gpuquotas.gpu.tessera.dev").await;
    let quotas: kube::Api<GpuQuota> = kube::Api::all(cluster.client().await.unwrap());
    let spec = GpuQuotaSpec::decode(&json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
        "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": 2 }],
    }));
    let made =
        quotas.create(&PostParams::default(), &GpuQuota::new("cli-quota", spec.unwrap())).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["quota"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cli-quota") && said.contains("no controller has written a status"), "{said}");

    let status = json!({ "status": {
        "observedGeneration": made.metadata.generation,
        "amounts": [{ "name": "cards", "guaranteed": "2.00", "used": "1.50", "borrowed": "0.00", "lent": "0.50" }],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "InForce", "message": "holds for 1 namespace",
            "lastTransitionTime": "2026-11-20T10:00:00Z" }],
    } });
    quotas.patch_status("cli-quota", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["quota", "cli-quota"]).await;
    assert_eq!(code, 0, "{said}");
    for part in ["cli-quota: InForce", "holds for 1 namespace", "1.50", "0.50"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    let twice = "Kueue's (train), and the one of GpuQuota cli-quota";
    let (_, said, _) = run(&kubeconfig, &["doctor"]).await;
    assert!(!said.contains(twice), "{said}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "localqueues.kueue.x-k8s.io",
            "annotations": { "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue" } },
        "spec": {
            "group": "kueue.x-k8s.io", "scope": "Namespaced",
            "names": { "plural": "localqueues", "singular": "localqueue", "kind": "LocalQueue", "listKind": "LocalQueueList" },
            "versions": [{ "name": "v1beta2", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    cluster.apply(&definition.to_string()).await.unwrap();
    until_served(cluster, "localqueues.kueue.x-k8s.io").await;
    let queue = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": "train", "namespace": "default" } });
    cluster.apply(&queue.to_string()).await.unwrap();
    let (_, said, _) = run(&kubeconfig, &["doctor"]).await;
    assert!(said.contains(twice), "{said}");
    assert!(!said.contains("you may not"), "{said}");
    let said = doctor_of_devices_alone(&cluster).await;
    for part in [
        "you may not list localqueues.kueue.x-k8s.io in the whole cluster: namespaces whose jobs both",
        "you may not get configmaps in namespace kueue-system: Kueue's settings",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    // An account that is a quota stands for its only namespace.
    let labelled = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "team": "cli" } } });
    cluster.apply(&labelled("cli-account-one").to_string()).await.unwrap();
    let spec = GpuQuotaSpec::decode(&json!({ "namespaceSelector": { "matchLabels": { "team": "cli" } } }));
    quotas.create(&PostParams::default(), &GpuQuota::new("cli-account", spec.unwrap())).await.unwrap();
    let submit = ["run", "-A", "cli-account", "--detach", "--image=none", "--wrap=true"];
    let (code, said, _) = run(&kubeconfig, &submit).await;
    assert_eq!((code, said.as_str()), (0, "job cli-account-one/wrap is submitted\n"));
    cluster.apply(&labelled("cli-account-two").to_string()).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &submit).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("give one of cli-account-one, cli-account-two"), "{said}");
}
