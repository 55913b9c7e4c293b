//! A machine and its MPS daemon.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub struct Machine {
    directory: TempDir,
}

impl Machine {
    pub fn new(hardware: &str) -> Self {
        Self::with(hardware, &[])
    }

    /// One made with more options.
    pub fn with(hardware: &str, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("m").rand_bytes(5).tempdir_in("/tmp").unwrap();
        let machine = Machine { directory };
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-emulator"))
            .args(["create".as_ref(), machine.root().as_os_str()])
            .args(["--hardware", hardware])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        machine
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("m")
    }

    pub fn pipe(&self) -> PathBuf {
        self.directory.path().join("pipe")
    }

    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// A program of the machine, with an environment that leads to its daemon.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.root().join("bin").join(name));
        command
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", self.pipe())
            .env("CUDA_MPS_LOG_DIRECTORY", self.log())
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon for the first card.
    pub fn start(&self) -> Output {
        self.start_with(&[])
    }

    pub fn start_with(&self, options: &[&str]) -> Output {
        let mut command = self.program("nvidia-cuda-mps-control");
        command.args(["-d", "-M"]).args(options).env("CUDA_VISIBLE_DEVICES", "0").output().unwrap()
    }

    /// UUID of the first card.
    pub fn uuid(&self) -> String {
        let text = fs::read_to_string(self.root().join("state/machine.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["cards"][0]["uuid"].as_str().unwrap().to_owned()
    }

    /// Hands the daemon a line; what it prints.
    pub fn order(&self, line: &str) -> String {
        let output = self.shell(line);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn shell(&self, line: &str) -> Output {
        let mut child = self
            .program("nvidia-cuda-mps-control")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
        child.wait_with_output().unwrap()
    }

    /// The state of a card.
    pub fn card(&self, index: usize) -> Value {
        // As whoever uses NVML does, which is what notices the dead.
        let listed = self.program("nvidia-smi").arg("-L").output().unwrap();
        assert!(listed.status.success());
        let text = fs::read_to_string(self.root().join("state/state.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["cards"][index].clone()
    }

    /// Kinds of the processes on the first card, in order.
    pub fn processes(&self) -> Vec<String> {
        let card = self.card(0);
        let processes = card["processes"].as_array().unwrap().iter();
        processes.map(|process| process["kind"].as_str().unwrap().to_owned()).collect()
    }

    pub fn pid(&self) -> Option<i32> {
        let text = fs::read_to_string(self.pipe().join("nvidia-cuda-mps-control.pid")).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let servers = self.order("get_server_list");
        for pid in self.pid().into_iter().chain(servers.lines().filter_map(|line| line.parse().ok())) {
            kill(pid);
        }
    }
}

/// Ends a process of the machine at once. Those that are gone, or are another's, are left.
pub fn kill(pid: i32) {
    let is_ours = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"))
        .is_ok_and(|name| name.starts_with("nvidia-cuda-mps"));
    if let (true, Some(pid)) = (is_ours, rustix::process::Pid::from_raw(pid)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(30), "never {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
