//! `cargo xtask`: all development tasks of this repository. Those that need only cargo are here. The others are programs
//! of their own, compiled and started by [`start`], so that the first message comes within seconds.
#![forbid(unsafe_code)]

mod cargo_tool;
mod deny;
mod docs;
mod mutants;
mod sbom;
mod start;
mod test;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use self::start::{BENCH, Passed, TASKS};

/// All development tasks of the Tessera repository.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    max_term_width = 120,
    disable_help_subcommand = true,
    after_help = "`cargo xtask COMMAND --help` says more."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the main use case on a real cluster with emulated cards.
    #[command(disable_help_flag = true)]
    Demo(Passed),
    /// Starts, shows or ends a cluster for development.
    #[command(disable_help_flag = true)]
    Cluster(Passed),
    /// Writes the chart's CustomResourceDefinitions from the Rust types.
    #[command(disable_help_flag = true)]
    Crds(Passed),
    /// Writes the chart's expressions that check configuration, from the Rust types.
    #[command(disable_help_flag = true)]
    Admission(Passed),
    /// Measures the steps of a pod's start.
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Compares our allocator with Kubernetes' own on generated requests.
    #[command(disable_help_flag = true)]
    Oracle(Passed),
    /// Runs all checks and tests, and ends with one line: `N passed, N failed`.
    Test(test::TestArguments),
    /// Checks dependencies against deny.toml: licences, sources, known vulnerabilities; says what it could not check.
    Deny(deny::DenyArguments),
    /// Checks the links of all pages, and builds docs/ as a site.
    Docs(docs::DocsArguments),
    /// Writes what the shipped programs are made of: a software bill of materials for each.
    Sbom(sbom::SbomArguments),
    /// Changes the node agent in one place after another, and says which changes no test notices.
    Mutants(mutants::MutantsArguments),
    /// Lets NVML clients written by others read the emulated machines; lists those that it did not find.
    #[command(disable_help_flag = true)]
    Strangers(Passed),
    /// Builds the images that the chart names, without a container engine.
    #[command(disable_help_flag = true)]
    Image(Passed),
    /// Compares what Tessera reads of this machine's NVIDIA cards with nvidia-smi; read-only. With --mps, tries
    /// whether MPS enforces its clients' limits.
    #[command(disable_help_flag = true)]
    GpuCheck(Passed),
}

/// `help COMMAND` as `COMMAND --help`: only the commands' own programs know their arguments, so clap's `help` is of no use.
fn without_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse_from(without_help(env::args_os().collect())).command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Deny(arguments) => deny::run(&arguments),
        Command::Docs(arguments) => docs::run(&arguments),
        Command::Sbom(arguments) => sbom::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Bench(passed) => start::run(&BENCH, "bench", &passed),
        Command::Demo(passed) => start::run(&TASKS, "demo", &passed),
        Command::Cluster(passed) => start::run(&TASKS, "cluster", &passed),
        Command::Crds(passed) => start::run(&TASKS, "crds", &passed),
        Command::Admission(passed) => start::run(&TASKS, "admission", &passed),
        Command::Oracle(passed) => start::run(&TASKS, "oracle", &passed),
        Command::Strangers(passed) => start::run(&TASKS, "strangers", &passed),
        Command::Image(passed) => start::run(&TASKS, "image", &passed),
        Command::GpuCheck(passed) => start::run(&TASKS, "gpu-check", &passed),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_a_command_too() {
        for (words, wanted) in [
            (&["xtask", "help"][..], &["xtask", "--help"][..]),
            (&["xtask", "help", "cluster", "up"], &["xtask", "cluster", "up", "--help"]),
            (&["xtask", "cluster", "help"], &["xtask", "cluster", "help"]),
        ] {
            assert_eq!(without_help(words.iter().map(OsString::from).collect()), wanted);
        }
    }

    #[test]
    fn the_arguments_of_other_programs_are_passed_on_as_they_are() {
        for words in
            [&["demo", "--help"][..], &["demo", "--keep", "-o", "json"], &["cluster", "up", "--nodes=2"]]
        {
            let arguments = [&["cargo xtask"], words].concat();
            let passed = match Arguments::try_parse_from(arguments)
                .map_err(|error| error.to_string())
                .unwrap()
                .command
            {
                Command::Demo(passed) | Command::Cluster(passed) => passed,
                _ => panic!("another command"),
            };
            assert_eq!(passed.arguments, &words[1..]);
        }
    }
}
