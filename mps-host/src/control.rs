//! Runs `nvidia-cuda-mps-control` to start a daemon and to send orders.

use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::control_output::{self, nonsense, process_ids};
use super::device::DeviceUuid;
use super::directory::DaemonDirectory;
use super::driver::MpsProgram;
use super::error::MpsError;
use super::launch;
use super::record::Record;

/// Time limit of an answer of the control program.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a daemon may take to confirm its end, after its clients' grace period.
const LAST_WORD: Duration = Duration::from_secs(3);

/// The program's output if no daemon answers.
const NO_DAEMON: &str = "Cannot find MPS control daemon";

/// Sends orders to one control daemon, with NVIDIA's own program, because its protocol is not documented.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub program: MpsProgram,
    pub directory: DaemonDirectory,
    /// The daemon's devices, in the order of the clients' numbering.
    pub devices: Vec<DeviceUuid>,
    /// Whether the daemon has a `/dev/shm` of its own.
    pub own_shm: bool,
    /// Time limit of an answer; usually [`PATIENCE`].
    pub patience: Duration,
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerStatus {
    /// The server is starting.
    Initializing,
    /// The server takes clients, or does not report its state.
    Active,
    /// A client faulted, and the others are leaving.
    Fault,
}

impl Control {
    /// The command, with an environment leading only to this daemon.
    fn command(&self, arguments: &[&str], shm: Option<&Path>) -> Command {
        let program = &self.program;
        let mut command = if program.root.is_some() || shm.is_some() {
            let mut command = Command::new(OWN_PROGRAM);
            command.arg(launch::SUBCOMMAND);
            if let Some(root) = &program.root {
                command.arg("--root").arg(root).arg("--keep").arg(&self.directory.root);
            }
            if let Some(shm) = shm {
                command.arg("--shm").arg(shm);
            }
            command.arg("--").arg(&program.path);
            command
        } else {
            Command::new(&program.path)
        };
        let devices: Vec<&str> = self.devices.iter().map(DeviceUuid::as_str).collect();
        let devices = devices.join(",");
        command
            .args(arguments)
            .env_clear()
            .env("PATH", program.search_path())
            .env("CUDA_VISIBLE_DEVICES", devices)
            .env("CUDA_MPS_PIPE_DIRECTORY", &self.directory.pipe)
            .env("CUDA_MPS_LOG_DIRECTORY", &self.directory.log)
            .current_dir("/")
            .stdin(Stdio::null());
        if let Some(libraries) = &program.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Starts the daemon in the background, for clients of any user, and waits until the starting program has ended.
    /// Its output goes to a file, because the daemon might keep a pipe open. `is_static`: shares get multiprocessors
    /// of their own.
    pub async fn start(&self, is_static: bool) -> Result<(), MpsError> {
        let output = self.directory.output();
        let file = || std::fs::File::create(&output).map_err(MpsError::at(&output));
        let shm = self.own_shm.then_some(self.directory.shm.as_path());
        let arguments: &[&str] = if is_static { &["-d", "-M", "-S"] } else { &["-d", "-M"] };
        let mut command = self.command(arguments, shm);
        let failed = |source| MpsError::Program { program: self.program.path.clone(), source };
        let file = file()?;
        let copy = file.try_clone().map_err(MpsError::at(&output))?;
        let mut child = command.stdout(file).stderr(copy).spawn().map_err(failed)?;
        let status = match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(status) => status.map_err(failed)?,
            Err(_) => {
                // Kill the starting program only. The next attempt finds out whether its daemon lives.
                let _ = child.start_kill();
                return Err(MpsError::NoAnswer { command: "-d".to_owned(), patience: PATIENCE });
            }
        };
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read_to_string(&output).unwrap_or_default();
        let said = if said.trim().is_empty() { status.to_string() } else { said.trim().to_owned() };
        Err(MpsError::NotStarted { output: said, log: self.log_end("control.log") })
    }

    /// The same daemon, with another time limit of each answer.
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends the daemon a line and returns its output.
    pub async fn order(&self, line: &str) -> Result<String, MpsError> {
        self.order_within(line, self.patience).await
    }

