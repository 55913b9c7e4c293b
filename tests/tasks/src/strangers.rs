//! `cargo xtask strangers`.

use std::process::ExitCode;

use clap::Args;
use tessera_harness::{progress::Progress, strangers};

/// `cargo xtask strangers`.
#[derive(Args)]
pub struct StrangersArguments {}

/// Runs the command.
pub fn run(_arguments: &StrangersArguments) -> anyhow::Result<ExitCode> {
    let summary = strangers::run(&Progress::terminal(), &mut |line| eprintln!("{line}"))?;
    println!(
        "{} machines read as they were made by {}; {} strangers not found",
        summary.machines,
        summary.strangers.join(", "),
        summary.not_found.len()
    );
    Ok(ExitCode::SUCCESS)
}
