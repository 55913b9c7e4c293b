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
    /// When it was started, in ticks of the kernel since the boot; none of a process that had ended already.
    started: Option<u64>,
    handle: Arc<OwnedFd>,
}

impl Process {
    /// Takes hold of a process. What else is known of it must be checked after this, for the id may be another's by now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = Arc::new(pidfd_open(raw, PidfdFlags::empty())?);
        Ok(Self { pid, started: started(pid), handle })
    }

    /// What tells it from every other process of this boot, also from one that gets its id later.
    pub fn instance(&self) -> Option<String> {
        self.started.map(|started| format!("{}-{started}", self.pid))
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

/// When a process was started (`starttime` of `proc_pid_stat(5)`).
fn started(pid: u32) -> Option<u64> {
    /// Position of `starttime` among the fields after the program's name, which may have blanks.
    const POSITION: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(POSITION)?.parse().ok()
}

/// The daemon of this directory, if it lives: the one that wrote its id there, or, where a container has put something else
/// in that file's place, the one that is found.
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

/// Reads a file that containers can reach: a link or a pipe in its place must not lead elsewhere, nor hold anybody up.
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

/// The server with this id, if it is one of this directory.
pub(super) fn server(pid: u32, directory: &DaemonDirectory) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    (role(pid, &directory.pipe) == Some(Role::Server)).then_some(process)
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

/// What a process of this pipe directory runs; nothing where it is of another or no MPS program that stays. Name, arguments
/// and environment are what a process likes to show: one in a container, which has another process namespace, is none.
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
    // Without options it is a shell to a daemon.
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
