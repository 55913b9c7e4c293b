//! A real Kubernetes cluster on one machine, for tests, the demo and development.
//!
//! ```no_run
//! # async fn example() -> Result<(), tessera_harness::ClusterError> {
//! use std::time::Duration;
//!
//! use tessera_harness::{Cluster, ClusterOptions, PodState, TEST_IMAGE};
//!
//! let cluster = Cluster::start(ClusterOptions::node_tier(1)).await?;
//! cluster
//!     .create_pod(serde_json::json!({
//!         "apiVersion": "v1",
//!         "kind": "Pod",
//!         "metadata": { "name": "first" },
//!         "spec": { "containers": [{ "name": "c", "image": TEST_IMAGE, "command": ["/bin/hold", "view"] }] },
//!     }))
//!     .await?;
//! cluster.wait_for_pod("default", "first", PodState::Ready, Duration::from_secs(30)).await?;
//! println!("{}", cluster.logs_of("default", "first", None).await?);
//! # Ok(())
//! # }
//! ```
//!
//! - **Tiers.** [`Tier::Scheduler`]: a real control plane on the loopback, nodes are API objects; no root. [`Tier::Node`]:
//!   real kubelets and containerd, each node a machine of its own (process, mount, network and cgroup namespaces) with
//!   everything in its usual place (`/var/lib/kubelet`, `/var/run/cdi`, …).
//! - **Lifetime.** A cluster ends when its [`Cluster`] is dropped or the process ends, for any reason, and leaves no
//!   process, mount, link, cgroup, kernel parameter or file. After a panic its logs are kept, and their path is printed.
//! - **Access.** The API server listens on this machine's loopback too ([`Cluster::kubeconfig`], [`Cluster::client`]).
//!   Pods reach the server as `https://10.96.0.1`. [`Node`] has each node's folders with the test's paths, and [`Node::host`]
//!   gives access to the inside: run programs, send signals, connect to its addresses and sockets.
//! - **Programs.** All come from Go modules in `tests/harness/tools/`, built once into the cache ([`cache`]). Kubernetes is there in
//!   three minor versions ([`KubernetesVersion`]); the tests run on the newest.

mod certificates;
mod cluster;
mod control_plane;
pub mod host;
mod image;
pub mod installation;
pub mod kubelet_stand_in;
mod node;
pub mod node_stand_in;
pub mod progress;
pub mod promql;
pub mod scene;
pub mod shared;
pub mod skip;
pub mod strangers;
mod timings;
pub mod tools;
pub mod workload_controllers;

pub use cluster::{
    Cluster, ClusterError, ClusterOptions, ClusterRecord, CommandOutput, Component, ExtraFlags,
    KubernetesVersion, PodState, Tier, Unavailable,
};
pub use image::{
    Architecture, CUDA_SAMPLE_IMAGE, Image, ImageError, TEST_IMAGE, Written, gpu_emulator_image,
    write_archive, write_layout, write_test_image,
};
pub use node::Node;
pub use tessera_workspace::{self as workspace, cache};
pub use timings::Timings;

/// Prefix of the names of clusters' directories.
pub const STATE_PREFIX: &str = "tessera-";
