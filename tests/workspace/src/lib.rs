//! This repository: its root, its target folder, and its programs, built the way a user would: by cargo, in the target
//! folder and the profile of the running program. So `CARGO_TARGET_DIR`, `--target-dir` and `build.target-dir` all hold
//! for programs built here too.

pub mod cache;
mod documented;

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use thiserror::Error;

pub use documented::documented_commands;

/// Environment variable set when the programs are built already, as by `cargo xtask test`.
pub const BUILT_VARIABLE: &str = "TESSERA_PROGRAMS_BUILT";

/// Packages of the programs started by tests: programs shipped to nodes, the emulator, and the cluster's own.
pub const TESTED: [&str; 5] = [
    "tessera-kubelet-plugin",
    "tessera-mps-host",
    "tessera-controller",
    "tessera-emulator",
    "tessera-harness",
];

/// The same and `kubectl gpu`, for clusters that people use. In one build, so that both take the same dependencies.
pub const TESTED_AND_CLI: [&str; 6] = [TESTED[0], TESTED[1], TESTED[2], TESTED[3], TESTED[4], "kubectl-gpu"];

/// Why a program of this repository is not there.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The path of the running program cannot be read.
    #[error("failed to read the path of the running program: {0}")]
    Current(#[source] std::io::Error),
    /// The running program does not lie in a cargo target folder.
    #[error("{} is in no cargo target folder: start it by `cargo xtask` or `cargo test`", .0.display())]
    Place(PathBuf),
    /// cargo cannot be started.
    #[error("failed to start cargo: {0}")]
    Cargo(#[source] std::io::Error),
    /// cargo failed; its error is on standard error.
    #[error("`cargo {0}` failed")]
    Build(String),
}

/// The root of this repository.
#[must_use]
pub fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest)
}

/// The running program's target folder.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn target() -> Result<PathBuf, WorkspaceError> {
    let profile = profile_folder()?;
    profile.parent().map(Path::to_owned).ok_or(WorkspaceError::Place(profile))
}

/// Variables set by `cargo run` and `cargo test` for one package (The Cargo Book, Environment variables). A build script
/// of a dependency reads CARGO_MANIFEST_DIR, so a cargo inheriting it rebuilds the dependency and all its dependents.
const OF_ONE_PACKAGE: [&str; 5] =
    ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_PACKAGE"];

/// cargo, in the root of this repository and with its [`target`] folder.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn cargo() -> Result<Command, WorkspaceError> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).env("CARGO_TARGET_DIR", target()?);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| OF_ONE_PACKAGE.iter().any(|prefix| name.starts_with(prefix))) {
            cargo.env_remove(name);
        }
    }
    Ok(cargo)
}

/// `cargo build` with these arguments. Its progress is on standard error: somebody waits.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn build(arguments: &[&str]) -> Result<(), WorkspaceError> {
    let status = cargo()?.arg("build").args(arguments).status().map_err(WorkspaceError::Cargo)?;
    if status.success() {
        Ok(())
    } else {
        Err(WorkspaceError::Build(format!("build {}", arguments.join(" "))))
    }
}

/// Builds the packages in [`TESTED`] in the profile of the running program, and returns the folder of their programs.
/// Takes part of a second when nothing changed, and nothing the second time in a process.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn build_programs() -> Result<PathBuf, WorkspaceError> {
    build_packages(&TESTED)
}

/// The same for some packages.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn build_packages(packages: &[&'static str]) -> Result<PathBuf, WorkspaceError> {
    static BUILT: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let folder = profile_folder()?;
    if env::var_os(BUILT_VARIABLE).is_some() {
        return Ok(folder);
    }
    // Held while cargo runs: whoever else needs the programs has to wait anyway.
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !built.contains(package)).collect();
    if missing.is_empty() {
        return Ok(folder);
    }
    // Quiet: tests build too, each program of them.
    build(&[&["--quiet"], &*selection(&folder, &missing)].concat())?;
    built.extend(missing);
    Ok(folder)
}

/// Builds packages in the profile of the running program, with cargo's progress on standard error.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn compile(packages: &[&str]) -> Result<(), WorkspaceError> {
    build(&selection(&profile_folder()?, packages))
}

/// cargo's arguments for packages in the profile whose programs lie in this folder.
fn selection<'a>(folder: &'a Path, packages: &[&'a str]) -> Vec<&'a str> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    ["--profile", profile_of(folder)].into_iter().chain(packages).collect()
}

/// `<target>/<profile>` of the running program; Cargo puts tests and examples one folder deeper.
///
/// # Errors
/// See [`WorkspaceError`].
pub fn profile_folder() -> Result<PathBuf, WorkspaceError> {
    let current = env::current_exe().map_err(WorkspaceError::Current)?;
    let folder = current.parent().and_then(|folder| match folder.file_name()?.to_str()? {
        "deps" | "examples" => folder.parent(),
        _ => Some(folder),
    });
    // Cargo keeps its lock there.
    match folder {
        Some(folder) if folder.join(".cargo-lock").exists() => Ok(folder.to_owned()),
        _ => Err(WorkspaceError::Place(current)),
    }
}

/// The profile whose programs lie in a folder of this name.
fn profile_of(folder: &Path) -> &str {
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_test_lies_in_the_target_folder_and_the_workspace_is_at_the_root() {
        assert!(env::current_exe().unwrap().starts_with(target().unwrap()));
        assert!(root().join("Cargo.lock").exists());
    }

    #[test]
    fn an_inner_cargo_inherits_nothing_of_the_package_that_starts_it() {
        // Set by cargo for this test.
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo().unwrap();
        assert!(cargo.get_envs().any(|(name, value)| name == "CARGO_MANIFEST_DIR" && value.is_none()));
    }

    #[test]
    fn the_folder_debug_is_that_of_the_profile_dev() {
        assert_eq!(profile_of(Path::new("/t/debug")), "dev");
        assert_eq!(profile_of(Path::new("/t/node")), "node");
    }
}
