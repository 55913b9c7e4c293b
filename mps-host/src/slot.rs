//! State of one device and its daemon.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tessera_api::PciBusId;
use tokio::sync::Notify;

use super::device::DeviceUuid;
use super::directory::DaemonDirectory;
use super::processes::Process;
use super::protocol::{Daemon, DaemonState, Fault, Settings};
use super::record::Record;

/// One device with its daemon. One piece of work at a time runs on the device; its state can be read at any time.
#[derive(Debug)]
pub(super) struct Slot {
    pub directory: DaemonDirectory,
    pub work: tokio::sync::Mutex<Work>,
    /// Notifies the keeper of changes of the daemon.
    pub changed: Notify,
    seen: Mutex<Daemon>,
}

/// State for work on a device.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub record: Option<Record>,
    pub running: Option<Running>,
    /// The device is forgotten: work waiting for the lock must look up the device again.
    pub gone: bool,
}

/// A running daemon.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub daemon: Process,
    pub server: Option<Process>,
    /// Set if a client of the server has faulted.
    pub fault: Option<Fault>,
}

impl Running {
    /// A daemon whose server has not been looked at yet.
    pub const fn new(daemon: Process, server: Option<Process>) -> Self {
        Self { daemon, server, fault: None }
    }

    /// Whether daemon and server are the same as in `other`.
    pub fn is_same(&self, other: &Self) -> bool {
        let server = |running: &Self| running.server.as_ref().map(|server| server.pid);
        self.daemon.pid == other.daemon.pid && server(self) == server(other)
    }
}

impl Slot {
    pub fn new(directory: &Path, device: &DeviceUuid, card: PciBusId, own_shm: bool) -> Self {
        let places = DaemonDirectory::new(directory, device);
        let seen = Daemon {
            device: device.clone(),
            card,
            settings: Settings::default(),
            others: Vec::new(),
            owner: None,
            static_partitions: None,
            state: DaemonState::Starting,
            pid: None,
            server_pid: None,
            server_instance: None,
            fault: None,
            pipe_directory: places.pipe.clone(),
            shm_directory: own_shm.then(|| places.shm.clone()),
            log_directory: places.log.clone(),
            restarts: 0,
        };
        Self {
            directory: places,
            work: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            seen: Mutex::new(seen),
        }
    }

    /// The present state.
    pub fn seen(&self) -> Daemon {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Updates the visible state.
    pub fn show(&self, work: &Work, state: DaemonState) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.state = state;
        seen.pid = work.running.as_ref().map(|running| running.daemon.pid);
        let server = work.running.as_ref().and_then(|running| running.server.as_ref());
        seen.server_pid = server.map(|server| server.pid);
        seen.server_instance = server.and_then(Process::instance);
        seen.fault = work.running.as_ref().and_then(|running| running.fault.clone());
        if let Some(record) = &work.record {
            seen.card = record.card;
            seen.settings = record.settings;
            seen.others = record.others.iter().map(|other| other.device.clone()).collect();
            seen.owner.clone_from(&record.owner);
            seen.static_partitions = record.static_partitions.as_ref().map(|shares| {
                let made = shares.iter().filter_map(|share| Some((share.share.clone(), share.made.clone()?)));
                made.collect()
            });
            seen.restarts = record.restarts;
        }
    }
}
