//! `mps-host`: reaps processes, and restarts the supervisor.
//!
//! Its end would end every daemon in its container, so this process does as little as possible: no threads, no files,
//! no requests.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser as _;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::control::own_program;
use super::options::Options;
use super::supervise;
use tessera_kube_util::logging;

/// First and longest pause before the supervisor is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A supervisor is restarted at once after running this long.
const STABLE: Duration = Duration::from_secs(30);

/// Runs until told to end and no process is left to reap. `arguments` follow the program's name.
#[must_use]
pub fn main(arguments: &[OsString]) -> ExitCode {
    let options =
        Options::parse_from(std::iter::once(OsString::from("mps-host")).chain(arguments.iter().cloned()));
    if let Err(error) = logging::install(&options.log_filter(), options.log_format, || {}) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Daemons detach from their starting process. As a subreaper this process gets them even in the node's process
    // namespace, where it is not pid 1.
    let prepared = prctl::set_child_subreaper(true).and_then(|()| signals.thread_block());
    if let Err(error) = prepared {
        tracing::error!(%error, "cannot become a reaper");
        return ExitCode::FAILURE;
    }
    Reaper { arguments: arguments.to_vec(), supervisor: None, started: Instant::now(), pause: FIRST_PAUSE }
        .run(&signals)
}

struct Reaper {
    arguments: Vec<OsString>,
    supervisor: Option<Pid>,
    started: Instant,
    pause: Duration,
}

impl Reaper {
    fn run(mut self, signals: &SigSet) -> ExitCode {
        let mut ending = false;
        self.start();
        loop {
            match signals.wait() {
                Ok(Signal::SIGTERM | Signal::SIGINT) => {
                    ending = true;
                    if let Some(supervisor) = self.supervisor {
                        // Fails if the supervisor has just ended; then it is reaped next.
                        let _ = kill(supervisor, Signal::SIGTERM);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot wait for signals");
                    std::thread::sleep(LONGEST_PAUSE);
                }
            }
            let has_children = self.reap();
            if ending && self.supervisor.is_none() {
                if !has_children {
                    return ExitCode::SUCCESS;
                }
                tracing::info!("waiting for MPS daemons that have clients");
            } else if self.supervisor.is_none() {
                self.start_again();
            }
        }
    }

    /// Reaps all ended children; returns whether there are others.
    fn reap(&mut self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(status) => {
                    if status.pid().is_some() && status.pid() == self.supervisor {
                        tracing::warn!(?status, "the supervisor ended");
                        self.supervisor = None;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn start_again(&mut self) {
        if self.started.elapsed() > STABLE {
            self.pause = FIRST_PAUSE;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.start();
    }

    fn start(&mut self) {
        self.started = Instant::now();
        loop {
            let mut command = Command::new(own_program());
            match command.arg(supervise::SUBCOMMAND).args(&self.arguments).spawn() {
                Ok(child) => {
                    self.supervisor = i32::try_from(child.id()).ok().map(Pid::from_raw);
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot start the supervisor; trying again");
                    std::thread::sleep(LONGEST_PAUSE);
                }
            }
        }
    }
}
