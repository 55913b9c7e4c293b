use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf};

use serde::{Deserialize, Serialize};

/// The owner's byte on the pipe for releasing the cluster: from then on only [`Request::Shutdown`] ends the cluster.
pub const RELEASE: u8 = b'r';

/// Configuration of a cluster's outermost process, `cluster-host supervise`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SupervisorConfiguration {
    /// The cluster's directory. The running supervisor holds a lock in it, and removes the directory at the end.
    pub state: PathBuf,
    /// Whether the cluster gets namespaces of its own (node tier) or shares the machine's (scheduler tier).
    pub isolated: bool,
    /// Directories to be reachable under the same path inside the cluster.
    pub visible: Vec<PathBuf>,
}

/// One machine of a cluster, with its own process, mount and network namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineConfiguration {
    /// Host name of the machine.
    pub name: String,
    /// The machine's part of the cluster's directory.
    pub directory: PathBuf,
    /// The cluster's directory.
    pub state: PathBuf,
    /// Whether the machine gets its own `/run`, `/var/lib` and `/var/log` (from its directory), cgroups and kernel
    /// parameters, as needed by a kubelet.
    pub node: bool,
    /// Directories to be reachable under the same path.
    pub visible: Vec<PathBuf>,
}

/// Configuration of `cluster-host host`, the process serving requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostConfiguration {
    /// Its unix socket.
    pub socket: PathBuf,
    /// Whether the host has a network namespace of its own.
    pub isolated: bool,
    /// Target of connections to the listener inherited as standard input; `None` without such a listener.
    pub forward: Option<String>,
}

/// A program with its arguments and environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandLine {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Added to the host process's environment.
    pub environment: BTreeMap<String, String>,
}

impl CommandLine {
    /// A command without arguments.
    pub fn new(program: impl AsRef<std::path::Path>) -> Self {
        Self { arguments: vec![program.as_ref().display().to_string()], environment: BTreeMap::new() }
    }

    /// Adds one argument.
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds `--name=value`.
    pub fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.argument(format!("--{name}={value}"))
    }

    /// Sets one variable of the environment.
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }
}

/// An address with its network's prefix length.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The address itself.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

/// A route through a gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The destination network; `None` for the default route.
    pub destination: Option<Address>,
    /// The gateway.
    pub gateway: Ipv4Addr,
}

/// A new pair of virtual network interfaces: one end here, the other in the network namespace of another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Name of this end: at most 15 bytes.
    pub name: String,
    /// Name of the other end, in its namespace.
    pub peer: String,
    /// Process whose network namespace gets the other end.
    pub process: u32,
}

/// Network setup of one machine; all parts are added to the existing ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkConfiguration {
    /// Interface pairs, created first.
    pub links: Vec<Link>,
    /// Addresses by interface; the interface is brought up.
    pub addresses: Vec<(String, Address)>,
    /// Routes, added last.
    pub routes: Vec<Route>,
    /// Whether the machine forwards packets between its interfaces.
    pub forwarding: bool,
}

/// The receiver of a signal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A process started by [`Request::Spawn`].
    Name(String),
    /// Any process visible to the host, by its id there.
    Process(i32),
}

/// One request: one line of JSON on its own connection, answered by one line with a [`Response`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub enum Request {
    /// Starts a process in the background; output is appended to a log file. A name is free again once its process has
    /// ended.
    Spawn {
        /// Name for later requests.
        name: String,
        /// The command.
        command: CommandLine,
        /// File for standard output and error.
        log: PathBuf,
    },
    /// Sends a signal.
    Signal {
        /// The receiver.
        target: Target,
        /// Number of the signal.
        signal: i32,
    },
    /// Sends TERM, then KILL after the grace period, and waits for the end.
    Stop {
        /// The process.
        name: String,
        /// Milliseconds between TERM and KILL; 0 kills at once.
        grace_ms: u64,
    },
    /// Waits for the end of a process.
    Wait {
        /// The process.
        name: String,
    },
    /// Lists all processes started by [`Request::Spawn`].
    Processes,
    /// Runs a program to its end.
    Run {
        /// The command.
        command: CommandLine,
        /// Standard input.
        input: Option<String>,
        /// Timeout in milliseconds; the program is killed then.
        timeout_ms: u64,
    },
    /// Connects from inside; after [`Response::Done`] the connection carries the bytes of both sides.
    Dial {
        /// The target.
        channel: Channel,
    },
    /// Sets up interfaces, addresses and routes.
    Network(NetworkConfiguration),
    /// Ends the host with all its processes.
    Shutdown,
}

/// Target of [`Request::Dial`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// `address:port`.
    Tcp(String),
    /// Path of a unix socket.
    Unix(PathBuf),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, unless ended by a signal.
    pub code: Option<i32>,
    /// The fatal signal.
    pub signal: Option<i32>,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => write!(f, "unknown status"),
        }
    }
}

/// A process started by [`Request::Spawn`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its name.
    pub name: String,
    /// Its id in the host's namespace.
    pub process: u32,
    /// Resident memory in KiB, while running.
    pub resident_kib: Option<u64>,
    /// Exit code or signal; `None` while running.
    pub exit: Option<Exit>,
}

/// Answer to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Response {
    /// Success without a result.
    Done,
    /// To [`Request::Spawn`].
    Spawned {
        /// Id of the process in the host's namespace.
        process: u32,
    },
    /// To [`Request::Stop`] and [`Request::Wait`].
    Ended(Exit),
    /// To [`Request::Processes`].
    Processes {
        /// By name.
        processes: Vec<ProcessState>,
    },
    /// To [`Request::Run`].
    Output {
        /// Exit code or signal; `None` at a timeout.
        exit: Option<Exit>,
        /// Standard output; bytes outside of UTF-8 are replaced.
        stdout: String,
        /// Standard error, in the same way.
        stderr: String,
    },
    /// The request failed.
    Failed {
        /// Why.
        message: String,
    },
}
