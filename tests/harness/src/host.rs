//! The protocol between the harness and `cluster-host`.
//!
//! `cluster-host` is the only program of ours inside a cluster's namespaces. It knows nothing of Kubernetes: it creates
//! the namespaces, starts and signals processes, sets up links and routes, and forwards connections. The harness
//! decides on the processes and their order.
//!
//! ```text
//! test process ──pipe──> supervise ──> init (pid 1) ──> host ──> etcd, kube-apiserver, …
//!      │                  (cleans up)                    ├──> machine ──> init (pid 1) ──> host ──> containerd, kubelet
//!      └────── unix sockets: one request a connection ───┴────────────────────────────────┘
//! ```
//!
//! The pipe ties the cluster to the test process: when its other end closes, for any reason, `supervise`
//! kills pid 1 of the cluster's process namespace, and the kernel then removes every process, mount and link.

mod client;
mod executable;
mod protocol;

pub use client::{Host, HostError, Output};
pub use executable::{HostExecutableError, host_executable};
pub use protocol::{
    Address, Channel, CommandLine, Exit, HostConfiguration, Link, MachineConfiguration, NetworkConfiguration,
    ProcessState, RELEASE, Request, Response, Route, SupervisorConfiguration, Target,
};
