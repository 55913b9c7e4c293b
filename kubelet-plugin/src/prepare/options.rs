//! What the work on claims depends on: directories, times, names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tessera_api::NodeConfig;
use tokio::sync::watch;

use crate::cdi::Roots;
use tessera_journal::{BootId, FileSystem, Journal, JournalError, LocalFileSystem};
use tessera_mps_host::DEFAULT_DIRECTORY;

/// Where a [`Preparer`](super::Preparer) works and under which names.
#[derive(Clone)]
pub struct PrepareOptions {
    /// The DRA driver's name: of an allocation, only results of this driver are prepared.
    pub driver_name: String,
    /// The node's pool. A result of another pool belongs to another node.
    pub pool_name: String,
    /// The plugin's own directory, the same for all instances on the node, on a disk that outlives the pod. The journal
    /// and what is known of the driver's files lie below it.
    pub state_directory: PathBuf,
    /// The kubelet's directory. Its `dra_manager_state` tells which claims the kubelet still knows; where it can't be
    /// read, no claim is taken to be forgotten.
    pub kubelet_directory: PathBuf,
    /// Where the container runtime reads CDI specs.
    pub cdi_directory: PathBuf,
    /// Where the driver's files and device nodes are.
    pub roots: Roots,
    /// `nvidia-ctk`, as this process sees it; `None` looks for it below the driver root.
    pub nvidia_ctk: Option<PathBuf>,
    /// Longest time from a call of Prepare to its answer that is spent waiting for what passes by itself. The kubelet gives
    /// a call 45 s (`defaultClientCallTimeout` in its `cm/dra/plugin`) and calls again only a minute or more later.
    pub answer_within: Duration,
    /// Longest time from a call of Prepare or Unprepare to its answer, whatever hangs: the work goes on, and the kubelet's
    /// next call joins it.
    pub answer_at_the_latest: Duration,
    /// How long a question to the driver about a card may take; twice as long what is done to a card. A call that has not
    /// returned then is left to itself, and nothing more is asked about its card before it has.
    pub driver_answers_within: Duration,
    /// Longest wait of [`Preparer::drain`](super::Preparer::drain) for work that can't be broken off.
    pub drain_within: Duration,
    /// Shortest and longest pause between two attempts at what passes by itself and what nobody in this process tells of:
    /// another instance of the plugin, the kubelet's checkpoint, the API server.
    pub retry_pauses: (Duration, Duration),
    /// A wait that users are told of lasts so long already.
    pub tell_after: Duration,
    /// The node's name, as Events say who reports.
    pub node_name: String,
    /// Longest wait for one answer of the API server where there is none without it.
    pub patience: Duration,
    /// Longest wait for the API server where the journal has an answer too.
    pub short_patience: Duration,
    /// Where mps-host works.
    pub mps_directory: PathBuf,
    /// What the node offers, once that is known: how long time-slices are, what kind of shares by MPS.
    pub node_config: watch::Receiver<Option<Arc<NodeConfig>>>,
    /// What journal and CDI specs are written with.
    pub file_system: Arc<dyn FileSystem>,
}

impl PrepareOptions {
    /// A node with the usual places: state in `<kubelet_directory>/plugins/<driver_name>`, CDI specs in `/var/run/cdi`,
    /// the driver installed in the host, pool `<driver_name>/<node_name>`.
    #[must_use]
    pub fn new(driver_name: &str, node_name: &str, kubelet_directory: &Path) -> Self {
        Self {
            driver_name: driver_name.to_owned(),
            pool_name: format!("{driver_name}/{node_name}"),
            state_directory: kubelet_directory.join("plugins").join(driver_name),
            kubelet_directory: kubelet_directory.to_owned(),
            cdi_directory: "/var/run/cdi".into(),
            roots: Roots::default(),
            nvidia_ctk: None,
            answer_within: Duration::from_secs(40),
            answer_at_the_latest: Duration::from_secs(43),
            driver_answers_within: Duration::from_secs(20),
            drain_within: Duration::from_secs(10),
            retry_pauses: (Duration::from_millis(100), Duration::from_secs(2)),
            tell_after: Duration::from_secs(1),
            node_name: node_name.to_owned(),
            patience: Duration::from_secs(10),
            short_patience: Duration::from_secs(2),
            mps_directory: DEFAULT_DIRECTORY.into(),
            node_config: watch::channel(Some(Arc::default())).1,
            file_system: Arc::new(LocalFileSystem),
        }
    }

    /// Opens the node's journal. Blocks for some file operations.
    ///
    /// # Errors
    /// [`JournalError::BootId`] where the boot can't be told, [`JournalError::Io`] where the journal's directories can't
    /// be made: a full or read-only disk. Trying again later is safe.
    pub fn open_journal(&self) -> Result<Journal, JournalError> {
        let boot_id = BootId::read(&*self.file_system, &self.roots.proc)?;
        Journal::open(self.file_system.clone(), self.state_directory.join("journal"), boot_id)
    }
}

impl fmt::Debug for PrepareOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrepareOptions")
            .field("driver_name", &self.driver_name)
            .field("pool_name", &self.pool_name)
            .field("state_directory", &self.state_directory)
            .field("cdi_directory", &self.cdi_directory)
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}
