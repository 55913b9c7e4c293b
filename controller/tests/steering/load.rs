//! Pools and pods that change at the same time, on twenty nodes with real plugins.

mod outcome;
mod pools;
mod workloads;

use std::sync::atomic::{AtomicBool, Ordering};

use tessera_harness::Cluster;

use crate::instance::Instance;
use crate::{fleet, plugins, pods};
use outcome::Outcome;

const NODES: usize = 20;

/// Whatever happens in between, at the end every pod is bound or told why it is not, nobody waits for what is free, and
/// pools say what is.
#[tokio::test(flavor = "multi_thread")]
async fn everything_changes_at_once_and_comes_to_rest() {
    let turn = fleet::cluster(&[1, 2, plugins::CARDS]).await;
    let cluster: &Cluster = &turn;
    pools::steered(cluster, "main", 0, None).await;
    let _nodes = plugins::start(cluster, NODES).await;
    let replicas = ["one", "two"].map(|name| (name, Instance::start(&cluster.kubeconfig(), name)));
    pools::until_cards_are_in(cluster, "every card in main", |_, pool| pool == "main").await;

    let stop = AtomicBool::new(false);
    let changes = async {
        pools::conflict(cluster).await;
        let leader = leader(cluster).await;
        let [one, two] = replicas;
        let (killed, other) = if one.0 == leader { (one.1, two) } else { (two.1, one) };
        killed.kill();
        pools::fail_and_become_unreadable(cluster).await;
        assert_eq!(self::leader(cluster).await, other.0, "somebody writes, who is not the killed one");
        pools::back_to_rest(cluster).await;
        stop.store(true, Ordering::Relaxed);
        other.1
    };
    let (controller, ()) = tokio::join!(changes, workloads::come_and_go(cluster, &stop));

    // More than there is room for.
    workloads::job(cluster, "last", NODES, plugins::CARDS).await;
    let outcome = Outcome::at_rest(cluster).await;
    assert!(outcome.waiting > 0, "{outcome:?}");
    pools::say(cluster, &outcome).await;

    // Nothing that came and went still counts as taken.
    fleet::delete_workloads(cluster).await;
    workloads::job(cluster, "all", NODES, plugins::CARDS).await;
    pods::nodes_of_app(cluster, "all", NODES).await;
    controller.terminate();
}

/// Who holds the Lease.
async fn leader(cluster: &Cluster) -> String {
    let holder = ["get", "lease", "tessera-controller", "-o", "jsonpath={.spec.holderIdentity}"];
    cluster.kubectl(&holder).await.unwrap()
}
