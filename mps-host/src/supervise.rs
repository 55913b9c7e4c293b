//! `mps-host supervisor`: the working child of mps-host.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use nix::sys::signal::SigSet;
use rustix::fs::FlockOperation;
use tokio::signal::unix::{SignalKind, signal};

use super::directory::{LOCK, SOCKET};
use super::options::{Options, SharedMemory};
use super::supervisor::Supervisor;
use super::{logs, readopt, serve};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::logging;
use tessera_kube_util::open_files;

/// First argument to select this command.
pub const SUBCOMMAND: &str = "supervisor";

/// How long daemons without clients may take to end.
const LEAVING: Duration = Duration::from_secs(20);

/// Runs the command.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    // The reaper blocks its awaited signals, and children inherit the mask. Daemons must not.
    if let Err(error) = SigSet::all().thread_unblock() {
        eprintln!("cannot unblock signals: {error}");
        return ExitCode::FAILURE;
    }
    let result = logging::install(&options.log_filter(), options.log_format, || {})
        .map_err(anyhow::Error::from)
        .and_then(|()| {
            open_files::raise_limit();
            // One thread is enough, mostly waiting.
            let runtime =
                tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).enable_all().build()?;
            let result = runtime.block_on(run(options));
            runtime.shutdown_timeout(Duration::from_millis(200));
            result
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let directory = &options.directory;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    let path = directory.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.with_context(|| path.display().to_string())?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another mps-host works in {}", directory.display()))?;

    let own_shm = options.shared_memory == SharedMemory::Tmpfs;
    let shm_size = own_shm.then_some(options.shared_memory_size);
    let supervisor = Arc::new(Supervisor::new(directory.clone(), options.installed(), shm_size));
    readopt::readopt(&supervisor).await;
    let socket = directory.join(SOCKET);
    let listener = serve::listen(&socket)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %socket.display(), "MPS supervisor serving");
    tokio::select! {
        () = serve::serve(supervisor.clone(), listener) => {}
        () = logs::look_after(supervisor.clone()) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending: daemons without clients end too");
    if tokio::time::timeout(LEAVING, supervisor.leave()).await.is_err() {
        tracing::warn!("not all daemons ended in time");
    }
    Ok(())
}
