//! The processes a host has started, by name.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tessera_harness::host::{CommandLine, Exit, ProcessState};
use tokio::{process::Command, sync::watch, task::spawn_local, time::timeout};

#[derive(Default)]
pub struct Processes {
    all: RefCell<BTreeMap<String, Process>>,
}

struct Process {
    id: i32,
    exit: watch::Receiver<Option<Exit>>,
}

impl Processes {
    pub fn spawn(&self, name: String, command: &CommandLine, log: &Path) -> Result<u32> {
        if self.running(&name).is_ok() {
            bail!("{name} runs already");
        }
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let mut child = Command::new("/proc/self/exe")
            .arg("exec")
            .arg(std::process::id().to_string())
            .args(&command.arguments)
            .envs(&command.environment)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let id = child.id().context("it has ended already")?;
        let (sender, exit) = watch::channel(None);
        spawn_local(async move {
            let ended = child.wait().await.map(self::exit).unwrap_or(Exit { code: None, signal: None });
            let _ = sender.send(Some(ended));
        });
        self.all.borrow_mut().insert(name, Process { id: i32::try_from(id)?, exit });
        Ok(id)
    }

    /// Id of a running process.
    pub fn running(&self, name: &str) -> Result<i32> {
        let all = self.all.borrow();
        let process = all.get(name).with_context(|| format!("no process {name} was started"))?;
        match *process.exit.borrow() {
            None => Ok(process.id),
            Some(exit) => bail!("{name} has ended with {exit}"),
        }
    }

    pub async fn wait(&self, name: &str) -> Result<Exit> {
        let mut exit = self
            .all
            .borrow()
            .get(name)
            .map(|process| process.exit.clone())
            .with_context(|| format!("no process {name} was started"))?;
        let ended = *exit.wait_for(Option::is_some).await.context("nobody waits for the process")?;
        ended.context("the process has not ended")
    }

    pub async fn stop(&self, name: &str, grace: Duration) -> Result<Exit> {
        if let Ok(process) = self.running(name) {
            let process = Pid::from_raw(process);
            if !grace.is_zero() {
                let _ = kill(process, Signal::SIGTERM);
                if let Ok(ended) = timeout(grace, self.wait(name)).await {
                    return ended;
                }
            }
            let _ = kill(process, Signal::SIGKILL);
        }
        self.wait(name).await
    }

    pub async fn kill_all(&self) {
        let names: Vec<String> = self.all.borrow().keys().cloned().collect();
        for name in &names {
            if let Ok(process) = self.running(name) {
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
        }
        for name in &names {
            let _ = self.wait(name).await;
        }
    }

    pub fn list(&self) -> Vec<ProcessState> {
        let all = self.all.borrow();
        all.iter()
            .map(|(name, process)| {
                let exit = *process.exit.borrow();
                let resident_kib = if exit.is_none() { resident_kib(process.id) } else { None };
                ProcessState { name: name.clone(), process: process.id.unsigned_abs(), resident_kib, exit }
            })
            .collect()
    }
}

/// How a process ended.
pub fn exit(status: ExitStatus) -> Exit {
    Exit { code: status.code(), signal: status.signal() }
}

fn resident_kib(process: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
