use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tessera_api::GpuPoolSpec;
use tessera_api::gpu_pool::{Allocation, GpuPool, Placement, TopologyPolicy};

use crate::fleet;
use crate::instance::Instance;
use crate::pods;

async fn ready(pools: &Api<GpuPool>, name: &str, expected: &str) -> GpuPool {
    let end = Instant::now() + pods::LIMIT;
    loop {
        let pool = pools.get(name).await.unwrap();
        let status = pool.status.clone().unwrap_or_default();
        if status.conditions.iter().any(|condition| condition.reason == expected) {
            return pool;
        }
        assert!(Instant::now() < end, "{name} is not {expected}: {status:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The controller says how pools are, and the API server refuses what is not there yet.
#[tokio::test(flavor = "multi_thread")]
async fn pools_say_how_they_are() {
    let cluster = fleet::start(2, 4).await;
    let pools: Api<GpuPool> = Api::all(cluster.client().await.unwrap());
    let spec = GpuPoolSpec { allocation: Allocation::Steered, ..GpuPoolSpec::default() };
    pools.create(&PostParams::default(), &GpuPool::new("main", spec.clone())).await.unwrap();
    pools.create(&PostParams::default(), &GpuPool::new("other", spec.clone())).await.unwrap();
    let placement = Placement { topology: TopologyPolicy::Required, ..Placement::default() };
    let settles = GpuPoolSpec { placement, ..spec.clone() };
    let refused = pools.create(&PostParams::default(), &GpuPool::new("settles", settles)).await.unwrap_err();
    assert!(refused.to_string().contains("needs allocation Managed"), "{refused}");
    let long = GpuPool::new(&"p".repeat(64), GpuPoolSpec::default());
    assert!(pools.create(&PostParams::default(), &long).await.is_err());

    let controller = Instance::start(&cluster.kubeconfig(), "only");
    pods::run(&cluster, "one", 1).await;
    cluster.create_pod(pods::pod("all", 4)).await.unwrap();
    pods::node(&cluster, "all").await;
    cluster.create_pod(pods::pod("late", 4)).await.unwrap();
    let end = Instant::now() + pods::LIMIT;
    loop {
        let status = ready(&pools, "main", "AsWanted").await.status.unwrap();
        assert_eq!((status.nodes, status.cards, status.offered), (2, 8, 8));
        if status.allocated == "5.00" && status.unmet_demand.len() == 1 {
            assert_eq!((status.unmet_demand[0].shape.as_str(), status.unmet_demand[0].pods), ("4 x gpu", 1));
            break;
        }
        assert!(Instant::now() < end, "{status:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ready(&pools, "other", "NothingSelected").await;
    cluster.delete_pod("default", "late").await.unwrap();
    while !pools.get("main").await.unwrap().status.unwrap().unmet_demand.is_empty() {
        assert!(Instant::now() < end, "demand that is gone is still told");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let table = cluster.kubectl(&["get", "gpool"]).await.unwrap();
    assert!(table.contains("UNALLOCATABLE") && table.contains("AsWanted"), "{table}");
    pools.delete("other", &DeleteParams::default()).await.unwrap();
    controller.terminate();
}
