//! What the supervisor is asked and what it answers: JSON objects, one a line, over a unix socket that only root may use.
//!
//! Every request may be sent again: what is done already is done nothing about. A connection takes one request after
//! the other; [`Operation::Subscribe`] turns it into a stream of events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;

use super::device::DeviceUuid;

/// Version of the protocol. Fields may be added without a new one; what a side does not know it ignores.
pub const VERSION: u32 = 1;

/// The longest line either side reads, bytes.
pub const LONGEST_LINE: usize = 256 << 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// [`VERSION`] of whoever asks.
    pub version: u32,
    /// What to do.
    pub operation: Operation,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Lets a daemon for a device run with these settings, and answers when clients can connect.
    Ensure(Ensure),
    /// Ends the daemon of a device and takes all of its traces away.
    Release(Release),
    /// Lists the daemons.
    List,
    /// Lists the clients of each daemon that runs. Asks every daemon: milliseconds, or seconds where one hangs.
    Clients,
    /// Sends events from now on.
    Subscribe,
}

/// A daemon that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensure {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card that the device is or is a part of.
    pub card: PciBusId,
    /// What every client of the daemon is held to, whatever its own environment says.
    #[serde(default)]
    pub settings: Settings,
    /// Further cards that the daemon serves, so that one process can use them all. Partitions have a daemon each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherDevice>,
    /// Whose daemon it is, where it is not that of all shares of the device: the UID of a claim. A daemon of someone else
    /// is ended first, unless it has clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// All shares of the device, where each has multiprocessors of its own; nothing where they don't. A daemon is of one
    /// kind or the other from its start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_shares: Option<StaticShares>,
}

/// A further card of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherDevice {
    /// The card.
    pub device: DeviceUuid,
    /// Where it is.
    pub card: PciBusId,
    /// As [`Settings::memory_limit_mib`], for this card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
}

/// Shares with multiprocessors of their own: their names, chosen by whoever asks, with the percent of the device's
/// multiprocessors that each has, 1 to 100.
pub type StaticShares = BTreeMap<String, u8>;

/// Multiprocessors that only the clients of one share use (NVIDIA's MPS documentation, "Using Static SM Partitioning").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticPartition {
    /// `CUDA_MPS_SM_PARTITION` of its clients: `GPU-…/<id>`. Another one after each start of the daemon.
    pub name: String,
    /// How many chunks it has.
    pub chunks: u32,
    /// How many multiprocessors these are; 0 where the daemon does not say.
    pub multiprocessors: u32,
}

/// What every client process of a daemon is held to. A client's own environment can only tighten it (NVIDIA's MPS
/// documentation, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` and `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`). Changed settings hold for
/// clients that connect later; a limit on memory, once set, is only replaced by another one as long as the daemon runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Memory of the (first) device that one process may take, MiB, at least 1; all of it where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// Percent of the device's multiprocessors that one process may use, 1 to 100; all where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
}

/// A daemon that is no longer wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The card or partition.
    pub device: DeviceUuid,
    /// How long clients that are still there may take to leave, seconds; then they lose their contexts.
    pub grace_seconds: u32,
    /// Whose daemon is meant, as in [`Ensure::owner`]: that of anybody else is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// An answer, or an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    /// To [`Operation::Ensure`]: clients can connect.
    Ready(Box<Daemon>),
    /// To [`Operation::Release`]: it is gone.
    Released {
        /// Clients that did not leave by themselves and lost their contexts, by process id.
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
    /// It could not be done.
    Error {
        /// What kind of problem, for programs.
        code: ErrorCode,
        /// What is wrong and what to do, for people.
        message: String,
    },
}

