//! A client of an MPS server.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::mps::place::Place;
use crate::mps::wire::{self, FromDaemon, FromServer, Lines, ToDaemon, ToServer};
use crate::mps::{MPS_CONNECTION_FAILED, MPS_RPC_FAILURE, limits, partitions};

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    writer: UnixStream,
    answers: Receiver<FromServer>,
    /// The server's process id.
    pub server: u32,
    /// UUID of the device.
    pub uuid: String,
    /// Memory limit in bytes, if any.
    pub memory_limit: Option<u64>,
    /// Percent of the device's multiprocessors.
    pub percentage: f64,
    /// Multiprocessors of the client's static partition, if any.
    pub multiprocessors: Option<u32>,
}

/// Connects to the daemon in the directory named by the environment, if one answers.
pub fn daemon() -> Option<UnixStream> {
    UnixStream::connect(Place::of_environment().control()).ok()
}

impl Client {
    /// Connects by the daemon behind `daemon`. A client sees the daemon's devices, whatever its own environment;
    /// `device` is an index among them.
    ///
    /// # Errors
    /// The error of CUDA.
    pub fn connect(daemon: UnixStream, device: usize, uuid: &str) -> Result<Self, u32> {
        let variable = |name| std::env::var(name).ok();
        let memory_limit = variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
            .and_then(|limit| limits::for_device(&limit, device, uuid));
        let percentage =
            variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").and_then(|text| limits::percentage(&text));
        let partition = variable("CUDA_MPS_SM_PARTITION").and_then(|text| partitions::named(&text, uuid));
        let program = std::env::args().next().unwrap_or_default();
        let failed = |_| MPS_CONNECTION_FAILED;
        let mut lines = Lines::new(daemon).map_err(failed)?;
        lines.send(&ToDaemon::Client).map_err(failed)?;
        let server = match lines.receive().map_err(failed)? {
            Some(FromDaemon::Server(pid)) => pid,
            Some(FromDaemon::Error(code)) => return Err(code),
            _ => return Err(MPS_CONNECTION_FAILED),
        };
        let stream = UnixStream::connect(Place::of_environment().server(server)).map_err(failed)?;
        let mut writer = stream.try_clone().map_err(failed)?;
        wire::send(&mut writer, &ToServer::Connect { device, memory_limit, percentage, partition, program })
            .map_err(failed)?;
        let mut reader = io::BufReader::new(stream);
        let (uuid, memory_limit, percentage, multiprocessors) =
            match wire::receive(&mut reader).map_err(failed)? {
                Some(FromServer::Connected { uuid, memory_limit, percentage, multiprocessors }) => {
                    (uuid, memory_limit, percentage, multiprocessors)
                }
                Some(FromServer::Error(code) | FromServer::Lost(code)) => return Err(code),
                _ => return Err(MPS_CONNECTION_FAILED),
            };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(answer)) = wire::receive(&mut reader) {
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        Ok(Client { writer, answers, server, uuid, memory_limit, percentage, multiprocessors })
    }

    /// Sends a request. Returns the bytes held by the client afterwards.
    ///
    /// # Errors
    /// The error of CUDA.
    pub fn ask(&mut self, order: &ToServer) -> Result<u64, Failed> {
        // Writing fails if the server is gone; its last answer is still read.
        let _ = wire::send(&mut self.writer, order);
        match self.answers.recv() {
            Ok(FromServer::Holds(bytes)) => Ok(bytes),
            Ok(FromServer::Error(code)) => Err(Failed::Call(code)),
            Ok(FromServer::Lost(code)) => Err(Failed::Context(code)),
            Ok(FromServer::Connected { .. }) | Err(_) => Err(Failed::Context(MPS_RPC_FAILURE)),
        }
    }

    /// The error by which the context was lost, if lost within this time.
    pub fn lost(&self, within: Duration) -> Option<u32> {
        match self.answers.recv_timeout(within) {
            Ok(FromServer::Lost(code)) => Some(code),
            Ok(_) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Some(MPS_RPC_FAILURE),
        }
    }
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// This call only.
    Call(u32),
    /// The context is lost: all later calls fail.
    Context(u32),
}
