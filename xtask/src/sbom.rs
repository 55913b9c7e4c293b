//! `cargo xtask sbom`: the programs' components.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tessera_workspace as workspace;

use crate::cargo_tool::CargoTool;

const TOOL: CargoTool = CargoTool {
    name: "cargo-sbom",
    version: "0.10.0",
    // The build should be fast; the program need not be.
    arguments: &["--debug"],
    expected: Duration::from_secs(90),
};

/// The shipped programs, and their packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("kubelet-plugin", "tessera-kubelet-plugin"),
    ("mps-host", "tessera-mps-host"),
    ("controller", "tessera-controller"),
    ("gpu-run", "tessera-gpu-run"),
    ("kubectl-gpu", "kubectl-gpu"),
];

/// What `cargo xtask sbom` takes.
#[derive(Args)]
#[command(
    after_help = "Writes PROGRAM.cdx.json for each program: a software bill of materials in CycloneDX 1.6, by cargo-sbom from Cargo.lock.

Examples:
  cargo xtask sbom                       into the target folder
  cargo xtask sbom --output release"
)]
pub struct SbomArguments {
    /// Where to; made where it is missing. [default: sbom in the target folder]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Writes a bill of materials for each program; standard output names the files.
///
/// # Errors
/// When cargo-sbom can't be had, or a file can't be written.
pub fn run(arguments: &SbomArguments) -> Result<ExitCode> {
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => workspace::target()?.join("sbom"),
    };
    let tool = TOOL.find()?;
    fs::create_dir_all(&output).with_context(|| format!("failed to make {}", output.display()))?;
    for (program, package) in PROGRAMS {
        let bill = Command::new(&tool)
            .args(["sbom", "--cargo-package", package, "--output-format", "cyclone_dx_json_1_6"])
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("failed to run cargo-sbom")?;
        ensure!(bill.status.success(), "cargo-sbom failed for {package}");
        let path = output.join(format!("{program}.cdx.json"));
        fs::write(&path, &bill.stdout).with_context(|| format!("failed to write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
