//! The outermost process: starts the cluster, waits for its end or its owner's, and cleans up.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        signal::{SigSet, Signal, kill},
        signalfd::SignalFd,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, read, setsid},
};
use tessera_harness::host::{HostConfiguration, MachineConfiguration, RELEASE, SupervisorConfiguration};

use crate::{cgroups, leftovers};

pub fn main(configuration: &SupervisorConfiguration) -> Result<ExitCode> {
    // Ctrl-C goes to the owner only, whose end then ends us.
    setsid().context("setsid")?;
    let state = &configuration.state;
    let mut lock = File::create(state.join("lock")).context("cannot create the cluster's lock")?;
    lock.try_lock().context("another supervisor has this cluster")?;
    lock.write_all(leftovers::LOCK_CONTENT)?;
    if let Some(parent) = state.parent() {
        leftovers::remove_stale(parent);
    }

    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;
    let signals = SignalFd::new(&signals).context("signalfd")?;

    let started = start(configuration);
    if let Ok(child) = started
        && !watch(child, &signals)
    {
        stop(configuration, child);
    }
    cgroups::remove(state);
    leftovers::remove_state(state);
    started.map(|_| ExitCode::SUCCESS)
}

/// Starts the cluster's first process: pid 1 of new namespaces, or the host itself.
fn start(configuration: &SupervisorConfiguration) -> Result<Pid> {
    let state = &configuration.state;
    let socket = state.join("control.sock");
    let mut command = Command::new("/proc/self/exe");
    if configuration.isolated {
        // Bound outside and accepted from inside: the only way from the machine's loopback into the cluster.
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on the loopback")?;
        fs::write(state.join("port"), listener.local_addr()?.port().to_string())?;
        let directory = state.join("control-plane");
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&directory)?;
        let machine = MachineConfiguration {
            name: "control-plane".to_owned(),
            directory,
            state: state.clone(),
            node: false,
            visible: configuration.visible.clone(),
        };
        cgroups::create(state).context("cannot make the cluster's cgroups")?;
        unshare(CloneFlags::CLONE_NEWPID).context("cannot make a process namespace")?;
        command.arg("init").arg(serde_json::to_string(&machine)?).stdin(Stdio::from(OwnedFd::from(listener)));
    } else {
        let host = HostConfiguration { socket, isolated: false, forward: None };
        command.arg("host").arg(serde_json::to_string(&host)?).stdin(Stdio::null());
    }
    let child = command.spawn().context("cannot start the cluster's first process")?;
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// Waits until the cluster has ended by itself (true), or must be ended (false).
fn watch(child: Pid, signals: &SignalFd) -> bool {
    let stdin = io::stdin();
    let mut owned = true;
    loop {
        let mut sources = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if owned {
            sources.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut sources, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                eprintln!("cluster-host: poll: {error}");
                return false;
            }
        }
        let happened = |source: Option<&PollFd<'_>>| source.and_then(PollFd::any).unwrap_or(false);
        if happened(sources.first()) {
            let signal = signals.read_signal().ok().flatten();
            if signal.is_some_and(|signal| signal.ssi_signo != Signal::SIGCHLD as u32) {
                return false;
            }
            match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                _ => return true,
            }
        }
        if happened(sources.get(1)) {
            let mut word = [0];
            match read(&stdin, &mut word) {
                Ok(1) if word == [RELEASE] => owned = false,
                Err(Errno::EINTR) => {}
                // The owner has ended, for any reason.
                _ => return false,
            }
        }
    }
}

/// Ends the cluster. Pid 1 of a process namespace is gone only after all other processes in the namespace.
fn stop(configuration: &SupervisorConfiguration, child: Pid) {
    let deadline = Instant::now() + Duration::from_secs(3);
    let _ = kill(child, if configuration.isolated { Signal::SIGKILL } else { Signal::SIGTERM });
    while let Ok(WaitStatus::StillAlive) = waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        if Instant::now() > deadline {
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Name of a cluster, also used for its cgroups.
pub fn cluster_name(state: &Path) -> &str {
    state.file_name().and_then(|name| name.to_str()).unwrap_or("tessera")
}
