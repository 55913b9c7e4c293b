//! What the harness and `cluster-host` say to each other.
//!
//! `cluster-host` is the one program that runs inside a cluster's namespaces. It knows nothing of Kubernetes: it makes
//! the namespaces, starts and signals processes, sets up links and routes, and passes connections through. The harness
//! decides what runs and in which order.
//!
//! ```text
//! test process ──pipe──> supervise ──> init (pid 1) ──> host ──> etcd, kube-apiserver, …
//!      │                  (cleans up)                    ├──> machine ──> init (pid 1) ──> host ──> containerd, kubelet
//!      └────── unix sockets: one request a connection ───┴────────────────────────────────┘
//! ```
//!
//! The pipe is what ties the cluster to the test process: when its other end closes, for whatever reason, `supervise`
//! kills pid 1 of the cluster's process namespace, and the kernel every process, mount and link with it.

mod client;
mod executable;
mod protocol;

pub use client::{Host, HostError, Output};
pub use executable::{HostExecutableError, host_executable};
pub use protocol::{
    Address, Channel, CommandLine, Exit, HostConfiguration, Link, MachineConfiguration, NetworkConfiguration,
    ProcessState, RELEASE, Request, Response, Route, SupervisorConfiguration, Target,
};
