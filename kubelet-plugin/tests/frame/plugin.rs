//! One process of the plugin.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// For things that happen sooner or later on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

pub struct Plugin {
    child: Child,
    log: PathBuf,
}

impl Plugin {
    /// Starts the program; it logs JSON into a file of its own in `directory`.
    pub fn start(directory: &Path, arguments: &[String]) -> Self {
        let log = directory.join(format!("log-{:08x}", fastrand::u32(..)));
        let child = command()
            .args(["--http-address", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug"])
            .args(arguments)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
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

    /// Waits until a line of the log has this text in it.
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

    /// Asks the HTTP server; the status and the body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let log = self.log();
        let listening =
            log.iter().find(|line| line["message"] == "metrics and probes").expect("an HTTP server");
        let address: SocketAddr = listening["address"].as_str().unwrap().parse().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
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

    /// As the kubelet ends a container.
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.ended().await
    }

    /// As a crash.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Processor time used so far.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // USER_HZ is 100 on every Linux that Rust runs on.
        Duration::from_millis(ticks * 10)
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, in an environment that says nothing.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubelet-plugin"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
