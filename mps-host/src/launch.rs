//! `mps-host launch`: becomes another program, in a mount namespace of its own.
//!
//! A process of its own, since a namespace is entered by a process with one thread. The program gets a directory as its
//! `/dev/shm`, so that a daemon shares it with its own clients and with nobody else, and the driver's root as its own.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::other_root;

/// First argument by which the program is told apart.
pub const SUBCOMMAND: &str = "launch";

/// Becomes a program with another root and another /dev/shm. Used by mps-host.
#[derive(Debug, Parser)]
#[command(name = "mps-host launch")]
pub struct Options {
    /// Root directory for the program.
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Directory that the program sees as /dev/shm.
    #[arg(long, value_name = "DIRECTORY")]
    shm: Option<PathBuf>,
    /// Directory that the program sees under the same path, whatever its root.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true)]
    program: Vec<String>,
}

/// Runs it. It comes back only when it fails.
#[must_use]
pub fn main(arguments: Vec<std::ffi::OsString>) -> ExitCode {
    let error = become_program(&Options::parse_from(arguments));
    eprintln!("{error:#}");
    ExitCode::from(126)
}

fn become_program(options: &Options) -> anyhow::Error {
    match prepare(options) {
        Err(error) => error,
        Ok(()) => {
            let mut command = Command::new(&options.program[0]);
            command.args(&options.program[1..]);
            anyhow::Error::from(command.exec()).context(options.program[0].clone())
        }
    }
}

fn prepare(options: &Options) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).context("cannot enter a mount namespace: CAP_SYS_ADMIN is needed")?;
    // What is mounted here stays here; what is unmounted outside goes here too.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).context("/")?;
    let root = options.root.as_deref().unwrap_or(Path::new("/"));
    let bind = |from: &Path, to: &Path| {
        other_root::mount_point(root, to).and_then(|place| other_root::bind(from, &place)).with_context(
            || format!("cannot mount {} at {} of {}", from.display(), to.display(), root.display()),
        )
    };
    if let Some(keep) = options.keep.as_deref().filter(|_| options.root.is_some()) {
        // Also where the root has it already: there it may be read-only.
        bind(keep, keep)?;
    }
    if let Some(shm) = &options.shm {
        bind(shm, Path::new("/dev/shm"))?;
    }
    if let Some(root) = &options.root {
        nix::unistd::chroot(root).with_context(|| root.display().to_string())?;
        std::env::set_current_dir("/")?;
    }
    Ok(())
}
