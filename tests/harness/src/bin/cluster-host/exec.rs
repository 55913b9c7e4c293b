//! `exec PARENT PROGRAM ARGUMENT…`: becomes PROGRAM, killed by the kernel when PARENT dies.

use std::{
    os::unix::process::{CommandExt, parent_id},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use nix::sys::{prctl, signal::Signal};

pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let parent: u32 = arguments.next().context("no parent")?.parse()?;
    let program = arguments.next().context("no program")?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above.
    if parent_id() != parent {
        bail!("the cluster is gone already");
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}