/// A daemon as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// What its clients are held to.
    pub settings: Settings,
    /// Further cards that it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherDevice>,
    /// Whose it is, where it is not that of all shares of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The partitions of its shares by their names, where shares have multiprocessors of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_partitions: Option<BTreeMap<String, StaticPartition>>,
    /// How it is.
    pub state: DaemonState,
    /// Process id of the control daemon while it runs, as the supervisor sees it.
    pub pid: Option<u32>,
    /// Process id of the MPS server that holds the device.
    pub server_pid: Option<u32>,
    /// What tells the server from every other one of this boot, whatever its process id; an older mps-host does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_instance: Option<String>,
    /// Where a client has faulted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// `CUDA_MPS_PIPE_DIRECTORY`, as the node sees it: to be mounted into containers.
    pub pipe_directory: PathBuf,
    /// What containers must have as `/dev/shm`, where the daemon has one of its own.
    pub shm_directory: Option<PathBuf>,
    /// Where it logs.
    pub log_directory: PathBuf,
    /// How often it was started again after it had died.
    pub restarts: u32,
}

/// A client has faulted, and its server takes no other before all that it had have ended (NVIDIA's MPS documentation, "Error
/// containment": server status `FAULT`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// What tells it from all other faults; also [`Event::id`] of the event that told it.
    pub id: String,
    /// Process ids of the clients that have not ended yet.
    pub clients: Vec<u32>,
}

impl Ensure {
    /// A daemon for one device, of all its shares.
    #[must_use]
    pub const fn of_shares(device: DeviceUuid, card: PciBusId, settings: Settings) -> Self {
        Self { device, card, settings, static_shares: None, others: Vec::new(), owner: None }
    }
}

impl Daemon {
    /// What tells the server from every other one, as far as that is known; none while there is no server.
    #[must_use]
    pub fn server_identity(&self) -> Option<String> {
        self.server_instance.clone().or_else(|| self.server_pid.map(|pid| pid.to_string()))
    }

    /// Whether it serves this device.
    #[must_use]
    pub fn serves(&self, uuid: &str) -> bool {
        self.device.as_str() == uuid || self.others.iter().any(|other| other.device.as_str() == uuid)
    }
}

/// Who uses a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonClients {
    /// The card or partition.
    pub device: DeviceUuid,
    /// Its clients.
    #[serde(default)]
    pub clients: Vec<ClientProcess>,
    /// Why they are not known: the daemon does not answer, or not with what can be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A process that uses a device by MPS, as far as the node tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientProcess {
    /// Its id, as the supervisor sees it: the node's.
    pub pid: u32,
    /// Its program, as the kernel names it: at most 15 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// UID of the pod whose container it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

/// How a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DaemonState {
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It died, and clients of its server still run: starting it again would end them.
    WaitingForClients {
        /// Their process ids.
        clients: Vec<u32>,
    },
    /// It cannot be started; tried again from time to time.
    Failed {
        /// Why.
        message: String,
    },
    /// It is being ended.
    Stopping,
}

/// Something that happened to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// What happened.
    pub kind: EventKind,
    /// What tells this happening from all others; an older mps-host does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What can happen to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// It was started for the first time.
    Started,
    /// The control daemon died unasked.
    DaemonDied {
        /// Its process id.
        pid: u32,
        /// Clients that go on with its server, by process id.
        clients: Vec<u32>,
    },
    /// The server died unasked, and with it the contexts of all clients.
    ServerDied {
        /// Its process id.
        pid: u32,
    },
    /// A client faulted, and with it all clients lost their contexts; the server takes no other until they have ended.
    ServerFault {
        /// Those that are still there.
        clients: Vec<ClientProcess>,
    },
    /// After a fault, the server takes clients again.
    ServerRecovered,
    /// It runs again.
    Restarted,
    /// It cannot be started.
    Failed {
        /// Why.
        message: String,
    },
    /// It is being ended although clients are there.
    ClientsRemain {
        /// Their process ids.
        clients: Vec<u32>,
        /// How long they are waited for, seconds.
        grace_seconds: u32,
    },
    /// It is being ended, and these did not leave in their time: they lost their contexts.
    ClientsEnded {
        /// Each one.
        clients: Vec<ClientProcess>,
    },
    /// It was ended by order.
    Stopped,
}

/// Kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request makes no sense; sending it again will not help.
    InvalidRequest,
    /// The node has no MPS programs.
    ProgramMissing,
    /// Something else holds the device.
    DeviceInUse,
    /// Only root may ask.
    Forbidden,
    /// It did not work this time.
    Failed,
    /// A kind that this build does not know.
    #[serde(other)]
    Unknown,
}
