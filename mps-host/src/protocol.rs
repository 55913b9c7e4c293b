//! The protocol of the supervisor: JSON objects, one per line, over a unix socket only usable by root.
//!
//! Every request may be repeated: work already done is not done again. A connection handles one request after the
//! other; [`Operation::Subscribe`] turns the connection into a stream of events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;

use super::device::DeviceUuid;

/// Version of the protocol. Fields may be added without a new version; each side ignores unknown fields.
pub const VERSION: u32 = 1;

/// The longest line either side reads, bytes.
pub const LONGEST_LINE: usize = 256 << 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// [`VERSION`] of the client.
    pub version: u32,
    /// The requested operation.
    pub operation: Operation,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Starts or changes a device's daemon to have these settings, and answers when clients can connect.
    Ensure(Ensure),
    /// Ends the daemon of a device and removes all traces of it.
    Release(Release),
    /// Lists the daemons.
    List,
    /// Lists the clients of each running daemon. Asks every daemon: takes milliseconds, or seconds if one hangs.
    Clients,
    /// Sends events from now on.
    Subscribe,
}

/// A wanted daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensure {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The device's card: the device itself, or the card of the partition.
    pub card: PciBusId,
    /// Limits of every client of the daemon, whatever its own environment says.
    #[serde(default)]
    pub settings: Settings,
    /// Further cards of the daemon, so that one process can use them all. Each partition has a daemon of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherDevice>,
    /// Owner of the daemon, unless shared by all shares of the device: the UID of a claim. A daemon of another owner is
    /// ended first, unless it has clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// All shares of the device, if each has multiprocessors of its own. A daemon is of one kind or the other from
    /// its start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_shares: Option<StaticShares>,
}

/// A further card of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherDevice {
    /// The card.
    pub device: DeviceUuid,
    /// Its address.
    pub card: PciBusId,
    /// Like [`Settings::memory_limit_mib`], for this card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
}

/// Shares with multiprocessors of their own: their names, chosen by the client, with each one's percentage of the
/// device's multiprocessors, 1 to 100.
pub type StaticShares = BTreeMap<String, u8>;

/// Multiprocessors for the clients of one share only (NVIDIA's MPS documentation, "Using Static SM Partitioning").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticPartition {
    /// `CUDA_MPS_SM_PARTITION` of its clients: `GPU-…/<id>`. Changes with each start of the daemon.
    pub name: String,
    /// Number of chunks.
    pub chunks: u32,
    /// Number of multiprocessors; 0 if not reported by the daemon.
    pub multiprocessors: u32,
}

/// Limits of every client process of a daemon. A client's own environment can only tighten them (NVIDIA's MPS
/// documentation, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` and `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`). Changed settings apply
/// to clients that connect later. While the daemon runs, a memory limit can be replaced but not removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Limit of one process's memory on the (first) device, MiB, at least 1; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// Limit of one process's percentage of the device's multiprocessors, 1 to 100; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
}

/// An unwanted daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The card or partition.
    pub device: DeviceUuid,
    /// Grace period for remaining clients, seconds; after that they lose their contexts.
    pub grace_seconds: u32,
    /// Owner of the daemon, as in [`Ensure::owner`]: a daemon of another owner is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// An answer, or an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    /// To [`Operation::Ensure`]: clients can connect.
    Ready(Box<Daemon>),
    /// To [`Operation::Release`]: the daemon is gone.
    Released {
        /// Process ids of clients still there after the grace period: they lost their contexts.
        ended_clients: Vec<u32>,
    },
    /// To [`Operation::List`], by device.
    Daemons(Vec<Daemon>),
    /// To [`Operation::Clients`], by device.
    Clients(Vec<DaemonClients>),
    /// To [`Operation::Subscribe`]; then [`Response::Event`]s follow.
    Subscribed,
    /// Something happened.
    Event(Event),
    /// The request failed.
    Error {
        /// Kind of error, for programs.
        code: ErrorCode,
        /// The problem and its remedy, for people.
        message: String,
    },
}

