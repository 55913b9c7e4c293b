//! Child processes: started in process groups of their own, and reaped in one place, with the orphans of a pod's first
//! process.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
};

use anyhow::{Result, bail};
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::message::Ending;

/// This program's argument for [`become_command`].
pub const BECOME: &str = "exec";

/// Signals for commands and tasks.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Waits for all children of this process. Nothing else may wait for one.
#[derive(Default)]
pub struct Reaper {
    waiting: Mutex<BTreeMap<i32, Sender<Ending>>>,
}

/// A started process.
pub struct Process {
    /// Also the number of its process group.
    pub id: i32,
    /// Has the pipes. Never waited for.
    pub child: Child,
    /// Answers once.
    pub ended: Receiver<Ending>,
}

impl Reaper {
    /// Starts a process.
    pub fn start(&self, command: &mut Command) -> io::Result<Process> {
        // Held during the start: an end finds somebody waiting, and the standard library can reap a child without a program.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        let (sender, ended) = mpsc::channel();
        waiting.insert(id, sender);
        Ok(Process { id, child, ended })
    }

    /// Reaps all ended children: after each SIGCHLD.
    fn reap(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (process, ending) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(process, code)) => (process, Ending::Code(code as u8)),
                Ok(WaitStatus::Signaled(process, signal, _)) => (process, Ending::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) => return,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            if let Some(sender) = waiting.remove(&process.as_raw()) {
                // Fails if nobody asks any more.
                let _ = sender.send(ending);
            }
        }
    }
}

/// A command whose process has no signal blocked. Children have their parent's mask, so this program takes it off
/// ([`become_command`]) before it becomes the command.
pub fn command(program: &OsStr) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([OsStr::new(BECOME), program]);
    command
}

/// The other half of [`command`]. Returns only on failure, with Slurm's exit code: the number of the error.
pub fn become_command(arguments: &[OsString]) -> Result<u8> {
    let [program, arguments @ ..] = arguments else { bail!("a command is needed") };
    SigSet::empty().thread_set_mask()?;
    let error = Command::new(program).args(arguments).exec();
    eprintln!("gpu-run: cannot run {}: {error}", program.display());
    Ok(error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Blocks the signals of [`for_each_signal`]. Before any thread is started: threads inherit the mask.
pub fn block_signals() -> nix::Result<()> {
    signals().thread_block()
}

/// Reaps children and gives the other signals to `forward`, for ever. In a thread of its own.
pub fn for_each_signal(reaper: &Reaper, mut forward: impl FnMut(Signal)) {
    let signals = signals();
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => reaper.reap(),
            Ok(signal) => forward(signal),
            // Only an interruption.
            Err(_) => {}
        }
    }
}

fn signals() -> SigSet {
    FORWARDED.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// A signal for a whole process group, if there still is one.
pub fn signal_group(group: i32, signal: Signal) {
    // A group below 2 would be everybody.
    if group > 1 {
        let _ = nix::sys::signal::killpg(Pid::from_raw(group), signal);
    }
}
