//! One process of the plugin.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Time limit for eventual conditions on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubelet-plugin");

pub struct Plugin {
    child: Child,
    log: PathBuf,
    pub probe_socket: PathBuf,
}

impl Plugin {
    /// Starts the program, with a JSON log file of its own in `directory`.
    pub fn start(directory: &Path, arguments: &[String]) -> Self {
        Self::spawn(command(), directory, arguments)
    }

    /// Like [`Plugin::start`], with a soft and a hard limit on open files.
    pub fn start_with_files(directory: &Path, arguments: &[String], (soft, hard): (u64, u64)) -> Self {
        let mut shell = in_empty_environment("/bin/sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\""))
            .arg(PROGRAM);
        Self::spawn(shell, directory, arguments)
    }

    fn spawn(mut command: Command, directory: &Path, arguments: &[String]) -> Self {
        let number = fastrand::u32(..);
        let log = directory.join(format!("log-{number:08x}"));
        let probe_socket = directory.join(format!("probe-{number:08x}.sock"));
        let child = command
            .args(["--http-address", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug"])
            .arg("--probe-socket")
            .arg(&probe_socket)
            .args(arguments)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log, probe_socket }
    }

    /// The log lines so far.
    pub fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        whole.lines().map(line).collect()
    }

    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until a line of the log contains this text.
    pub async fn logged(&self, text: &str) {
        self.until(&format!("logged {text:?}"), || self.log_text().contains(text)).await;
    }

    pub async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let since = Instant::now();
        while !condition() {
            assert!(since.elapsed() < LONG, "never {what}; the log is\n{}", self.log_text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Address of the HTTP server.
    pub fn address(&self) -> SocketAddr {
        let log = self.log();
        let listening =
            log.iter().find(|line| line["message"] == "metrics and probes").expect("an HTTP server");
        listening["address"].as_str().unwrap().parse().unwrap()
    }

    /// Sends a request to the HTTP server; returns status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).unwrap()
    }

    /// Like [`Plugin::get`], for a server that may hang up or stay silent.
    pub fn try_get(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }

    /// Probes like the kubelet, with a program in the container; returns its success and its output.
    pub fn probe(&self, path: &str) -> (bool, String) {
        let mut probe = command();
        probe.arg("probe").arg("--socket").arg(&self.probe_socket).arg(path).stdout(Stdio::piped());
        let output = probe.output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    }

    /// Waits until `/readyz` has this line.
    pub async fn ready_line(&self, line: &str) {
        self.logged("metrics and probes").await;
        self.until(line, || self.get("/readyz").1.lines().any(|found| found.starts_with(line))).await;
    }

    pub async fn ready(&self) {
        self.logged("metrics and probes").await;
        self.until("ready", || self.get("/readyz").0 == 200).await;
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < LONG, "it does not end; the log is\n{}", self.log_text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends the plugin as the kubelet ends a container.
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.ended().await
    }

    /// Kills the plugin, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Processor time used so far.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // USER_HZ is 100 on every Linux supported by Rust.
        Duration::from_millis(ticks * 10)
    }

    /// Maximum resident memory, program pages included, KiB.
    pub fn most_resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Soft and hard limit on open files.
    pub fn files_limits(&self) -> (u64, u64) {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Fails if the process has ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, in an empty environment.
pub fn command() -> Command {
    in_empty_environment(PROGRAM)
}

fn in_empty_environment(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
