use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::{Instant, sleep},
};

use super::protocol::{
    Channel, CommandLine, Exit, NetworkConfiguration, ProcessState, Request, Response, Target,
};

/// Why a request to a `cluster-host` process failed.
#[derive(Debug, Error)]
pub enum HostError {
    /// No listener on its socket: the host has ended, or never started.
    #[error("cluster-host does not answer on {}: {source}", .socket.display())]
    Unreachable {
        /// Its socket.
        socket: PathBuf,
        /// The error of the connection.
        #[source]
        source: io::Error,
    },
    /// The host ended, or sent an invalid answer.
    #[error("cluster-host on {} gave no proper answer: {message}", .socket.display())]
    Answer {
        /// Its socket.
        socket: PathBuf,
        /// The defect of the answer.
        message: String,
    },
    /// The host could not carry out the request.
    #[error("{0}")]
    Failed(String),
}

/// Result of a program run to its end.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code or signal; `None` if killed at its time limit.
    pub exit: Option<Exit>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.exit.is_some_and(|exit| exit.code == Some(0))
    }
}

/// A running `cluster-host host`: access to the namespaces of one machine.
#[derive(Clone, Debug)]
pub struct Host {
    socket: PathBuf,
}

impl Host {
    /// The host listening on `socket`; does not connect yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits for the host's first answer.
    ///
    /// # Errors
    /// The last [`HostError`], once `limit` has passed.
    pub async fn wait(&self, limit: Duration) -> Result<(), HostError> {
        let end = Instant::now() + limit;
        loop {
            match self.processes().await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Starts a process and returns its id inside.
    ///
    /// # Errors
    /// The program cannot be started, or a process of the same name is running.
    pub async fn spawn(&self, name: &str, command: CommandLine, log: PathBuf) -> Result<u32, HostError> {
        match self.request(&Request::Spawn { name: name.to_owned(), command, log }).await? {
            Response::Spawned { process } => Ok(process),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends a signal to a process by its name.
    ///
    /// # Errors
    /// No such process runs.
    pub async fn signal(&self, name: &str, signal: Signal) -> Result<(), HostError> {
        self.done(&Request::Signal { target: Target::Name(name.to_owned()), signal: signal as i32 }).await
    }

    /// Sends a signal to any process, by its id inside.
    ///
    /// # Errors
    /// There is no such process.
    pub async fn signal_process(&self, process: i32, signal: Signal) -> Result<(), HostError> {
        self.done(&Request::Signal { target: Target::Process(process), signal: signal as i32 }).await
    }

    /// Sends TERM, then KILL after `grace`, and waits for the end.
    ///
    /// # Errors
    /// No process of this name was ever started.
    pub async fn stop(&self, name: &str, grace: Duration) -> Result<Exit, HostError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ended(&Request::Stop { name: name.to_owned(), grace_ms }).await
    }

    /// Waits for a process to end.
    ///
    /// # Errors
    /// No process of this name was ever started.
    pub async fn wait_for_exit(&self, name: &str) -> Result<Exit, HostError> {
        self.ended(&Request::Wait { name: name.to_owned() }).await
    }

    /// All processes started by [`Host::spawn`], by name.
    ///
    /// # Errors
    /// Only when the host is gone.
    pub async fn processes(&self) -> Result<Vec<ProcessState>, HostError> {
        match self.request(&Request::Processes).await? {
            Response::Processes { processes } => Ok(processes),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// The program cannot be started. [`Output::success`] is false for a failed one.
    pub async fn run(
        &self,
        command: CommandLine,
        input: Option<String>,
        limit: Duration,
    ) -> Result<Output, HostError> {
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match self.request(&Request::Run { command, input, timeout_ms }).await? {
            Response::Output { exit, stdout, stderr } => Ok(Output { exit, stdout, stderr }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Connects to an address or unix socket like a process inside.
    ///
    /// # Errors
    /// There is no listener.
    pub async fn dial(&self, channel: Channel) -> Result<UnixStream, HostError> {
        let (response, stream) = self.exchange(&Request::Dial { channel }).await?;
        match response {
            Response::Done => Ok(stream),
            Response::Failed { message } => Err(HostError::Failed(message)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Adds network interfaces, addresses and routes.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn network(&self, configuration: NetworkConfiguration) -> Result<(), HostError> {
        self.done(&Request::Network(configuration)).await
    }

    /// Ends the host and all its processes.
    ///
    /// # Errors
    /// Only when the host is gone already.
    pub async fn shutdown(&self) -> Result<(), HostError> {
        self.done(&Request::Shutdown).await
    }

    async fn done(&self, request: &Request) -> Result<(), HostError> {
        match self.request(request).await? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn ended(&self, request: &Request) -> Result<Exit, HostError> {
        match self.request(request).await? {
            Response::Ended(exit) => Ok(exit),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn request(&self, request: &Request) -> Result<Response, HostError> {
        match self.exchange(request).await?.0 {
            Response::Failed { message } => Err(HostError::Failed(message)),
            response => Ok(response),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<(Response, UnixStream), HostError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| HostError::Unreachable { socket: self.socket.clone(), source })?;
        // The bytes after the answer to Dial belong to the caller, so nothing may be read ahead.
        let capacity = if matches!(request, Request::Dial { .. }) { 1 } else { 64 * 1024 };
        let mut stream = BufReader::with_capacity(capacity, stream);
        let broken = |message: String| HostError::Answer { socket: self.socket.clone(), message };
        let mut line = serde_json::to_vec(request).map_err(|error| broken(error.to_string()))?;
        line.push(b'\n');
        stream.write_all(&line).await.map_err(|error| broken(error.to_string()))?;
        let mut answer = Vec::new();
        stream.read_until(b'\n', &mut answer).await.map_err(|error| broken(error.to_string()))?;
        let response = serde_json::from_slice(&answer)
            .map_err(|error| broken(format!("{error} in {:?}", String::from_utf8_lossy(&answer))))?;
        Ok((response, stream.into_inner()))
    }

    fn unexpected(&self, response: &Response) -> HostError {
        HostError::Answer { socket: self.socket.clone(), message: format!("unexpected {response:?}") }
    }
}
