//! A node with mps-host.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tessera_mps_host::client::{MpsHost, MpsHostError};
use tessera_mps_host::protocol::{Daemon, DaemonState, Ensure, Release, Settings};

use crate::machine::{EmulatedMachine, mps_host};

pub use crate::poll::LONG;

pub struct Host {
    pub machine: EmulatedMachine,
    directory: TempDir,
    child: Option<Child>,
}

impl Host {
    /// A node with a running mps-host.
    pub fn new(hardware: &str) -> Self {
        let mut host = Self::without(hardware);
        host.start();
        host
    }

    /// A node without a running mps-host yet.
    pub fn without(hardware: &str) -> Self {
        Self::on(EmulatedMachine::new(hardware))
    }

    /// A node with this machine, without a running mps-host yet.
    pub fn on(machine: EmulatedMachine) -> Self {
        let directory = tempfile::Builder::new().prefix("p").rand_bytes(5).tempdir_in("/tmp").unwrap();
        Self { machine, directory, child: None }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn log(&self) -> PathBuf {
        self.directory().join("log")
    }

    pub fn start(&mut self) {
        self.start_with(&["--shared-memory", "none"]);
    }

    pub fn start_with(&mut self, arguments: &[&str]) {
        // With the usual soft limit on open files.
        let mut program = Command::new("/bin/sh");
        program.args(["-c", "ulimit -Sn 1024 && exec \"$0\" \"$@\""]).arg(mps_host());
        self.start_as(program, &self.machine.root(), arguments);
    }

    /// Starts mps-host in its own mount namespace with this driver root, by a shell script ending with `exec "$0" "$@"`.
    pub fn start_after(&mut self, script: &str, driver_root: &Path) {
        let mut program = Command::new("unshare");
        let own = mps_host().to_str().unwrap();
        program.args(["--mount", "--propagation", "private", "sh", "-c", script, own]);
        self.start_as(program, driver_root, &[]);
    }

    fn start_as(&mut self, mut program: Command, driver_root: &Path, arguments: &[&str]) {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let child = program
            .arg("--directory")
            .arg(self.directory())
            .arg("--driver-root")
            .arg(driver_root)
            .args(["--log-level", "debug"])
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn client(&self) -> MpsHost {
        MpsHost::new(self.directory())
    }

    pub fn reaper(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Process id of the supervisor.
    pub fn supervisor(&self) -> Option<u32> {
        children(self.reaper()).into_iter().find(|pid| command_line(*pid).contains(" supervisor"))
    }

    /// A request for a daemon of a card.
    pub fn wish(&self, card: usize, settings: Settings) -> Ensure {
        let card = &self.machine.cards()[card];
        let (uuid, pci) = (card["uuid"].as_str().unwrap(), card["pci"].as_str().unwrap());
        Ensure::of_shares(uuid.parse().unwrap(), pci.parse().unwrap(), settings)
    }

    pub async fn ensure(&self, card: usize, settings: Settings) -> Result<Daemon, MpsHostError> {
        self.client().ensure(self.wish(card, settings), LONG).await
    }

    /// A daemon for the first card.
    pub async fn first(&self) -> Daemon {
        self.ensure(0, Settings::default())
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log_text()))
    }

    pub async fn release(&self, card: usize, grace_seconds: u32) -> Result<Vec<u32>, MpsHostError> {
        let device = self.wish(card, Settings::default()).device;
        self.client().release(Release { device, grace_seconds, owner: None }, LONG).await
    }

    pub async fn list(&self) -> Vec<Daemon> {
        self.client().list(LONG).await.unwrap()
    }

    /// Waits for a daemon of the first card for which `is_so` holds.
    pub async fn daemon(&self, what: &str, is_so: impl Fn(&Daemon) -> bool) -> Daemon {
        let since = Instant::now();
        loop {
            let daemons = self.list().await;
            if let Some(daemon) = daemons.first().filter(|daemon| is_so(daemon)) {
                return daemon.clone();
            }
            assert!(since.elapsed() < LONG, "never {what}: {daemons:?}\n{}", self.log_text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for a running daemon of the first card, other than this one.
    pub async fn other_than(&self, pid: Option<u32>) -> Daemon {
        self.daemon("another runs", |daemon| daemon.state == DaemonState::Running && daemon.pid != pid).await
    }

    pub async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let since = Instant::now();
        while !condition() {
            assert!(since.elapsed() < LONG, "never {what}; the log is\n{}", self.log_text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The emulated state of a card.
    pub fn card(&self, index: usize) -> Value {
        // nvidia-smi uses NVML, and so the emulator notices dead processes.
        let listed = Command::new(self.machine.root().join("bin/nvidia-smi")).arg("-L").output().unwrap();
        assert!(listed.status.success());
        let text = fs::read_to_string(self.machine.root().join("state/state.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["cards"][index].clone()
    }

    /// Kills mps-host and all its processes, like the end of its pod.
    pub fn end_pod(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let all = descendants(child.id());
        child.kill().unwrap();
        for pid in all {
            kill(pid, Signal::KILL);
        }
        child.wait().unwrap();
        let since = Instant::now();
        while !self.mps_processes().is_empty() {
            for pid in self.mps_processes() {
                kill(pid, Signal::KILL);
            }
            assert!(since.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills only mps-host: its child processes go on.
    pub fn kill_reaper(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends SIGTERM, like the kubelet.
    pub fn terminate(&self) {
        kill(self.reaper(), Signal::TERM);
    }

    /// Whether mps-host has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Running daemons and servers of this node.
    pub fn mps_processes(&self) -> Vec<u32> {
        let is_mps = |pid: &u32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.starts_with("nvidia-cuda-mps")
        };
        self.processes_of_pipes().filter(is_mps).collect()
    }

    /// Processes with one of this node's pipe directories in their environment, including those about to become a
    /// daemon.
    fn processes_of_pipes(&self) -> impl Iterator<Item = u32> {
        let needle = format!("CUDA_MPS_PIPE_DIRECTORY={}/", self.directory().display());
        processes().filter(move |pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&needle)
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let all = descendants(child.id());
            let _ = child.kill();
            for pid in all {
                kill(pid, Signal::KILL);
            }
            let _ = child.wait();
        }
        // A daemon being started comes up even without its parent.
        let (since, mut quiet) = (Instant::now(), 0);
        while quiet < 3 && since.elapsed() < LONG {
            quiet += 1;
            for pid in self.processes_of_pipes() {
                kill(pid, Signal::KILL);
                quiet = 0;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A file system mounted by a test.
        for entry in fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let shm = entry.path().join("shm");
            if let (Ok(own), Ok(parent)) = (shm.metadata(), entry.metadata())
                && own.dev() != parent.dev()
            {
                let _ = Command::new("umount").arg("-l").arg(&shm).status();
            }
        }
    }
}

/// A file system, unmounted on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn tmpfs(path: &Path, options: &str) -> Self {
        let arguments = ["-t", "tmpfs", "-o", options, "mps"];
        assert!(Command::new("mount").args(arguments).arg(path).status().unwrap().success());
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Sends a signal to a process, which may be gone.
pub fn kill(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Children of a process, including ended ones not yet reaped.
pub fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().collect::<Vec<_>>());
        fields.is_some_and(|fields| fields[1] == parent.to_string())
    };
    processes().filter(is_child).collect()
}

fn descendants(parent: u32) -> Vec<u32> {
    let children = children(parent);
    children.iter().flat_map(|child| descendants(*child)).chain(children.iter().copied()).collect()
}

/// State of a process: `R`, `S`; `Z` if ended and not reaped.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process exists and has not ended.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}
