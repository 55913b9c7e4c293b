//! `cargo xtask admission`: the expressions of the chart's policy on configuration, from the Rust types.

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use tessera_api::config;
use tessera_harness::workspace;

/// What `cargo xtask admission` takes.
#[derive(Args)]
#[command(after_help = "Writes charts/tessera/files/admission. A test says when it is not up to date.")]
pub struct AdmissionArguments {}

/// Writes the chart's files.
///
/// # Errors
/// When they cannot be written.
pub fn run(_: &AdmissionArguments) -> Result<ExitCode> {
    let folder = workspace::root().join("charts/tessera/files/admission");
    for (name, text) in
        [("faults.cel", config::faults_expression()), ("shown.cel", config::shown_expression())]
    {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
