//! The chart's default way to the device nodes, on a real kubelet.

use k8s_openapi::api::core::v1::Pod;
use tessera_harness::{
    Cluster, ClusterOptions,
    installation::{Installation, InstallationOptions},
    skip,
};
use tokio::time::Instant;

use crate::support::LONG;

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The whole-install tests emulate cards, for which the chart asks for no privileges. This one uses the pod for real
/// cards: privileged, with the node's `/dev`, and a read-only root file system.
#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_runs_as_real_cards_need_it() {
    if !skip::node_tier("the_plugin_runs_as_real_cards_need_it") {
        return;
    }
    let options = ClusterOptions { helm: true, ..ClusterOptions::node_tier(1) };
    let cluster = Cluster::start(options).await.expect("a cluster");
    let values = vec!["deviceAccess=privileged".to_owned()];
    let options = InstallationOptions { values, ..InstallationOptions::default() };
    let installation = Installation::install(&cluster, &options).await.expect("installed");
    let begin = Instant::now();
    let pod = loop {
        let pods = installation.plugin_pods(&cluster, cluster.node(0).name()).await.expect("listed");
        match pods.into_iter().next() {
            Some(pod) if is_ready(&pod) => break pod,
            pod => assert!(begin.elapsed() < LONG, "not ready: {:?}", pod.and_then(|pod| pod.status)),
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let container = &pod.spec.expect("a spec").containers[0];
    assert_eq!(container.security_context.as_ref().and_then(|context| context.privileged), Some(true));
    cluster.shutdown().await.expect("ended");
}
