//! Common parts of tests on a cluster with Tessera: a namespace for each, timeouts, and containers' reports.

mod container_view;
mod patience;
mod rights;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;

pub use container_view::{ContainerView, DeviceNode, hold_and_view};
pub use patience::{LIMIT, eventually};
pub use rights::each_right_is_used;

use crate::{Cluster, ClusterError, installation};

/// Runs `test` in its own namespace and deletes the namespace afterwards, also after a panic; then the cluster's logs are kept,
/// and the namespace's objects are printed.
///
/// # Errors
/// The namespace cannot be created or deleted.
///
/// # Panics
/// With the test's own panic.
pub async fn in_namespace(
    cluster: &Cluster,
    namespace: &str,
    test: impl Future<Output = ()>,
) -> Result<(), ClusterError> {
    cluster.create_namespace(namespace).await?;
    let outcome = AssertUnwindSafe(test).catch_unwind().await;
    if outcome.is_err() {
        cluster.keep_logs();
        explain(cluster, namespace).await;
    }
    let gone = cluster.delete_namespace(namespace).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    gone
}

async fn explain(cluster: &Cluster, namespace: &str) {
    let views: [&[&str]; 2] = [
        &["get", "pods,resourceclaims,events", "-n", namespace, "-o", "wide"],
        &["logs", "-n", installation::NAMESPACE, "-l", installation::PLUGIN_SELECTOR, "--tail", "40"],
    ];
    for view in views {
        let output = cluster.try_kubectl(view).await.map(|output| output.stdout + &output.stderr);
        eprintln!("kubectl {}:\n{}", view.join(" "), output.unwrap_or_else(|error| error.to_string()));
    }
}
