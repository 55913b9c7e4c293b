//! The programs of this repository, built the way a user would: by cargo, into the folder of the running program.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use thiserror::Error;

/// Environment variable that says the programs are built already, as `cargo xtask test` sets it.
pub const BUILT_VARIABLE: &str = "TESSERA_PROGRAMS_BUILT";

/// Why a program of this repository is not there.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The path of the running program cannot be read.
    #[error("cannot find out the path of the running program: {0}")]
    Current(#[source] std::io::Error),
    /// The running program does not lie in a cargo target folder.
    #[error("{} is in no cargo target folder: start it by `cargo xtask` or `cargo test`", .0.display())]
    Place(PathBuf),
    /// cargo cannot be started.
    #[error("cannot start cargo: {0}")]
    Cargo(#[source] std::io::Error),
    /// cargo failed; it has said why on standard error.
    #[error("`cargo build` of Tessera's own programs failed")]
    Build,
}

/// Builds the kubelet plugin, the emulator and the cluster's host program in the profile of the running program, and
/// gives the folder they lie in. Takes part of a second when nothing changed, and nothing the second time in a process.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn build_programs() -> Result<PathBuf, WorkspaceError> {
    static BUILT: AtomicBool = AtomicBool::new(false);
    let folder = program_folder()?;
    if env::var_os(BUILT_VARIABLE).is_some() || BUILT.load(Ordering::Relaxed) {
        return Ok(folder);
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]).current_dir(root());
    for package in ["tessera-kubelet-plugin", "tessera-emulator", "tessera-harness"] {
        cargo.args(["--package", package]);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = folder.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    let status = cargo.status().map_err(WorkspaceError::Cargo)?;
    if !status.success() {
        return Err(WorkspaceError::Build);
    }
    BUILT.store(true, Ordering::Relaxed);
    Ok(folder)
}

/// The root of this repository.
#[must_use]
pub fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest)
}

/// `target/<profile>` of the running program; Cargo puts test programs one folder deeper.
fn program_folder() -> Result<PathBuf, WorkspaceError> {
    let current = env::current_exe().map_err(WorkspaceError::Current)?;
    current
        .ancestors()
        .skip(1)
        .take(2)
        .find(|folder| folder.ends_with("debug") || folder.ends_with("release"))
        .map(Path::to_owned)
        .ok_or(WorkspaceError::Place(current))
}
