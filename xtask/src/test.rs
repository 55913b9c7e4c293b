//! `cargo xtask test`: formatting, lints, documentation, and every test, with one closing line.

mod tally;

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Args;

use tessera_harness::workspace;

use self::tally::Tally;

/// What `cargo xtask test` takes.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask test                        everything, as CI does
  cargo xtask test --only tests           the tests, without formatting, lints and documentation
  cargo xtask test --only tests -p tessera-inventory
  CI=true cargo xtask test                a tier this machine cannot run is a failure, not a skip")]
pub struct TestArguments {
    /// Run one part only.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Test this package only (may be repeated); formatting and lints still cover the workspace.
    #[arg(long, short, value_name = "PACKAGE")]
    package: Vec<String>,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// `cargo fmt --check`.
    Formatting,
    /// `cargo clippy`, warnings being errors.
    Lints,
    /// `cargo doc`, warnings being errors.
    Documentation,
    /// Unit, property, emulator and end-to-end tests.
    Tests,
}

/// The packages whose tests start clusters. One after another: two cores carry one cluster at a time.
const CLUSTER_TESTS: [&str; 2] = ["tessera-harness", "tessera-end-to-end"];

/// Runs what is asked for; the last line on standard output is the tally.
///
/// # Errors
/// When a command cannot be started at all. A failing check or test is counted, not an error.
pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let started = Instant::now();
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let mut tally = Tally::default();
    if wanted(Part::Formatting) {
        check(&mut tally, "formatting", &["fmt", "--all", "--check"], &[])?;
    }
    if wanted(Part::Lints) {
        let lints = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        check(&mut tally, "lints", &lints, &[])?;
    }
    if wanted(Part::Documentation) {
        let doc = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
        check(&mut tally, "documentation", &doc, &[("RUSTDOCFLAGS", "--deny warnings")])?;
    }
    if wanted(Part::Tests) {
        tests(&mut tally, &arguments.package)?;
    }
    println!("\n{} in {:.0} s", tally.verdict(), started.elapsed().as_secs_f64());
    tally.print_failures();
    println!("{tally}");
    Ok(if tally.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A check that is one test: it passes when the command succeeds.
fn check(tally: &mut Tally, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    println!("\n== {name}: cargo {}", arguments.join(" "));
    let status = cargo()
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("cannot run cargo for {name}"))?;
    tally.check(name, status.success());
    Ok(())
}

fn tests(tally: &mut Tally, packages: &[String]) -> Result<()> {
    // The tests start the plugin and load the emulator as a user would: from the binaries.
    check(tally, "build", &["build", "--quiet", "--workspace"], &[])?;
    let skips = tempfile();
    let (clusters, others): (Vec<&str>, Vec<&str>) = if packages.is_empty() {
        (CLUSTER_TESTS.to_vec(), vec![])
    } else {
        packages.iter().map(String::as_str).partition(|package| CLUSTER_TESTS.contains(package))
    };
    let quick: Vec<&str> = if packages.is_empty() {
        ["--workspace"]
            .into_iter()
            .chain(CLUSTER_TESTS.into_iter().flat_map(|package| ["--exclude", package]))
            .collect()
    } else {
        others.iter().flat_map(|package| ["--package", package]).collect()
    };
    if !quick.is_empty() {
        cargo_test(tally, &quick, &[], &skips)?;
    }
    if !clusters.is_empty() {
        let clusters: Vec<&str> = clusters.iter().flat_map(|package| ["--package", package]).collect();
        cargo_test(tally, &clusters, &["--test-threads", "1", "--nocapture"], &skips)?;
    }
    tally.read_skips(&skips);
    Ok(())
}

/// Where tests write what they skip and why (`tessera_harness` does, one line each).
fn tempfile() -> PathBuf {
    env::temp_dir().join(format!("tessera-skips-{}", std::process::id()))
}

fn cargo_test(tally: &mut Tally, selection: &[&str], to_tests: &[&str], skips: &PathBuf) -> Result<()> {
    println!("\n== tests: cargo test {}", selection.join(" "));
    let mut child = cargo()
        .args(["test", "--quiet", "--no-fail-fast"])
        .args(selection)
        .args(["--", "--format", "pretty"])
        .args(to_tests)
        .env("TESSERA_SKIPS", skips)
        .env(workspace::BUILT_VARIABLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    let output = child.stdout.take().context("cargo test has no output")?;
    let mut suites = 0;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("cannot read what cargo test prints")?).into_owned();
        println!("{line}");
        suites += u32::from(tally.line(&line));
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    if !status.success() && !tally.failed() || suites == 0 {
        tally.check(&format!("cargo test {}", selection.join(" ")), false);
    }
    Ok(())
}
