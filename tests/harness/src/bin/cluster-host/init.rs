//! Pid 1 of a machine: creates its namespaces, starts its host, and reaps orphans.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{Pid, sethostname},
};
use tessera_harness::host::{HostConfiguration, MachineConfiguration};

use crate::{cgroups, mounts};

/// Starts another machine from inside the first, and runs until the machine ends.
pub fn start_machine(configuration: &MachineConfiguration) -> Result<ExitCode> {
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a process namespace")?;
    let mut child = Command::new("/proc/self/exe")
        .arg("init")
        .arg(serde_json::to_string(configuration)?)
        .spawn()
        .context("cannot start the machine's first process")?;
    fs::write(configuration.directory.join("init.pid"), child.id().to_string())?;
    let status = child.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn main(configuration: &MachineConfiguration) -> Result<ExitCode> {
    // As pid 1, its death kills everything in its process namespace.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if std::process::id() != 1 {
        bail!("init must be the first process of a process namespace");
    }
    if configuration.node {
        cgroups::join(&configuration.state, &configuration.name)
            .context("cannot join the machine's cgroups")?;
    }
    let mut namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if configuration.node {
        namespaces |= CloneFlags::CLONE_NEWCGROUP;
    }
    unshare(namespaces).context("cannot make namespaces")?;
    sethostname(&configuration.name).context("sethostname")?;
    mounts::set_up(configuration).context("cannot set up the machine's mounts")?;

    let host = HostConfiguration {
        socket: if configuration.node {
            configuration.directory.join("control.sock")
        } else {
            configuration.state.join("control.sock")
        },
        isolated: true,
        forward: (!configuration.node).then(|| "127.0.0.1:443".to_owned()),
    };
    let child = Command::new("/proc/self/exe")
        .arg("host")
        .arg(serde_json::to_string(&host)?)
        .spawn()
        .context("cannot start the host")?;
    Ok(reap(Pid::from_raw(i32::try_from(child.id())?)))
}

/// Reaps until the host ends; returning then ends the namespace.
fn reap(host: Pid) -> ExitCode {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(process, code)) if process == host => {
                return if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            Ok(WaitStatus::Signaled(process, ..)) if process == host => return ExitCode::FAILURE,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
