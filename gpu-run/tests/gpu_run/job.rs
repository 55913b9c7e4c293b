//! A job of several hosts on this machine, each a real `gpu-run host` with a port of its own.

use std::{
    fs,
    io::Read as _,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// For everything that is expected to end.
const PATIENCE: Duration = Duration::from_secs(180);

/// In the environment of all processes of a job: its folder.
const MARK: &str = "GPU_RUN_TEST";

/// A host that ends because of another one; the Job ignores it.
pub const DISRUPTED: i32 = 213;

/// Declared before its hosts, so that it is dropped after them: whatever still runs is killed then.
pub struct Job {
    pub folder: TempDir,
    pub ports: Vec<u16>,
    variables: Vec<(String, String)>,
}

/// A running host; killed if a test leaves it.
pub struct Host(Child);

/// What a host said, and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Job {
    pub fn new(hosts: usize, tasks_per_node: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), "a secret of the job alone\n").unwrap();
        fs::create_dir(folder.path().join("programs")).unwrap();
        let program = env!("CARGO_BIN_EXE_gpu-run");
        let installed = Command::new(program).arg("install").arg(folder.path()).status().unwrap();
        assert!(installed.success());
        let ports = (0..hosts).map(|_| free_port()).collect();
        Self { folder, ports, variables: Vec::new() }
            .with("GPU_RUN_TASKS_PER_NODE", &tasks_per_node.to_string())
            .with("GPU_RUN_KILL_WAIT", "5")
            .with("GPU_RUN_WAIT", "30")
            .with("SLURM_JOB_ID", "4711")
            .with("SLURM_JOB_NAME", "train")
    }

    /// A variable of all pods.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The names of the hosts.
    pub fn names(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// A command with a host's environment: `POD` and `HOSTNAME` are its own.
    pub fn command(&self, index: usize) -> Command {
        let mut command = Command::new(self.path().join("bin/gpu-run"));
        command
            .env_clear()
            .env("PATH", format!("{}/programs:/usr/bin:/bin", self.path().display()))
            .env("GPU_RUN_HOSTS", self.names().join(","))
            .env("GPU_RUN_INDEX", index.to_string())
            .env("GPU_RUN_KEY_FILE", self.path().join("key"))
            .env("HOSTNAME", format!("pod-{index}"))
            .env("POD", index.to_string())
            .env(MARK, self.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn host(&self, index: usize, command: &[&str]) -> Host {
        Host(self.command(index).arg("host").arg("--").args(command).spawn().unwrap())
    }

    /// Starts the hosts after the first, in a folder that is not the script's.
    pub fn others(&self) -> Vec<Host> {
        (1..self.ports.len()).map(|index| self.host(index, &["false"])).collect()
    }

    /// Runs a script on the first host, and the others until it ends.
    pub fn run(&self, script: &str) -> Said {
        let others = self.others();
        let said = self.host(0, &["bash", "-c", script]).wait();
        for (index, other) in others.into_iter().enumerate() {
            let other = other.wait();
            assert_eq!(
                other.code,
                others_code(said.code),
                "host {}: {}\nthe first: {}",
                index + 1,
                other.err,
                said.err
            );
            assert_eq!(other.out, "", "output of another host");
        }
        said
    }

    /// An executable script on the PATH of all hosts.
    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path().join("programs").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Whether one of the job's processes has this argument.
    pub fn runs(&self, word: &str) -> bool {
        self.processes().iter().any(|(_, line)| line.split('\0').any(|argument| argument == word))
    }

    /// Process numbers and command lines. Zombies have no environment any more.
    fn processes(&self) -> Vec<(Pid, String)> {
        let mark = format!("{MARK}={}", self.path().display());
        let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(process.path().join("environ")).ok()?;
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let is_own = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
            is_own.then(|| (Pid::from_raw(id), String::from_utf8_lossy(&line).into_owned()))
        });
        processes.collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > until {
                return;
            }
            for (process, _) in left {
                // Fails for one that has just ended.
                let _ = kill(process, Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Below the ports that Linux gives to outgoing connections, which would take one between two hosts' starts; another one
/// each time, also in other processes of this program.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(37).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + number % 22_000).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

impl Host {
    pub fn id(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    pub fn wait(mut self) -> Said {
        let (mut out, mut err) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        let out = thread::spawn(move || {
            let mut text = Vec::new();
            out.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let err = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).unwrap();
            text
        });
        let code = exit_code(self.status());
        Said { code, out: out.join().unwrap(), err: err.join().unwrap() }
    }

    fn status(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "a host does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl Said {
    /// The lines of output, sorted: tasks write at the same time.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: exit_code(output.status), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A shell's number for it.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Of the hosts after the first, by the first's.
pub fn others_code(first: i32) -> i32 {
    if first == 0 { 0 } else { DISRUPTED }
}

/// Waits for something.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
