//! The plugin's client of the supervisor.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::directory::SOCKET;
use super::protocol::{
    Daemon, DaemonClients, Ensure, ErrorCode, Event, Operation, Release, Request, Response, VERSION,
};
use super::wire::{read_line, write_line};

/// First and longest pause before an unreachable supervisor is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The supervisor of this node. It may be away for a moment, after a crash or during an upgrade, so requests are sent
/// again until answered or until the time limit. All requests may safely be sent twice.
#[derive(Clone, Debug)]
pub struct MpsHost {
    socket: PathBuf,
}

/// Why a request to the supervisor failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpsHostError {
    /// The supervisor does not answer.
    #[error(
        "mps-host does not answer at {socket}: {reason}; MPS shares need its DaemonSet (chart value sharing.mps.enabled)"
    )]
    Away {
        /// Its socket.
        socket: PathBuf,
        /// The last error.
        reason: String,
    },
    /// The supervisor refused the request.
    #[error("mps-host: {message}")]
    Refused {
        /// The kind of problem.
        code: ErrorCode,
        /// The problem and its remedy.
        message: String,
    },
    /// The supervisor gave an answer of another kind.
    #[error("mps-host answered {0:.200}; it is of another version than this plugin")]
    OtherAnswer(String),
}

impl MpsHost {
    /// The supervisor working in this directory.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { socket: directory.join(SOCKET) }
    }

    /// Starts a device's daemon or changes its settings to these; returns when clients can connect.
    ///
    /// # Errors
    /// [`MpsHostError`]: `Away` when `patience` is over, `Refused` if impossible.
    pub async fn ensure(&self, wanted: Ensure, patience: Duration) -> Result<Daemon, MpsHostError> {
        match self.ask(Operation::Ensure(wanted), patience).await? {
            Response::Ready(daemon) => Ok(*daemon),
            other => Err(unexpected(other)),
        }
    }

    /// Ends the daemon of a device. Returns the clients whose contexts were lost. Does nothing without a daemon.
    ///
    /// # Errors
    /// [`MpsHostError`]. `patience` begins after the clients' grace period.
    pub async fn release(&self, order: Release, patience: Duration) -> Result<Vec<u32>, MpsHostError> {
        let patience = patience + Duration::from_secs(order.grace_seconds.into());
        match self.ask(Operation::Release(order), patience).await? {
            Response::Released { ended_clients } => Ok(ended_clients),
            other => Err(unexpected(other)),
        }
    }

    /// All daemons, by device.
    ///
    /// # Errors
    /// [`MpsHostError`]
    pub async fn list(&self, patience: Duration) -> Result<Vec<Daemon>, MpsHostError> {
        match self.ask(Operation::List, patience).await? {
            Response::Daemons(daemons) => Ok(daemons),
            other => Err(unexpected(other)),
        }
    }

    /// The clients of every daemon, by device. Queries every daemon, so the answer may take seconds.
    ///
    /// # Errors
    /// [`MpsHostError`]; `Refused` by an mps-host too old to know the request.
    pub async fn clients(&self, patience: Duration) -> Result<Vec<DaemonClients>, MpsHostError> {
        match self.ask(Operation::Clients, patience).await? {
            Response::Clients(clients) => Ok(clients),
            other => Err(unexpected(other)),
        }
    }

    /// Events from now on. They end with the supervisor: then subscribe again, and list the daemons. Asks once only.
    ///
    /// # Errors
    /// [`MpsHostError`]
    pub async fn events(&self, patience: Duration) -> Result<Events, MpsHostError> {
        let subscribe = async {
            let (mut reader, mut writer) = self.connect().await?;
            send(&mut writer, Operation::Subscribe).await?;
            Ok((receive(&mut reader).await?, reader, writer))
        };
        let answer = tokio::time::timeout(patience, subscribe).await;
        let answer = answer.map_err(|_| self.away(&format!("no answer within {patience:?}")))?;
        match answer.map_err(|error: io::Error| self.away(&error.to_string()))? {
            (Response::Subscribed, reader, writer) => Ok(Events { reader, _writer: writer }),
            (other, ..) => Err(unexpected(other)),
        }
    }

    async fn ask(&self, operation: Operation, patience: Duration) -> Result<Response, MpsHostError> {
        let end = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = match tokio::time::timeout_at(end, self.ask_once(operation.clone())).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => error.to_string(),
                Err(_) => return Err(self.away(&format!("no answer within {patience:?}"))),
            };
            if Instant::now() + pause >= end {
                return Err(self.away(&reason));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn ask_once(&self, operation: Operation) -> io::Result<Response> {
        let (mut reader, mut writer) = self.connect().await?;
        send(&mut writer, operation).await?;
        receive(&mut reader).await
    }

    async fn connect(&self) -> io::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
        let stream = UnixStream::connect(&self.socket).await?;
        let user = stream.peer_cred()?.uid();
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            let text = format!("the socket is that of user {user}, who is not root: remove it");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let (reader, writer) = stream.into_split();
        Ok((BufReader::new(reader), writer))
    }

    fn away(&self, reason: &str) -> MpsHostError {
        MpsHostError::Away { socket: self.socket.clone(), reason: reason.to_owned() }
    }
}

/// Events of the supervisor, as they happen.
#[derive(Debug)]
pub struct Events {
    reader: BufReader<OwnedReadHalf>,
    _writer: OwnedWriteHalf,
}

impl Events {
    /// The next event known to this build; `None` when the supervisor is gone.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let line = read_line(&mut self.reader).await.ok()??;
            match serde_json::from_slice(&line) {
                Ok(Response::Event(event)) => return Some(event),
                Ok(_) => return None,
                // From a newer mps-host. Pause, so that a stream of garbage does not take all processor time.
                Err(error) => {
                    tracing::debug!(%error, "an event of mps-host that is not understood");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }
}

async fn send(writer: &mut OwnedWriteHalf, operation: Operation) -> io::Result<()> {
    write_line(writer, &Request { version: VERSION, operation }).await
}

async fn receive(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Response> {
    let line = read_line(reader).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(serde_json::from_slice(&line)?)
}

fn unexpected(response: Response) -> MpsHostError {
    match response {
        Response::Error { code, message } => MpsHostError::Refused { code, message },
        other => MpsHostError::OtherAnswer(format!("{other:?}")),
    }
}
