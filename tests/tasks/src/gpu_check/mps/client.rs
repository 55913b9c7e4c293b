//! A CUDA program: this one, started again. The client reports its device and takes orders, one per line.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use tessera_nvml::{Cuda, CudaError};

use super::daemon::Daemon;

/// Arguments of the client.
#[derive(Args)]
pub struct MpsClientArguments {
    /// CUDA's library.
    libcuda: PathBuf,
    /// Directory that it cannot write to, like the daemon's directory in containers.
    #[arg(long)]
    read_only: Option<PathBuf>,
}

/// The command to run this program as a client.
pub const COMMAND: &str = "mps-client";

/// Runs the client: prints its device, then the result of each order: `allocate BYTES`, `free`.
///
/// # Errors
/// When its output is closed.
pub fn main(arguments: &MpsClientArguments) -> Result<ExitCode> {
    let say = |value: Value| writeln!(io::stdout(), "{value}");
    if let Some(directory) = &arguments.read_only {
        lock_out(directory).with_context(|| directory.display().to_string())?;
    }
    let opened = Cuda::open(&arguments.libcuda).and_then(|cuda| cuda.context(0));
    let context = match opened {
        Ok(context) => context,
        Err(error) => {
            say(failed(&error))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let given = || {
        let (_, total) = context.memory()?;
        let (uuid, multiprocessors) = (context.uuid()?, context.multiprocessors()?);
        Ok(json!({"uuid": uuid, "multiprocessors": multiprocessors, "memory": total}))
    };
    say(given().unwrap_or_else(|error: CudaError| failed(&error)))?;
    let mut taken = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let done = match (words.next(), words.next().and_then(|bytes| bytes.parse().ok())) {
            (Some("allocate"), Some(bytes)) => context.allocate(bytes).map(|memory| taken.push(memory)),
            (Some("free"), None) => taken.drain(..).try_for_each(|memory| context.free(memory)),
            _ => bail!("no such order: {line}"),
        };
        say(done.map_or_else(|error| failed(&error), |()| json!({"done": true})))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory read-only for this process, in a mount namespace of its own.
fn lock_out(directory: &Path) -> nix::Result<()> {
    let (none, bind) = (None::<&str>, MsFlags::MS_BIND);
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some(directory), directory, none, bind, none)?;
    mount(none, directory, none, bind | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none)
}

fn failed(error: &CudaError) -> Value {
    match error {
        CudaError::Call { name, code, .. } => json!({"error": name, "code": code}),
        other => json!({"error": other.to_string()}),
    }
}

/// Starts clients.
pub(super) struct Starter {
    pub libcuda: PathBuf,
}

/// A running client, ended by the drop of this value.
pub(super) struct Client {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its first line of output.
    given: Value,
}

impl Starter {
    /// A client of a daemon, with this environment.
    pub fn client(&self, daemon: &Daemon<'_>, environment: &[(&str, &str)]) -> Result<Client> {
        self.start(daemon, environment, None)
    }

    /// A client of a daemon without write access to the daemon's directory. Needs root.
    pub fn locked_out(&self, daemon: &Daemon<'_>) -> Result<Client> {
        self.start(daemon, &[], Some(&daemon.pipe()))
    }

    fn start(
        &self,
        daemon: &Daemon<'_>,
        environment: &[(&str, &str)],
        read_only: Option<&Path>,
    ) -> Result<Client> {
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUDA_")) {
            command.env_remove(name);
        }
        let mut child = command
            .arg(COMMAND)
            .arg(&self.libcuda)
            .args(read_only.into_iter().flat_map(|directory| [Path::new("--read-only"), directory]))
            .env("CUDA_MPS_PIPE_DIRECTORY", daemon.pipe())
            .envs(environment.iter().copied())
            .envs(library_path(&self.libcuda))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start a client")?;
        let output = child.stdout.take().context("a client without output")?;
        let mut client = Client { child, lines: BufReader::new(output).lines(), given: Value::Null };
        client.given = client.next()?;
        Ok(client)
    }
}

fn library_path(library: &Path) -> Option<(&'static str, &Path)> {
    library.parent().map(|directory| ("LD_LIBRARY_PATH", directory))
}

impl Client {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Number of multiprocessors available to the client.
    pub fn multiprocessors(&self) -> Option<u32> {
        self.given["multiprocessors"].as_u64().and_then(|count| u32::try_from(count).ok())
    }

    /// The error, if the client got no context.
    pub fn refused(&self) -> Option<&str> {
        self.given["error"].as_str()
    }

    /// Its device, in words.
    pub fn told(&self) -> String {
        match (self.refused(), self.multiprocessors()) {
            (Some(error), _) => error.to_owned(),
            (None, Some(count)) => format!("{count} multiprocessors"),
            (None, None) => self.given.to_string(),
        }
    }

    /// Allocates memory; returns the error of a failure.
    pub fn allocate(&mut self, bytes: u64) -> Result<Option<String>> {
        self.order(&format!("allocate {bytes}"))
    }

    fn order(&mut self, order: &str) -> Result<Option<String>> {
        let input = self.child.stdin.as_mut().context("a client without input")?;
        writeln!(input, "{order}").context("a client is gone")?;
        Ok(self.next()?["error"].as_str().map(str::to_owned))
    }

    fn next(&mut self) -> Result<Value> {
        let line = self.lines.next().context("a client ended without a word")??;
        serde_json::from_str(&line).with_context(|| format!("a client said {line:?}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
