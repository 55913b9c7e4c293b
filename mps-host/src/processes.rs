//! The processes of MPS daemons and servers.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::DaemonDirectory;

/// The kernel's name of MPS programs: the first 15 bytes.
const NAME: &str = "nvidia-cuda-mps";

/// The MPS program of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A control daemon.
    Daemon,
    /// A server.
    Server,
}

/// A process, held by a descriptor, because its id may be reused after its end.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Its id.
    pub pid: u32,
    /// Start time, in ticks of the kernel since boot; `None` for an already ended process.
    started: Option<u64>,
    handle: Arc<OwnedFd>,
}

impl Process {
    /// Opens a process. Check other known properties afterwards, because the id may belong to another process by now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = Arc::new(pidfd_open(raw, PidfdFlags::empty())?);
        Ok(Self { pid, started: started(pid), handle })
    }

    /// Identifies the process within this boot, even after its id is reused.
    pub fn instance(&self) -> Option<String> {
        self.started.map(|started| format!("{}-{started}", self.pid))
    }

    /// Waits until the process has ended.
    pub async fn exited(&self) {
        // Deprecated for types whose descriptor may change from call to call, unlike here. The replacement is unsafe to
        // call.
        #[allow(deprecated)]
        let watch = |handle| AsyncFd::with_interest(handle, Interest::READABLE);
        match self.handle.try_clone().and_then(watch) {
            Ok(watched) => drop(watched.readable().await),
            Err(error) => {
                // Happens only without free descriptors or memory.
                tracing::warn!(pid = self.pid, %error, "cannot watch a process; looking at it from time to time");
                while self.is_alive() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&*self.handle, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
    }

    /// Kills the process, and waits until it has ended.
    pub async fn kill(&self) {
        // Fails if the process has ended already.
        let _ = pidfd_send_signal(&*self.handle, Signal::KILL);
        let _ = tokio::time::timeout(Duration::from_secs(10), self.exited()).await;
    }
}

/// Start time of a process (`starttime` of `proc_pid_stat(5)`).
fn started(pid: u32) -> Option<u64> {
    /// Position of `starttime` among the fields after the program's name, which may contain blanks.
    const POSITION: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(POSITION)?.parse().ok()
}

/// The daemon of this directory, if alive: the process whose id the daemon wrote there or, if a container has replaced
/// the file, the process found by a search.
pub(super) fn daemon(directory: &DaemonDirectory) -> Option<Process> {
    let written = read_pid(&directory.pid()).ok().and_then(|pid| {
        let process = Process::open(pid).ok()?;
        (role(pid, &directory.pipe) == Some(Role::Daemon)).then_some(process)
    });
    written.or_else(|| {
        let found = all(directory).into_iter().find(|(role, _)| *role == Role::Daemon);
        found.map(|(_, process)| process)
    })
}

/// Reads a file within reach of containers. A link or a pipe in its place must not lead elsewhere or block.
fn read_pid(path: &Path) -> io::Result<u32> {
    const LONGEST: u64 = 64;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The server with this id, if it belongs to this directory.
pub(super) fn server(pid: u32, directory: &DaemonDirectory) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    (role(pid, &directory.pipe) == Some(Role::Server)).then_some(process)
}

/// All running daemons and servers of this directory, whatever its files say.
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

/// The MPS program run by a process of this pipe directory; `None` for other directories, and for programs other than
/// daemon and server. A process can fake its name, arguments and environment, so processes of containers, being in
/// another process namespace, don't count.
fn role(pid: u32, pipe: &Path) -> Option<Role> {
    let namespace = |process: &dyn std::fmt::Display| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    if namespace(&pid)? != namespace(&"self")? {
        return None;
    }
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
    // Without options the program is a shell to a daemon.
    let is_daemon = program.ends_with(b"nvidia-cuda-mps-control") && words.any(|word| word.starts_with(b"-"));
    is_daemon.then_some(Role::Daemon)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_put_in_the_place_of_the_file_is_not_followed_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        assert!(read_pid(&path).is_err());
        fs::write(&path, "4711\n").unwrap();
        assert_eq!(read_pid(&path).unwrap(), 4711);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_pid(&link).is_err(), "a link");
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        assert!(read_pid(&pipe).is_err(), "a pipe that nobody writes to");
        assert!(read_pid(directory.path()).is_err(), "a directory");
        for text in ["", "-1", "rubbish", "4711 4712", &"9".repeat(1 << 20)] {
            fs::write(&path, text).unwrap();
            assert!(read_pid(&path).is_err());
        }
    }
}
