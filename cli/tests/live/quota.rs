use std::time::Duration;

use kube::CustomResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
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
