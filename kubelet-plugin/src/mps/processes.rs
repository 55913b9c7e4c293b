use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::DaemonDirectory;

/// How the kernel names MPS programs: the first 15 bytes.
const NAME: &str = "nvidia-cuda-mps";

/// Which MPS program a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A control daemon.
    Daemon,
    /// A server.
    Server,
}

/// A process, held so that its id is not taken for another's.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Its id.
    pub pid: u32,
    handle: Arc<OwnedFd>,
}

impl Process {
    /// Takes hold of a process. What else is known of it must be checked after this, for the id may be another's by now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { pid, handle: Arc::new(pidfd_open(raw, PidfdFlags::empty())?) })
    }

    /// Waits until it has ended.
    pub async fn exited(&self) {
        // Deprecated for types that may give another descriptor each time, which this one does not; what replaces it is
        // unsafe to call.
        #[allow(deprecated)]
        let watch = |handle| AsyncFd::with_interest(handle, Interest::READABLE);
        match self.handle.try_clone().and_then(watch) {
            Ok(watched) => drop(watched.readable().await),
            Err(error) => {
                // Only without descriptors or memory.
                tracing::warn!(pid = self.pid, %error, "cannot watch a process; looking at it from time to time");
                while self.is_alive() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&*self.handle, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
    }

    /// Ends it at once, and waits until it has ended.
    pub async fn kill(&self) {
        // One that has ended already cannot be signalled.
        let _ = pidfd_send_signal(&*self.handle, Signal::KILL);
        let _ = tokio::time::timeout(Duration::from_secs(10), self.exited()).await;
    }
}

/// The daemon that wrote its id into this directory, if it lives.
pub(super) fn daemon(directory: &DaemonDirectory) -> Option<Process> {
    let pid = fs::read_to_string(directory.pid()).ok()?.trim().parse().ok()?;
    let process = Process::open(pid).ok()?;
    (role(pid, &directory.pipe) == Some(Role::Daemon)).then_some(process)
}

/// All daemons and servers of this directory that live, whatever its files say.
pub(super) fn all(directory: &DaemonDirectory) -> Vec<(Role, Process)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if name.trim_end() != NAME {
            return None;
        }
        let process = Process::open(pid).ok()?;
        Some((role(pid, &directory.pipe)?, process))
    })
    .collect()
}

/// What a process of this pipe directory runs; nothing where it is of another or no MPS program that stays.
fn role(pid: u32, pipe: &Path) -> Option<Role> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let expected = [b"CUDA_MPS_PIPE_DIRECTORY=", pipe.as_os_str().as_encoded_bytes()].concat();
    if !environment.split(|byte| *byte == 0).any(|variable| variable == expected) {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = command.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    if program.ends_with(b"nvidia-cuda-mps-server") {
        return Some(Role::Server);
    }
    // Without options it is a shell to a daemon.
    let is_daemon = program.ends_with(b"nvidia-cuda-mps-control") && words.any(|word| word.starts_with(b"-"));
    is_daemon.then_some(Role::Daemon)
}
