//! The stubs' protocol: one JSON object a line. Not NVIDIA's, which is not public.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// From the shell or a client to the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToDaemon {
    /// A line of the shell.
    Command(String),
    /// A client asks for its server.
    Client,
}

/// The daemon's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromDaemon {
    /// Text to be printed by the shell.
    Text(String),
    /// The server to connect to, by process id.
    Server(u32),
    /// The client is refused with this error of CUDA.
    Error(u32),
}

/// From a client to its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToServer {
    /// First: the limits in the client's environment.
    Connect {
        /// Index among the server's devices.
        device: usize,
        /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` for the device, bytes.
        memory_limit: Option<u64>,
        /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`
        percentage: Option<f64>,
        /// `CUDA_MPS_SM_PARTITION`, without the device's UUID.
        partition: Option<String>,
        /// The client's program.
        program: String,
    },
    /// Allocates bytes.
    Allocate(u64),
    /// Frees all memory.
    Free,
    /// Runs kernels for this percentage of the time.
    Busy(u32),
    /// Faults, as no correct program should.
    Fault,
}

/// From a server to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromServer {
    /// The client is connected, with these limits in force.
    Connected {
        /// UUID of the device.
        uuid: String,
        /// Memory limit in bytes; `None` is the device's whole memory.
        memory_limit: Option<u64>,
        /// Percent of the device's multiprocessors.
        percentage: f64,
        /// Multiprocessors of the client's partition, if any.
        multiprocessors: Option<u32>,
    },
    /// Done; bytes held afterwards.
    Holds(u64),
    /// Failed with this error of CUDA.
    Error(u32),
    /// The context is lost: a client of the device faulted, or was ended.
    Lost(u32),
}

/// From the daemon to a server's standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToServerProcess {
    /// Limits for later clients.
    Limits {
        /// Percent of threads.
        percentage: f64,
        /// By device, bytes.
        memory: Vec<Option<u64>>,
    },
    /// The static SM partitions there are, each with its multiprocessors; `None` where they are not enabled.
    Partitions(Option<Vec<(String, u32)>>),
    /// Lists the clients.
    Clients,
    /// Ends one client.
    Terminate(u32),
    /// Ends when no clients are left, or at once.
    Shutdown {
        /// At once.
        force: bool,
    },
}

/// From a server's standard output to the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromServerProcess {
    /// Ready for clients.
    Ready,
    /// Unable to work.
    Failed(String),
    /// The clients there are.
    Clients {
        /// Each one.
        clients: Vec<Client>,
        /// Whether a client faulted and others are not gone yet.
        fault: bool,
    },
    /// Done, or there was no such client.
    Done(bool),
}

/// A client of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// Process id, as seen by the server.
    pub pid: u32,
    /// Index among the server's devices.
    pub device: usize,
    /// The client's program.
    pub program: String,
    /// Its static SM partition.
    #[serde(default)]
    pub partition: Option<String>,
}

/// Longest accepted line.
const LONGEST: u64 = 64 << 10;

/// Both ends of a connection, by lines.
#[derive(Debug)]
pub struct Lines {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Lines {
    /// Wraps a stream.
    ///
    /// # Errors
    /// The stream cannot be duplicated.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Lines { writer: stream.try_clone()?, reader: BufReader::new(stream) })
    }

    /// Writes one message.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        send(&mut self.writer, message)
    }

    /// Reads one message; `None` at the end.
    ///
    /// # Errors
    /// The other end broke off or sent an unreadable message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        receive(&mut self.reader)
    }
}

/// Writes one message.
///
/// # Errors
/// When the other end is gone.
pub fn send(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

/// Reads one message; `None` at the end.
///
/// # Errors
/// The other end broke off or sent an unreadable message.
pub fn receive<T: DeserializeOwned>(reader: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let read = io::Read::take(&mut *reader, LONGEST).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
