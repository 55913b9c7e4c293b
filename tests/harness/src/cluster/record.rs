use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{ClusterError, ExtraFlags, Tier, prepare::write};
use crate::{host::Host, node::Node, tools::Tools};

/// The fixed properties of a started cluster, stored in its directory for other processes to attach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Its directory.
    pub state: PathBuf,
    /// Its tier.
    pub tier: Tier,
    /// Port of the API server, inside.
    pub(crate) api_port: u16,
    /// Its port on this machine's loopback.
    pub(crate) outside_port: u16,
    pub(crate) etcd_port: u16,
    pub(crate) etcd_peer_port: u16,
    /// Tokens by user name.
    pub(crate) tokens: BTreeMap<String, String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tools: Tools,
    pub(crate) extra: ExtraFlags,
    pub(crate) audit: bool,
    /// Directories reachable inside the machines.
    pub(crate) visible: Vec<PathBuf>,
}

impl ClusterRecord {
    const FILE: &str = "cluster.json";

    /// Reads the record of the cluster in this directory.
    ///
    /// # Errors
    /// There is none, or one of another version.
    pub fn read(state: &Path) -> Result<Self, ClusterError> {
        let path = state.join(Self::FILE);
        let text = fs::read(&path).map_err(ClusterError::io(&path))?;
        serde_json::from_slice(&text)
            .map_err(|error| ClusterError::Configuration(format!("{}: {error}", path.display())))
    }

    pub(super) fn write(&self) -> Result<(), ClusterError> {
        let path = self.state.join(Self::FILE);
        let text =
            serde_json::to_string(self).map_err(|error| ClusterError::Configuration(error.to_string()))?;
        write(&path, &text)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state.join("log").join(format!("{name}.log"))
    }

    pub(crate) fn control_plane(&self) -> Host {
        Host::new(self.state.join("control.sock"))
    }
}