/// The present state of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// Limits of its clients.
    pub settings: Settings,
    /// Further cards of the daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherDevice>,
    /// The daemon's owner, unless shared by all shares of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Partitions by the names of their shares, if shares have multiprocessors of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_partitions: Option<BTreeMap<String, StaticPartition>>,
    /// State of the daemon.
    pub state: DaemonState,
    /// Process id of the control daemon while it runs, in the supervisor's process namespace.
    pub pid: Option<u32>,
    /// Process id of the MPS server on the device.
    pub server_pid: Option<u32>,
    /// Identifies the server within this boot, even if its process id is reused; absent from an older mps-host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_instance: Option<String>,
    /// Set if a client has faulted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// `CUDA_MPS_PIPE_DIRECTORY`, as a path on the node: to be mounted into containers.
    pub pipe_directory: PathBuf,
    /// Directory to mount as `/dev/shm` in containers, if the daemon has one of its own.
    pub shm_directory: Option<PathBuf>,
    /// Its log directory.
    pub log_directory: PathBuf,
    /// Number of restarts after a death of the daemon.
    pub restarts: u32,
}

/// A client has faulted, and its server takes no new clients before all present ones have ended (NVIDIA's MPS
/// documentation, "Error containment": server status `FAULT`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Identifies this fault; equal to [`Event::id`] of the event about it.
    pub id: String,
    /// Process ids of the clients still running.
    pub clients: Vec<u32>,
}

impl Ensure {
    /// A device's daemon for all its shares.
    #[must_use]
    pub const fn of_shares(device: DeviceUuid, card: PciBusId, settings: Settings) -> Self {
        Self { device, card, settings, static_shares: None, others: Vec::new(), owner: None }
    }
}

impl Daemon {
    /// Identifies the server, as far as known; `None` while there is no server.
    #[must_use]
    pub fn server_identity(&self) -> Option<String> {
        self.server_instance.clone().or_else(|| self.server_pid.map(|pid| pid.to_string()))
    }

    /// Whether the daemon serves this device.
    #[must_use]
    pub fn serves(&self, uuid: &str) -> bool {
        self.device.as_str() == uuid || self.others.iter().any(|other| other.device.as_str() == uuid)
    }
}

/// The clients of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonClients {
    /// The card or partition.
    pub device: DeviceUuid,
    /// Its clients.
    #[serde(default)]
    pub clients: Vec<ClientProcess>,
    /// Why they are unknown: the daemon does not answer, or its answer can't be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A process using a device by MPS, as known on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientProcess {
    /// Process id on the node, in the supervisor's process namespace.
    pub pid: u32,
    /// The program's name in the kernel: at most 15 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// UID of the process's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

/// State of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DaemonState {
    /// The daemon is being started.
    Starting,
    /// The daemon runs.
    Running,
    /// The daemon died, and clients of its server still run. A restart would end them.
    WaitingForClients {
        /// Their process ids.
        clients: Vec<u32>,
    },
    /// The daemon can't be started; the start is retried from time to time.
    Failed {
        /// Why.
        message: String,
    },
    /// The daemon is being ended.
    Stopping,
}

/// An event of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// The kind of event.
    pub kind: EventKind,
    /// Identifies this event; absent from an older mps-host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Kinds of events of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// The daemon was started for the first time.
    Started,
    /// The control daemon died unexpectedly.
    DaemonDied {
        /// Its process id.
        pid: u32,
        /// Clients still served by its server, by process id.
        clients: Vec<u32>,
    },
    /// The server died unexpectedly, and with the server the contexts of all clients.
    ServerDied {
        /// Its process id.
        pid: u32,
    },
    /// A client faulted, and all clients lost their contexts. The server takes no new clients until they have ended.
    ServerFault {
        /// The remaining clients.
        clients: Vec<ClientProcess>,
    },
    /// After a fault, the server takes clients again.
    ServerRecovered,
    /// The daemon runs again.
    Restarted,
    /// The daemon cannot be started.
    Failed {
        /// Why.
        message: String,
    },
    /// The daemon is being ended although it has clients.
    ClientsRemain {
        /// Their process ids.
        clients: Vec<u32>,
        /// Grace period for them, seconds.
        grace_seconds: u32,
    },
    /// The daemon is being ended, and these clients did not leave in the grace period: they lost their contexts.
    ClientsEnded {
        /// The clients.
        clients: Vec<ClientProcess>,
    },
    /// The daemon was ended on request.
    Stopped,
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request is invalid; sending the same one again will not help.
    InvalidRequest,
    /// The node has no MPS programs.
    ProgramMissing,
    /// Another process holds the device.
    DeviceInUse,
    /// Only root may ask.
    Forbidden,
    /// The attempt failed.
    Failed,
    /// A kind unknown to this build.
    #[serde(other)]
    Unknown,
}
