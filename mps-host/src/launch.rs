//! `mps-host launch`: runs another program in a mount namespace of its own.
//!
//! A separate process, because only a process with a single thread can enter a namespace. The program gets a directory
//! as its `/dev/shm`, shared only between a daemon and its own clients, and the driver's root as its root.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::other_root;

/// First argument to select this command.
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

/// Runs the command. Returns only on failure.
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
    // Mounts made here stay here; unmounts outside apply here too.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).context("/")?;
    let root = options.root.as_deref().unwrap_or(Path::new("/"));
    let bind = |from: &Path, to: &Path| {
        other_root::mount_point(root, to).and_then(|place| other_root::bind(from, &place)).with_context(
            || format!("cannot mount {} at {} of {}", from.display(), to.display(), root.display()),
        )
    };
    if let Some(keep) = options.keep.as_deref().filter(|_| options.root.is_some()) {
        // Needed even if the root has this directory: it may be read-only there.
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
