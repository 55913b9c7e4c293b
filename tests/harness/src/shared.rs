//! One cluster for all tests of a test program, to save the start of one for each.
//!
//! Tests with a shared cluster use their own names (or namespaces), and break nothing needed by others. The cluster
//! ends with the program.

use tokio::sync::OnceCell;

use crate::{Cluster, ClusterError, ClusterOptions};

static SCHEDULER: OnceCell<Cluster> = OnceCell::const_new();
static NODE: OnceCell<Cluster> = OnceCell::const_new();

/// The program's cluster of the scheduler tier, without nodes: add your own with [`Cluster::add_node_object`].
///
/// # Errors
/// As [`Cluster::start`]; the next caller tries again.
pub async fn scheduler_tier() -> Result<&'static Cluster, ClusterError> {
    SCHEDULER.get_or_try_init(|| Cluster::start(ClusterOptions::scheduler_tier(0))).await
}

/// The program's cluster of the node tier, with one node.
///
/// # Errors
/// As [`Cluster::start`]; the next caller tries again.
pub async fn node_tier() -> Result<&'static Cluster, ClusterError> {
    NODE.get_or_try_init(|| Cluster::start(ClusterOptions::node_tier(1))).await
}
