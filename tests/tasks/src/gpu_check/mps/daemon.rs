use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tessera_nvml::Library;

use super::super::GpuCheckArguments;
use super::super::smi::find_program;

const CONTROL: &str = "nvidia-cuda-mps-control";

/// Timeout of an answer, a start or an end.
const PATIENCE: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(20);

/// The daemon's programs.
pub(super) struct Programs {
    control: PathBuf,
    libraries: Option<PathBuf>,
    pub libcuda: PathBuf,
}

impl Programs {
    pub fn find(library: &Library, arguments: &GpuCheckArguments) -> Result<Self> {
        let control = find_program(&arguments.driver_root, CONTROL).with_context(|| {
            format!("MPS is part of the driver's compute utilities: install {CONTROL}, or see --driver-root")
        })?;
        let libraries = library.path().parent().map(Path::to_owned);
        let beside = || library.path().with_file_name(tessera_nvml::CUDA_LIBRARY_NAME);
        let libcuda = arguments.libcuda.clone().unwrap_or_else(beside);
        ensure!(libcuda.is_file(), "there is no {}; name CUDA's library with --libcuda", libcuda.display());
        Ok(Self { control, libraries, libcuda })
    }
}

/// A private daemon for one card, a child of this process with the same end.
pub(super) struct Daemon<'a> {
    programs: &'a Programs,
    directory: TempDir,
    uuid: String,
    child: Child,
}

impl<'a> Daemon<'a> {
    /// Starts the daemon and waits for an answer.
    pub fn start(programs: &'a Programs, uuid: &str, options: &[&str]) -> Result<Self> {
        // In /tmp, since paths of sockets must be short.
        let directory = tempfile::Builder::new().prefix("gpu-check-").tempdir_in("/tmp")?;
        for part in ["pipe", "log"] {
            fs::create_dir(directory.path().join(part))?;
        }
        let said = fs::File::create(directory.path().join("said"))?;
        let mut command = control(programs, directory.path(), uuid);
        command.arg("-f").args(options).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = command.spawn().with_context(|| format!("can't run {}", programs.control.display()))?;
        let mut daemon = Self { programs, directory, uuid: uuid.to_owned(), child };
        let since = Instant::now();
        loop {
            if let Some(status) = daemon.child.try_wait()? {
                let said = fs::read_to_string(daemon.directory.path().join("said")).unwrap_or_default();
                bail!(
                    "the MPS control daemon ended ({status}): {} {}",
                    said.trim(),
                    daemon.log("control.log")
                );
            }
            if daemon.order("get_server_list").is_ok_and(|text| !text.contains("Cannot find MPS")) {
                return Ok(daemon);
            }
            ensure!(since.elapsed() < PATIENCE, "the MPS control daemon does not answer");
            std::thread::sleep(LOOK);
        }
    }

    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    pub fn pipe(&self) -> PathBuf {
        self.directory.path().join("pipe")
    }

    /// Makes the daemon start its server for this user, and waits until the server accepts clients.
    pub fn start_server(&self) -> Result<()> {
        let answer = self.order(&format!("start_server -uid {}", nix::unistd::getuid()))?;
        let since = Instant::now();
        while !self.servers()?.first().is_some_and(|server| self.is_active(*server)) {
            ensure!(
                since.elapsed() < PATIENCE,
                "the MPS server does not start: {answer} {} {}",
                self.log("control.log"),
                self.log("server.log")
            );
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn is_active(&self, server: u32) -> bool {
        self.order(&format!("get_server_status {server}")).is_ok_and(|text| !text.contains("INITIALIZING"))
    }

    pub fn servers(&self) -> Result<Vec<u32>> {
        Ok(numbers(&self.order("get_server_list")?))
    }

    /// Process ids of all clients.
    pub fn clients(&self) -> Result<Vec<u32>> {
        let mut clients = Vec::new();
        for server in self.servers()? {
            clients.extend(numbers(&self.order(&format!("get_client_list {server}"))?));
        }
        Ok(clients)
    }

    /// Sends the daemon a line, and returns the output.
    pub fn order(&self, line: &str) -> Result<String> {
        let mut child = control(self.programs, self.directory.path(), &self.uuid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A program ending before reading everything prints the reason.
            let _ = writeln!(input, "{line}");
        }
        if !ends(&mut child)? {
            let _ = child.kill();
            let _ = child.wait();
            bail!("{CONTROL} did not answer {line:?} within {PATIENCE:?}");
        }
        let output = child.wait_with_output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// Ends the daemon.
    pub fn end(mut self) -> Result<()> {
        self.order("quit -t 0")?;
        ensure!(ends(&mut self.child)?, "the MPS control daemon does not end when told to");
        Ok(())
    }

    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.directory.path().join("log").join(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let servers = self.servers().unwrap_or_default();
        let _ = self.order("quit -t 0");
        if !ends(&mut self.child).unwrap_or(false) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // Servers end with their daemon; kill any remaining ones.
        for server in servers.into_iter().filter_map(|server| i32::try_from(server).ok()) {
            let name = fs::read_to_string(format!("/proc/{server}/comm")).unwrap_or_default();
            if name.starts_with("nvidia-cuda-mps") {
                let _ = kill(Pid::from_raw(server), Signal::SIGKILL);
            }
        }
    }
}

fn control(programs: &Programs, directory: &Path, uuid: &str) -> Command {
    let mut command = Command::new(&programs.control);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUDA_")) {
        command.env_remove(name);
    }
    command
        .env("CUDA_VISIBLE_DEVICES", uuid)
        .env("CUDA_MPS_PIPE_DIRECTORY", directory.join("pipe"))
        .env("CUDA_MPS_LOG_DIRECTORY", directory.join("log"));
    if let Some(libraries) = &programs.libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// Whether a child ends in time.
fn ends(child: &mut Child) -> Result<bool> {
    let since = Instant::now();
    while child.try_wait()?.is_none() {
        if since.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
