use kube::CustomResourceExt as _;
use serde_json::json;
use tessera_api::gpu_pool::{GpuPool, GpuPoolSpec};
use tessera_harness::shared;

use crate::run;

#[tokio::test(flavor = "multi_thread")]
async fn says_what_is_known_of_pools() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, _) = run(&kubeconfig, &["pools"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("the CustomResourceDefinition gpupools.gpu.tessera.dev is not installed"),
        "{said}"
    );

    cluster.apply(&serde_json::to_string(&GpuPool::crd()).unwrap()).await.unwrap();
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/gpupools.gpu.tessera.dev"]).await.unwrap();
    let pools: kube::Api<GpuPool> = kube::Api::all(cluster.client().await.unwrap());
    let pool = GpuPool::new("cli-pool", GpuPoolSpec { priority: 7, ..GpuPoolSpec::default() });
    let made = pools.create(&kube::api::PostParams::default(), &pool).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["pools"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cli-pool") && said.contains("no controller has written a status"), "{said}");

    let status = json!({ "status": {
        "observedGeneration": made.metadata.generation,
        "nodes": 1, "cards": 4, "offered": 4, "allocated": "1.50", "unallocatable": "0.00",
        "conditions": [{ "type": "Ready", "status": "True", "reason": "AsWanted",
            "message": "decides on 4 cards of 1 node", "lastTransitionTime": "2026-11-20T10:00:00Z" }],
    } });
    let parameters = kube::api::PatchParams::default();
    pools.patch_status("cli-pool", &parameters, &kube::api::Patch::Merge(&status)).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["pools", "cli-pool"]).await;
    assert_eq!(code, 0, "{said}");
    for part in
        ["cli-pool: AsWanted", "priority 7", "4 cards: 1.50 allocated", "no node reports cards of this pool"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let changed = json!({ "spec": { "priority": 8 } });
    pools.patch("cli-pool", &parameters, &kube::api::Patch::Merge(&changed)).await.unwrap();
    let (code, said, listed) = run(&kubeconfig, &["pools", "-o", "json"]).await;
    assert_eq!(code, 1, "{said}");
    assert_eq!(listed[0]["known"], json!({ "status": "old", "observed": 1, "generation": 2 }), "{said}");
}
