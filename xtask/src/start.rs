//! Commands that are programs of their own: compiled with cargo's progress on the screen, then run in place of this
//! process.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};
use clap::Args;
use tessera_workspace as workspace;

/// Arguments that the program reads itself, `--help` too.
#[derive(Args)]
pub struct Passed {
    /// `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// A program with commands of `cargo xtask`.
pub struct Program {
    /// Its package, and its name.
    package: &'static str,
    /// Whether the command is its first argument: it has several.
    names_command: bool,
}

/// The demo, clusters, images and others.
pub const TASKS: Program = Program { package: "tessera-tasks", names_command: true };

/// The benchmarks.
pub const BENCH: Program = Program { package: "tessera-bench", names_command: false };

/// How long a build takes where nothing is built yet, for the first message: minutes on two processors (docs/testing.md).
const FIRST_BUILD: &str = "from nothing about four minutes on two processors";

/// Compiles the program, with the programs that it will start, and becomes it. Returns only an error.
///
/// # Errors
/// It cannot be compiled or started.
pub fn run(program: &Program, command: &str, passed: &Passed) -> Result<ExitCode> {
    let mut packages = vec![program.package];
    packages.extend(started_by(command, &passed.arguments));
    let folder = workspace::profile_folder()?;
    if !folder.join(program.package).exists() {
        eprintln!("compiling what `cargo xtask {command}` runs: {FIRST_BUILD}");
    }
    workspace::compile(&packages)?;
    let path = folder.join(program.package);
    let mut process = Command::new(&path);
    process.args(program.names_command.then_some(command)).args(&passed.arguments);
    Err(process.exec()).with_context(|| format!("cannot run {}", path.display()))
}

/// Packages of the programs that a command starts at once. The command would compile them itself, without a word.
fn started_by(command: &str, arguments: &[OsString]) -> Vec<&'static str> {
    let has = |names: &[&str]| {
        arguments.iter().filter_map(|argument| argument.to_str()).any(|argument| {
            names.iter().any(|name| {
                argument == *name || argument.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
            })
        })
    };
    let starts_cluster = match command {
        "demo" => !has(&["--help", "-h", "--kubeconfig"]),
        "cluster" => has(&["up"]) && !has(&["--help", "-h"]),
        _ => false,
    };
    match starts_cluster {
        false => Vec::new(),
        true if command == "cluster" || has(&["--keep", "--gangs", "--teams"]) => {
            workspace::TESTED_AND_CLI.to_vec()
        }
        true => workspace::TESTED.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(command: &str, arguments: &[&str]) -> Vec<&'static str> {
        started_by(command, &arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_that_starts_a_cluster_needs_its_programs() {
        assert_eq!(started("demo", &[]), workspace::TESTED);
        assert!(started("demo", &["--keep"]).contains(&"kubectl-gpu"));
        assert!(started("cluster", &["up", "--nodes", "2"]).contains(&"kubectl-gpu"));
        for (command, arguments) in [
            ("demo", &["--help"][..]),
            ("demo", &["--kubeconfig=c"]),
            ("cluster", &["status"]),
            ("cluster", &["up", "--help"]),
            ("image", &[]),
        ] {
            assert!(started(command, arguments).is_empty(), "{command} {arguments:?}");
        }
    }
}
