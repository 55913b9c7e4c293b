use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf};

use serde::{Deserialize, Serialize};

/// The byte on the owner's pipe by which the owner sets the cluster free: it then ends by [`Request::Shutdown`] only.
pub const RELEASE: u8 = b'r';

/// What the outermost process of a cluster, `cluster-host supervise`, is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SupervisorConfiguration {
    /// The cluster's directory. The supervisor holds a lock in it while it lives, and removes it at the end.
    pub state: PathBuf,
    /// Whether the cluster gets namespaces of its own (node tier) or shares the machine's (scheduler tier).
    pub isolated: bool,
    /// Directories that must stay reachable under their own path inside the cluster.
    pub visible: Vec<PathBuf>,
}

/// One machine of a cluster: a process, mount and network namespace of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineConfiguration {
    /// Host name of the machine.
    pub name: String,
    /// The machine's part of the cluster's directory.
    pub directory: PathBuf,
    /// The cluster's directory.
    pub state: PathBuf,
    /// Whether the machine gets its own `/run`, `/var/lib` and `/var/log` (from its directory), cgroups and kernel
    /// parameters, as a kubelet needs them.
    pub node: bool,
    /// Directories that must stay reachable under their own path.
    pub visible: Vec<PathBuf>,
}

/// What `cluster-host host`, the process that serves requests, is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostConfiguration {
    /// Unix socket on which it serves.
    pub socket: PathBuf,
    /// Whether it has a network namespace of its own.
    pub isolated: bool,
    /// Where connections go that arrive on the listener inherited as standard input; none without such a listener.
    pub forward: Option<String>,
}

/// A program with all it is started with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandLine {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Added to the environment of the host process.
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

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The address itself.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

/// A route by way of a neighbour.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The network reached; none for the default route.
    pub destination: Option<Address>,
    /// The neighbour that forwards.
    pub gateway: Ipv4Addr,
}

/// A new pair of virtual network cards, one end here and the other in the network namespace of another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Name of this end: at most 15 bytes.
    pub name: String,
    /// Name of the other end, in its namespace.
    pub peer: String,
    /// Process whose network namespace gets the other end.
    pub process: u32,
}

/// Network set-up of one machine; all parts are added to what is there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkConfiguration {
    /// Pairs made first.
    pub links: Vec<Link>,
    /// Addresses by name of the card, which is brought up.
    pub addresses: Vec<(String, Address)>,
    /// Routes, added last.
    pub routes: Vec<Route>,
    /// Whether the machine forwards packets between its cards.
    pub forwarding: bool,
}

/// Which process a signal goes to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A process started by [`Request::Spawn`].
    Name(String),
    /// Any process the host sees, by the id it has there.
    Process(i32),
}

/// One request: one line of JSON on a connection of its own, answered by one line with a [`Response`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub enum Request {
    /// Starts a process that lives on its own; output is appended to a log file. A name is free again once its process
    /// has ended.
    Spawn {
        /// Name for later requests.
        name: String,
        /// What to start.
        command: CommandLine,
        /// File that gets standard output and error.
        log: PathBuf,
    },
    /// Sends a signal.
    Signal {
        /// To whom.
        target: Target,
        /// Number of the signal.
        signal: i32,
    },
    /// Sends TERM, after the grace KILL, and waits for the end.
    Stop {
        /// The process.
        name: String,
        /// Milliseconds between TERM and KILL; with 0 it is killed at once.
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
        /// What to run.
        command: CommandLine,
        /// Standard input.
        input: Option<String>,
        /// Killed after so many milliseconds.
        timeout_ms: u64,
    },
    /// Connects from inside; after [`Response::Done`] the connection carries the bytes of both sides.
    Dial {
        /// Where to.
        channel: Channel,
    },
    /// Sets up cards, addresses and routes.
    Network(NetworkConfiguration),
    /// Ends the host, and with it everything it started.
    Shutdown,
}

/// Where [`Request::Dial`] connects to.
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
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that killed it.
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
    /// Its id where the host is.
    pub process: u32,
    /// Resident memory in KiB, while it runs.
    pub resident_kib: Option<u64>,
    /// How it ended; none while it runs.
    pub exit: Option<Exit>,
}

/// Answer to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Response {
    /// It is done and there is nothing to tell.
    Done,
    /// To [`Request::Spawn`].
    Spawned {
        /// Id of the process where the host is.
        process: u32,
    },
    /// To [`Request::Stop`] and [`Request::Wait`].
    Ended(Exit),
    /// To [`Request::Processes`].
    Processes {
        /// In order of their names.
        processes: Vec<ProcessState>,
    },
    /// To [`Request::Run`].
    Output {
        /// How it ended; none if it ran into its time limit.
        exit: Option<Exit>,
        /// Standard output; bytes that are not UTF-8 are replaced.
        stdout: String,
        /// Standard error, likewise.
        stderr: String,
    },
    /// The request could not be done.
    Failed {
        /// Why.
        message: String,
    },
}
