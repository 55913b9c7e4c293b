//! `cargo xtask deny`: checks dependencies against `deny.toml`.

use std::{
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use tessera_workspace as workspace;

use crate::cargo_tool::CargoTool;

const TOOL: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    // Fast to build; its own speed does not matter.
    arguments: &["--debug", "--no-default-features"],
    expected: Duration::from_secs(180),
};

/// Arguments of `cargo xtask deny`.
#[derive(Args)]
#[command(
    after_help = "Licences, sources and bans are read from Cargo.lock and the registry's crates; known vulnerabilities need RustSec's
database, which is fetched with git. What could not run is said, and fails only with --strict: a machine
without that network is no fault of the code.

Exit code: 0 when nothing that ran found anything, else 1."
)]
pub struct DenyArguments {
    /// Fail if a check cannot run.
    #[arg(long)]
    strict: bool,
}

/// Runs the checks of cargo-deny possible here; the last lines on standard output list them.
///
/// # Errors
/// When cargo-deny is installed and cannot be started.
pub fn run(arguments: &DenyArguments) -> Result<ExitCode> {
    let tool = match TOOL.find() {
        Ok(tool) => tool,
        Err(error) => {
            println!("NOT CHECKED: licences, sources, bans and advisories of dependencies: {error:#}");
            return Ok(if arguments.strict { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    };
    let deny = |words: &[&str]| {
        let mut command = Command::new(&tool);
        // The clone's root, where cargo-deny finds deny.toml.
        command.current_dir(workspace::root()).args(words).stdin(Stdio::null());
        command
    };
    let said = |command: &mut Command| command.status().context("cannot run cargo-deny");
    let dependencies = said(&mut deny(&["check", "licenses", "sources", "bans"]))?.success();
    println!("licences, sources and bans of dependencies: {}", verdict(dependencies));
    let fetched =
        deny(&["fetch", "db"]).env("GIT_TERMINAL_PROMPT", "0").output().context("cannot run cargo-deny")?;
    if !fetched.status.success() {
        let reason = String::from_utf8_lossy(&fetched.stderr);
        let reason = reason.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given").trim();
        println!(
            "NOT CHECKED: known vulnerabilities of dependencies: RustSec's database was not fetched: {reason}"
        );
        let is_well = dependencies && !arguments.strict;
        return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let advisories = said(&mut deny(&["check", "--disable-fetch", "advisories"]))?.success();
    println!("known vulnerabilities of dependencies: {}", verdict(advisories));
    Ok(if dependencies && advisories { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(is_well: bool) -> &'static str {
    if is_well { "none against deny.toml" } else { "FAILED" }
}
