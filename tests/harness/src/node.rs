//! Nodes of the node tier: each is a machine with containerd and kubelet in their usual places.

mod configuration;
mod start;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub(crate) use start::{
    alive, boot, import_image, start_containerd, start_kubelet, stop_machine, wait_for_containerd,
};

use crate::host::Host;

/// A node of the node tier. Inside, its folders are at the usual paths (`/var/lib/kubelet`, `/run/cdi`,
/// `/var/log/pods`, …); the methods here return the same folders as seen from the test process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    pub(crate) name: String,
    pub(crate) index: u8,
    pub(crate) directory: PathBuf,
}

impl Node {
    /// The kubelet's directory, inside.
    pub const KUBELET_DIRECTORY: &str = "/var/lib/kubelet";
    /// The directory of CDI specs, inside.
    pub const CDI_DIRECTORY: &str = "/var/run/cdi";
    /// containerd's socket, inside.
    pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

    pub(crate) fn new(state: &Path, index: u8) -> Self {
        let name = format!("node-{}", char::from(b'a' + index));
        let directory = state.join(&name);
        Self { name, index, directory }
    }

    /// Its name in Kubernetes, and its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address inside the cluster.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.index, 2)
    }

    /// The control plane's end of the link to the node.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.index, 1)
    }

    /// First address of its pods' network, a /24.
    pub(crate) fn pod_network(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.index, 0)
    }

    /// Access to its namespaces: run programs there, send signals, connect to its addresses and sockets.
    pub fn host(&self) -> Host {
        Host::new(self.directory.join("control.sock"))
    }

    /// The directory with all of the node's files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// [`Node::KUBELET_DIRECTORY`] as seen from outside.
    pub fn kubelet_directory(&self) -> PathBuf {
        self.directory.join("var-lib/kubelet")
    }

    /// Folder of the sockets and files of DRA drivers.
    pub fn plugins_directory(&self) -> PathBuf {
        self.kubelet_directory().join("plugins")
    }

    /// Folder of the drivers' registration sockets.
    pub fn plugins_registry_directory(&self) -> PathBuf {
        self.kubelet_directory().join("plugins_registry")
    }

    /// [`Node::CDI_DIRECTORY`] as seen from outside.
    pub fn cdi_directory(&self) -> PathBuf {
        self.directory.join("run/cdi")
    }

    /// Logs of its containers.
    pub fn pod_logs_directory(&self) -> PathBuf {
        self.directory.join("var-log/pods")
    }
}
