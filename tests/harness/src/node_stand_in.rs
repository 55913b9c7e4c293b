//! A node of the scheduler tier with real Tessera parts only: an emulated machine, and the plugin's own program
//! with the arguments, environment, files and rights of the chart's pod there. Only kubelet and containers are
//! missing; the [`KubeletStandIn`] does a kubelet's work on the claims of bound pods.

mod plugin_pod;
mod pods;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use thiserror::Error;

pub use pods::{PodsOfNode, PreparedPod};

use crate::{
    Cluster, ClusterError,
    host::{CommandLine, Host, HostError},
    installation::{DRIVER, Installation, InstallationError},
    kubelet_stand_in::{KubeletStandIn, Plugin, StandInError},
};

/// The machine of a node.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Hardware of the machine (`gpu-emulator hardware` lists the names).
    pub hardware: String,
    /// Number of cards, if not the hardware's own.
    pub cards: Option<usize>,
    /// Whether all cards are in MIG mode before anything runs, as an administrator sets them up: on Ampere the mode
    /// takes effect with a reset of the card, and stays.
    pub mig_mode: bool,
}

/// Why a stand-in for a node does not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeStandInError {
    /// An error of the cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The emulated machine cannot be made.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// An error of the API.
    #[error("the Kubernetes API: {0}")]
    Api(#[from] kube::Error),
    /// The plugin cannot be started.
    #[error("cannot start the kubelet plugin: {0}")]
    Host(#[from] HostError),
    /// The plugin does not answer.
    #[error("the kubelet plugin (its log is {log}): {source}", log = log.display())]
    Plugin {
        /// The plugin's log.
        log: PathBuf,
        /// The error.
        source: StandInError,
    },
    /// The DaemonSet's pod differs from the chart's.
    #[error("the kubelet plugin's pod of node {node}: {what}")]
    Pod {
        /// The node.
        node: String,
        /// The missing part.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A node with a running plugin.
#[derive(Debug)]
pub struct NodeStandIn {
    name: String,
    directory: PathBuf,
    machine: PathBuf,
    emulator: PathBuf,
    plugin: Plugin,
    process: String,
    command: CommandLine,
    log: PathBuf,
    host: Host,
}

impl NodeStandIn {
    /// Makes the machine of a node without kubelet (an API object), runs the plugin for the DaemonSet's pod on the node, and
    /// registers the plugin like a kubelet. The plugin publishes once registered.
    ///
    /// # Errors
    /// See [`NodeStandInError`].
    pub async fn start(
        cluster: &Cluster,
        tessera: &Installation,
        node: &str,
        machine: &Machine,
    ) -> Result<Self, NodeStandInError> {
        let directory = cluster.state().join(node);
        let root = directory.join("gpus");
        make_machine(tessera, &root, node, machine)?;
        let pod = plugin_pod::wait(cluster, tessera, node).await?;
        let command = plugin_pod::command(cluster, tessera, &pod, &directory, &root).await?;
        let process = format!("kubelet-plugin-{node}");
        let log = cluster.logs().join(format!("{process}.log"));
        let host = cluster.control_plane();
        host.spawn(&process, command.clone(), log.clone()).await?;
        let plugin = register(&directory, &log).await?;
        let (name, emulator) = (node.to_owned(), tessera.program("gpu-emulator"));
        Ok(Self { name, directory, machine: root, emulator, plugin, process, command, log, host })
    }

    /// Stops the plugin, starts it again and registers it, like a kubelet after a container's end. The new connection does not
    /// serve earlier pods: serve them anew.
    ///
    /// # Errors
    /// See [`NodeStandInError`].
    pub async fn restart(&mut self) -> Result<(), NodeStandInError> {
        self.stop().await?;
        self.host.spawn(&self.process, self.command.clone(), self.log.clone()).await?;
        self.plugin = register(&self.directory, &self.log).await?;
        Ok(())
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The registered plugin.
    #[must_use]
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// The emulated machine's directory.
    #[must_use]
    pub fn machine(&self) -> &Path {
        &self.machine
    }

    /// The directory of CDI specs.
    #[must_use]
    pub fn cdi_directory(&self) -> PathBuf {
        cdi_directory(&self.directory)
    }

    /// Names of the journal's records of a kind (`claims`, `hardware`), in order.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn journal(&self, kind: &str) -> Result<Vec<String>, NodeStandInError> {
        let journal = kubelet_directory(&self.directory).join("plugins").join(DRIVER).join("journal");
        names(&journal.join(kind))
    }

    /// The CDI specs on the disk.
    ///
    /// # Errors
    /// They cannot be read, or are not JSON.
    pub fn specs(&self) -> Result<Vec<Value>, NodeStandInError> {
        specs(&self.cdi_directory())
    }

    /// The current state of the machine, from `gpu-emulator show -o json`.
    ///
    /// # Errors
    /// The emulator fails.
    pub fn show(&self) -> Result<Value, NodeStandInError> {
        let failed = |source| NodeStandInError::File { path: self.machine.clone(), source };
        let output = Command::new(&self.emulator)
            .args(["show", "-o", "json"])
            .arg(&self.machine)
            .output()
            .map_err(failed)?;
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.into()))
    }

    /// Stops the plugin as a kubelet stops a container.
    ///
    /// # Errors
    /// The plugin was never started.
    pub async fn stop(&self) -> Result<(), NodeStandInError> {
        self.host.stop(&self.process, Duration::from_secs(30)).await?;
        Ok(())
    }
}

async fn register(directory: &Path, log: &Path) -> Result<Plugin, NodeStandInError> {
    KubeletStandIn::new(&kubelet_directory(directory))
        .register(DRIVER, Duration::from_secs(60))
        .await
        .map_err(|source| NodeStandInError::Plugin { log: log.to_owned(), source })
}

fn make_machine(
    tessera: &Installation,
    root: &Path,
    seed: &str,
    machine: &Machine,
) -> Result<(), NodeStandInError> {
    let directory = root.display().to_string();
    let cards = machine.cards.map(|cards| cards.to_string());
    let mut arguments = vec!["create", &directory, "--hardware", &machine.hardware, "--seed", seed];
    if let Some(cards) = &cards {
        arguments.extend(["--cards", cards]);
    }
    tessera.emulator(&arguments)?;
    if machine.mig_mode {
        let smi = root.join("bin/nvidia-smi");
        let output = Command::new(&smi).args(["-mig", "1"]).output();
        output.map_err(|source| NodeStandInError::File { path: smi, source })?;
        // Cards newer than Ampere have switched already; a reset does not harm them.
        let count = fs::read_dir(root.join("proc/driver/nvidia/gpus")).map_or(0, Iterator::count);
        for card in 0..count {
            tessera.emulator(&["reset", &directory, "--card", &card.to_string()])?;
        }
    }
    Ok(())
}

// Short, because sockets' paths are limited to 107 bytes.
fn kubelet_directory(directory: &Path) -> PathBuf {
    directory.join("k")
}

fn cdi_directory(directory: &Path) -> PathBuf {
    directory.join("cdi")
}

/// The CDI specs in a directory, without those removed meanwhile.
fn specs(cdi_directory: &Path) -> Result<Vec<Value>, NodeStandInError> {
    let mut specs = Vec::new();
    for name in names(cdi_directory)?.into_iter().filter(|name| name.ends_with(".json")) {
        let path = cdi_directory.join(name);
        let failed = |source| NodeStandInError::File { path: path.clone(), source };
        match fs::read(&path) {
            Ok(bytes) => specs.push(serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(specs)
}

/// The names in a directory, sorted, without hidden files. A missing directory counts as empty.
fn names(directory: &Path) -> Result<Vec<String>, NodeStandInError> {
    let failed = |source| NodeStandInError::File { path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
