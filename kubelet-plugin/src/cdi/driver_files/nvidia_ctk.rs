//! Runs `nvidia-ctk`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::cdi::{ContainerEdits, Roots, Spec};

/// Directories below the host's root where packages and NVIDIA's operator install the tool.
const DIRECTORIES: &[&str] =
    &["usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit", "opt/nvidia-container-toolkit/bin", "bin"];
/// Time limit. Half a minute was measured on machines with eight cards.
const LONGEST: Duration = Duration::from_secs(120);
/// Size limit of the tool's answer, in bytes. The answer for eight cards has some ten kilobytes.
const LARGEST: u64 = 8 << 20;

/// Why the tool gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NvidiaCtkError {
    /// The tool could not be started, or its output could not be read.
    #[error("it can't be run: {0}")]
    Run(#[from] io::Error),
    /// The tool did not end in time.
    #[error("it did not end within {} s", LONGEST.as_secs())]
    Late,
    /// The tool failed.
    #[error("it ended with {status}: {message}")]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// The end of its stderr.
        message: String,
    },
    /// Its hooks let images run code as the node's root.
    #[error(
        "its version is {0}, whose hooks an image can make run code as the node's root (CVE-2025-23266): update NVIDIA's \
         container toolkit to 1.17.8 or newer"
    )]
    Unsafe(String),
    /// The tool does not print its version.
    #[error("it does not tell its version, but {0:?}")]
    Version(String),
    /// Its answer is not a CDI spec.
    #[error("its answer is no CDI spec: {0}")]
    Answer(#[from] serde_json::Error),
}

/// The path of the tool, for this process.
pub(super) fn find(roots: &Roots) -> Option<PathBuf> {
    let paths = DIRECTORIES.iter().map(|directory| roots.driver.join(directory).join("nvidia-ctk"));
    paths.into_iter().find(|path| path.is_file())
}

/// The first version whose hooks are safe (NVIDIA's security bulletin of July 2025 for CVE-2025-23266).
const SAFE: [u32; 3] = [1, 17, 8];

/// Fails if the tool's hooks are unsafe, or its version is not known.
pub(super) async fn refuse_unsafe(tool: &Path) -> Result<(), NvidiaCtkError> {
    let mut command = Command::new(tool);
    command.arg("--version");
    let answer = in_time(command).await?;
    let answer = String::from_utf8_lossy(&answer);
    // `NVIDIA Container Toolkit CLI version 1.17.8`, then the commit.
    let first = answer.lines().next().unwrap_or_default();
    let version = first.rsplit_once(' ').map_or(first, |(_, last)| last);
    match numbers(version) {
        Some(numbers) if numbers >= SAFE => Ok(()),
        Some(_) => Err(NvidiaCtkError::Unsafe(version.to_owned())),
        None => Err(NvidiaCtkError::Version(first.chars().take(100).collect())),
    }
}

/// `1.17.0-rc.1` as 1, 17, 0.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let release = version.split(['-', '+', '~']).next()?;
    let mut parts = release.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Runs the tool to find the driver's part of containers.
pub(super) async fn generate(tool: &Path, roots: &Roots) -> Result<ContainerEdits, NvidiaCtkError> {
    let mut command = Command::new(tool);
    command
        .args(["cdi", "generate", "--format=json", "--mode=nvml", "--device-name-strategy=uuid"])
        .arg(argument("--driver-root", &roots.driver))
        .arg(argument("--dev-root", &roots.dev));
    // The container runtime runs hooks on the host, so they have the host's paths. The flag has had this name since
    // its first version; newer versions keep the name as an alias.
    let hook = tool.with_file_name("nvidia-cdi-hook");
    let hook = if hook.is_file() { hook } else { tool.to_owned() };
    command.arg(argument("--nvidia-ctk-path", &roots.on_host(&hook)));
    let answer = in_time(command).await?;
    let spec: Spec = serde_json::from_slice(&answer)?;
    Ok(edits(spec.container_edits, roots))
}

fn argument(name: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(name);
    argument.push("=");
    argument.push(path);
    argument
}

async fn in_time(command: Command) -> Result<Vec<u8>, NvidiaCtkError> {
    tokio::time::timeout(LONGEST, run(command)).await.map_err(|_| NvidiaCtkError::Late)?
}

async fn run(mut command: Command) -> Result<Vec<u8>, NvidiaCtkError> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut answer = Vec::new();
    let mut message = Vec::new();
    let stdout = child.stdout.take().map(|pipe| pipe.take(LARGEST));
    let stderr = child.stderr.take().map(|pipe| pipe.take(LARGEST));
    let read_answer = async {
        match stdout {
            Some(mut pipe) => pipe.read_to_end(&mut answer).await,
            None => Ok(0),
        }
    };
    let read_message = async {
        match stderr {
            Some(mut pipe) => pipe.read_to_end(&mut message).await,
            None => Ok(0),
        }
    };
    tokio::try_join!(read_answer, read_message)?;
    let status = child.wait().await?;
    if status.success() {
        return Ok(answer);
    }
    let message = String::from_utf8_lossy(&message);
    let last = message.trim().lines().next_back().unwrap_or_default().chars().take(500).collect();
    Err(NvidiaCtkError::Failed { status, message: last })
}

/// The edits taken over: no device nodes, and paths of mounts for the host. The arguments of hooks are paths in the container.
/// `--ldconfig-path`, a path of the host, is there only if `nvidia-ctk` is run with this flag.
fn edits(mut edits: ContainerEdits, roots: &Roots) -> ContainerEdits {
    edits.device_nodes.clear();
    for mount in &mut edits.mounts {
        mount.host_path = roots.on_host(Path::new(&mount.host_path)).to_string_lossy().into_owned();
    }
    edits
}
