use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use tessera_harness::{Architecture, workspace};

use super::Program;

/// Builds the programs and returns their folder.
pub(super) fn build(programs: &[Program], architecture: Architecture, profile: &str) -> Result<PathBuf> {
    let names: Vec<&str> = programs.iter().map(|program| program.name()).collect();
    eprintln!(
        "building {} for {architecture} with the profile `{profile}` (the first time takes minutes)",
        names.join(", ")
    );
    let mut folder = workspace::target()?;
    let foreign = Architecture::native() != Some(architecture);
    if foreign {
        check(architecture)?;
        folder.push(architecture.rust_target());
    }
    let cargo = |subcommand: &str| -> Result<Command> {
        let mut cargo = workspace::cargo()?;
        // cargo shows its own progress on standard error.
        cargo.args([subcommand, "--profile", profile]).stdin(Stdio::null());
        if foreign {
            let target = architecture.rust_target();
            cargo.args(["--target", target]);
            let linker = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
            cargo.env(linker, architecture.cross_compiler());
            // ring compiles C and assembly.
            cargo.env(format!("CC_{}", target.replace('-', "_")), architecture.cross_compiler());
        }
        Ok(cargo)
    };
    let (fixed, linked): (Vec<Program>, Vec<Program>) =
        programs.iter().partition(|program| program.is_static());
    let mut builds = Vec::new();
    if !linked.is_empty() {
        let mut build = cargo("build")?;
        build.args(linked.iter().flat_map(|program| ["--package", program.package()]));
        // The emulator is a library and stub tools besides; the other packages have a program each.
        build.args(["--lib", "--bins"]);
        builds.push(build);
    }
    for program in fixed {
        let mut build = cargo("rustc")?;
        build.args(["--package", program.package(), "--bin", program.name()]);
        build.args(["--", "-C", "target-feature=+crt-static"]);
        builds.push(build);
    }
    for mut build in builds {
        let status = build.status().context("cannot run cargo")?;
        ensure!(status.success(), "the programs do not build");
    }
    // Cargo's own profile has a folder of another name.
    Ok(folder.join(if profile == "dev" { "debug" } else { profile }))
}

/// Checks for Rust's target and the linker; the error names the missing packages.
fn check(architecture: Architecture) -> Result<()> {
    let (target, compiler) = (architecture.rust_target(), architecture.cross_compiler());
    let mut missing = Vec::new();
    let library = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(workspace::root())
        .output()
        .context("cannot run rustc")?;
    let library = PathBuf::from(String::from_utf8_lossy(&library.stdout).trim());
    // If the target is not installed, the folder is missing or empty.
    if std::fs::read_dir(library).map_or(true, |mut files| files.next().is_none()) {
        missing.push(format!("Rust's target {target}: rustup target add {target}"));
    }
    if Command::new(compiler).arg("--version").stdout(Stdio::null()).status().is_err() {
        let package = compiler.strip_suffix("-gcc").map(|prefix| format!("gcc-{prefix}"));
        missing.push(format!(
            "the linker {compiler}: apt-get install {}, or another distribution's cross compiler of that name",
            package.unwrap_or_default()
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("building for {architecture} on this machine needs\n  {}", missing.join("\n  "))
}
