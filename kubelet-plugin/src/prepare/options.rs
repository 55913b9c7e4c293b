//! Options of the work on claims: directories, time limits, names.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::card_history::CardHistory;
use crate::cdi::{OtherDriver, Roots};
use crate::gpu_pools::Resolution;
use tessera_journal::{BootId, FileSystem, Journal, JournalError, LocalFileSystem};
use tessera_mps_host::DEFAULT_DIRECTORY;

/// Whether the node has the files of its driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFilesState {
    /// Missing files and the remedy, while no claim can be prepared for lack of them.
    pub missing: Option<String>,
    /// The version of an unused `nvidia-ctk`, rejected for its unsafe hooks.
    pub unsafe_tool: Option<String>,
}

/// Where a [`Preparer`](super::Preparer) works and under which names.
#[derive(Clone)]
pub struct PrepareOptions {
    /// The DRA driver's name: only its results of an allocation are prepared.
    pub driver_name: String,
    /// The node's pool. A result of another pool belongs to another node.
    pub pool_name: String,
    /// The plugin's own directory, the same for all instances on the node, on a disk outliving the pod. Contains the journal and
    /// the cache of the driver's files.
    pub state_directory: PathBuf,
    /// The kubelet's directory. Its `dra_manager_state` lists the claims known to the kubelet; if the file can't be read, no
    /// claim counts as forgotten.
    pub kubelet_directory: PathBuf,
    /// Where the container runtime reads CDI specs.
    pub cdi_directory: PathBuf,
    /// Where the driver's files and device nodes are.
    pub roots: Roots,
    /// Longest time from a call of Prepare to its answer spent waiting for obstacles to pass by themselves. The kubelet gives a
    /// call 45 s (`defaultClientCallTimeout` in its `cm/dra/plugin`) and calls again only a minute or more later.
    pub answer_within: Duration,
    /// Longest time from a call of Prepare or Unprepare to its answer, even if something hangs: the work goes on, and the
    /// kubelet's next call joins the work.
    pub answer_at_the_latest: Duration,
    /// Time limit of a driver call reading from a card; changes of a card get twice as long. A call still running by then is
    /// abandoned, and its card is not asked again until the call returns.
    pub driver_answers_within: Duration,
    /// How long [`Preparer::drain`](super::Preparer::drain) waits for uncancellable work.
    pub drain_within: Duration,
    /// Shortest and longest pause between two attempts while waiting without notification: for another instance of the plugin,
    /// the kubelet's checkpoint, the API server.
    pub retry_pauses: (Duration, Duration),
    /// A wait of this length is reported to users.
    pub tell_after: Duration,
    /// The node's name, for the reporter of Events.
    pub node_name: String,
    /// Longest wait for an answer of the API server when there is no other source.
    pub patience: Duration,
    /// Longest wait for the API server when the journal has an answer as well.
    pub short_patience: Duration,
    /// Where mps-host works.
    pub mps_directory: PathBuf,
    /// The offer of each card, once known: the length of time-slices, the kind of MPS shares.
    pub resolution: watch::Receiver<Option<Arc<Resolution>>>,
    /// The card at each address over time; `None` where nobody keeps a history: then an allocation is as good for any card.
    pub history: Option<Arc<CardHistory>>,
    /// NVIDIA's program for hooks, `nvidia-cdi-hook`, to be installed for nodes without `nvidia-ctk`, if there is one.
    pub cdi_hook: Option<PathBuf>,
    /// Installation directory of the program on the node, under the same path as here. Containers with a user namespace run the
    /// program as another user, so all users may traverse the parent directories.
    pub hook_directory: PathBuf,
    /// The program with arguments to run a program of the driver in the driver's root, where the root is not `/`. `None`:
    /// programs are run directly.
    pub in_driver_root: Option<[OsString; 3]>,
    /// Drivers beside NVIDIA's. Every container with a card gets all of their devices.
    pub other_drivers: Vec<OtherDriver>,
    /// Names of hooks left out of all containers.
    pub disabled_hooks: Vec<String>,
    /// Receives whether the node has the files of its driver.
    pub driver_files: watch::Sender<DriverFilesState>,
    /// Triggers another discovery, after a partition becomes or ceases to be held by its driver.
    pub look_again: Arc<Notify>,
    /// Why there is no driver library.
    pub driver_reason: watch::Receiver<Option<String>>,
    /// The file system for writing journal and CDI specs.
    pub file_system: Arc<dyn FileSystem>,
}

impl PrepareOptions {
    /// A node with the usual locations: state in `<kubelet_directory>/plugins/<driver_name>`, CDI specs in
    /// `/var/run/cdi`, the driver installed on the host, pool `<driver_name>/<node_name>`.
    #[must_use]
    pub fn new(driver_name: &str, node_name: &str, kubelet_directory: &Path) -> Self {
        Self {
            driver_name: driver_name.to_owned(),
            pool_name: format!("{driver_name}/{node_name}"),
            state_directory: kubelet_directory.join("plugins").join(driver_name),
            kubelet_directory: kubelet_directory.to_owned(),
            cdi_directory: "/var/run/cdi".into(),
            roots: Roots::default(),
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
            resolution: watch::channel(Some(Arc::default())).1,
            history: None,
            cdi_hook: None,
            hook_directory: kubelet_directory.join("plugins").join(driver_name),
            in_driver_root: None,
            other_drivers: Vec::new(),
            disabled_hooks: Vec::new(),
            driver_files: watch::Sender::default(),
            look_again: Arc::default(),
            driver_reason: watch::channel(None).1,
            file_system: Arc::new(LocalFileSystem),
        }
    }

    /// Opens the node's journal. Blocks for some file operations.
    ///
    /// # Errors
    /// [`JournalError::BootId`] if the boot id can't be read, [`JournalError::Io`] if the journal's directories can't
    /// be created: a full or read-only disk. Safe to try again later.
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