    async fn order_within(&self, line: &str, patience: Duration) -> Result<String, MpsError> {
        let failed = |source| MpsError::Program { program: self.program.path.clone(), source };
        let mut command = self.command(&[], None);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let mut input = child.stdin.take();
        let (printed, said) = (child.stdout.take(), child.stderr.take());
        let answer = async {
            if let Some(input) = &mut input {
                // A program may end before reading everything; its output says why.
                let _ = input.write_all(format!("{line}\n").as_bytes()).await;
            }
            drop(input);
            let (printed, said) =
                tokio::try_join!(control_output::read(printed), control_output::read(said))?;
            // One with a longer answer blocks on the pipe, and is killed with the child.
            if printed.len().max(said.len()) <= control_output::LONGEST {
                child.wait().await?;
            }
            Ok((printed, said))
        };
        let (printed, said) = tokio::time::timeout(patience, answer)
            .await
            .map_err(|_| MpsError::NoAnswer { command: line.to_owned(), patience })?
            .map_err(failed)?;
        let is_too_long = printed.len().max(said.len()) > control_output::LONGEST;
        let text = [printed, said].concat();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        if is_too_long {
            return Err(nonsense(line, &text));
        }
        if text.contains(NO_DAEMON) {
            return Err(MpsError::NoDaemon(self.directory.pipe.clone()));
        }
        Ok(text)
    }

    /// Process ids of the daemon's servers.
    pub async fn servers(&self) -> Result<Vec<u32>, MpsError> {
        const COMMAND: &str = "get_server_list";
        process_ids(COMMAND, &self.order(COMMAND).await?)
    }

    /// State of a server. Daemons of old drivers don't know the command; their servers take clients when they are
    /// listed.
    pub async fn server_status(&self, server: u32) -> Result<ServerStatus, MpsError> {
        let text = self.order(&format!("get_server_status {server}")).await?.to_ascii_uppercase();
        Ok(if text.contains("INITIALIZING") {
            ServerStatus::Initializing
        } else if text.contains("FAULT") {
            ServerStatus::Fault
        } else {
            ServerStatus::Active
        })
    }

    /// Process ids of all clients.
    pub async fn clients(&self) -> Result<Vec<u32>, MpsError> {
        let mut clients = Vec::new();
        for server in self.servers().await? {
            let command = format!("get_client_list {server}");
            clients.extend(process_ids(&command, &self.order(&command).await?)?);
        }
        clients.sort_unstable();
        clients.dedup();
        Ok(clients)
    }

    /// Sets the limits of clients: for future servers and, with `servers`, for running ones. Percentages have no
    /// effect with static partitions.
    pub async fn limit(&self, record: &Record, servers: &[u32]) -> Result<(), MpsError> {
        let mut orders = Vec::new();
        if !record.is_static() {
            let percentage = record.settings.active_thread_percentage.unwrap_or(100);
            orders.push(format!("set_default_active_thread_percentage {percentage}"));
            orders.extend(
                servers.iter().map(|server| format!("set_active_thread_percentage {server} {percentage}")),
            );
        }
        for (device, limit) in record.memory_limits() {
            orders.push(format!("set_default_device_pinned_mem_limit {device} {limit}M"));
            orders.extend(
                servers
                    .iter()
                    .map(|server| format!("set_device_pinned_mem_limit {server} {device} {limit}M")),
            );
        }
        if orders.is_empty() {
            return Ok(());
        }
        self.order(&orders.join("\n")).await.map(drop)
    }

    /// Makes the daemon start its server as root, to serve every user in multi-user mode.
    pub async fn start_server(&self) -> Result<String, MpsError> {
        self.order("start_server -uid 0").await
    }

    /// Ends the daemon and its servers. Clients still connected after `grace` lose their contexts.
    pub async fn quit(&self, grace: Duration) -> Result<(), MpsError> {
        let line = format!("quit -t {}", grace.as_secs());
        self.order_within(&line, grace + LAST_WORD).await.map(drop)
    }

    /// The last lines of one of the daemon's logs.
    pub fn log_end(&self, name: &str) -> String {
        const LINES: usize = 3;
        let text = end_of(&self.directory.log.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end: Vec<&str> = lines[lines.len().saturating_sub(LINES)..].to_vec();
        if end.is_empty() { format!("{name} is empty") } else { end.join(" | ") }
    }
}

/// This program, even after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The path for this process to start itself again.
pub(super) fn own_program() -> PathBuf {
    PathBuf::from(OWN_PROGRAM)
}

/// The last bytes of a possibly long file.
pub(super) fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 4096;
    let mut file = std::fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(MOST);
    file.seek(io::SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(MOST).read_to_end(&mut end)?;
    Ok(end)
}
