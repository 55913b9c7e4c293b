//! `cargo xtask test`: formatting, lints, documentation, and all tests, with a summary line at the end.

mod lanes;
mod suites;
mod tally;
mod times;

use std::{
    env,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;
use tessera_workspace as workspace;

use self::{suites::Build, tally::Tally, times::Times};

/// Arguments of `cargo xtask test`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask test                        everything on Kubernetes 1.37, as CI does
  cargo xtask test --only tests           the tests, without formatting, lints and documentation
  cargo xtask test --only tests -p tessera-inventory
  cargo xtask test --kubernetes 1.36      on an older Kubernetes: the chart's policies, steering and managed pools, an upgrade
  CI=true cargo xtask test                a tier this machine cannot run is a failure, not a skip")]
pub struct TestArguments {
    /// Run only one part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Test only this package (may be repeated); formatting and lints still cover the workspace.
    #[arg(long, short, value_name = "PACKAGE")]
    package: Vec<String>,
    /// Run what differs most between versions of Kubernetes, and nothing else, on this one: policies of the chart, steering and managed
    /// pools, an upgrade to the newest version. The first time its programs are built, which takes minutes.
    #[arg(long, value_name = "VERSION", value_parser = ["1.35", "1.36", "1.37"], conflicts_with_all = ["only", "package"])]
    kubernetes: Option<String>,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// `cargo fmt --check`.
    Formatting,
    /// `cargo clippy`, with warnings as errors.
    Lints,
    /// `cargo doc`, with warnings as errors.
    Documentation,
    /// Unit, property, emulator and end-to-end tests.
    Tests,
}

/// The state of the run.
struct Run {
    tally: Tally,
    times: Times,
}

/// Runs the requested parts; the last line on standard output is the tally.
///
/// # Errors
/// When a command cannot be started at all. A failing check or test is counted, not an error.
pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let only = arguments.only.or(arguments.kubernetes.is_some().then_some(Part::Tests));
    let wanted = |part| only.is_none_or(|only| only == part);
    let mut run = Run { tally: Tally::default(), times: Times::default() };
    if wanted(Part::Formatting) {
        run.check("formatting", &["fmt", "--all", "--check"], &[])?;
    }
    if wanted(Part::Lints) {
        let lints = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        run.check("lints", &lints, &[])?;
    }
    if wanted(Part::Documentation) {
        let doc = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
        run.check("documentation", &doc, &[("RUSTDOCFLAGS", "--deny warnings")])?;
    }
    if wanted(Part::Tests) {
        match &arguments.kubernetes {
            None => {
                run.tests(&arguments.package, |packages| Ok(Build::run(packages)?.on_default_version()))?
            }
            Some(version) => {
                let packages = suites::OF_VERSIONS.map(|(package, _)| package.to_owned());
                run.tests(&packages, |packages| Ok(Build::run(packages)?.on(version)))?;
            }
        }
    }
    let Run { tally, times } = run;
    println!("\nWhere the time went, slowest first:\n{times}");
    println!("{} in {:.0} s", tally.verdict(), times.total().as_secs_f64());
    tally.print_failures();
    println!("{tally}");
    Ok(if tally.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Run {
    /// A check counted as one test: passed when the command succeeds.
    fn check(&mut self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
        println!("\n== {name}: cargo {}", arguments.join(" "));
        let status = self.times.build(name, || {
            workspace::cargo()?
                .args(arguments)
                .envs(environment.iter().copied())
                .status()
                .with_context(|| format!("cannot run cargo for {name}"))
        })?;
        self.tally.check(name, status.success());
        Ok(())
    }

    /// Builds everything once, by one command and so with one set of features; cargo's own `test` would build again for
    /// each selection of packages. The tests start the plugin and load the emulator as a user would: from the binaries.
    fn tests(&mut self, packages: &[String], build: impl FnOnce(&[String]) -> Result<Build>) -> Result<()> {
        println!("\n== build: the workspace with its tests");
        let build = self.times.build("the workspace with its tests", || build(packages))?;
        self.tally.check("build", build.succeeded);
        if !build.succeeded {
            return Ok(());
        }
        let notes = Notes { skips: notes("skips"), clusters: notes("clusters") };
        let lanes = self.times.processors(|| lanes::run(&build, packages, &notes, &show))?;
        for (tally, times) in lanes {
            self.tally.add(tally);
            self.times.add(times);
        }
        self.tally.read_skips(&notes.skips);
        self.times.read_clusters(&notes.clusters);
        Ok(())
    }
}

fn show(text: &[u8]) -> io::Result<()> {
    let mut screen = io::stdout().lock();
    screen.write_all(text).and_then(|()| screen.flush())
}

/// Files that tests write to (by `tessera_harness`).
struct Notes {
    /// Skipped tests and reasons, one line each.
    skips: PathBuf,
    /// Seconds that each cluster took to start, one line each.
    clusters: PathBuf,
}

fn notes(name: &str) -> PathBuf {
    env::temp_dir().join(format!("tessera-{name}-{}", std::process::id()))
}
