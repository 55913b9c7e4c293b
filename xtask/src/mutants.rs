//! `cargo xtask mutants`: mutation tests of the node agent's critical part: changes the code in one place after
//! another, and lists the changes unnoticed by all tests.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_workspace as workspace;

use crate::cargo_tool::CargoTool;

const TOOL: CargoTool = CargoTool {
    name: "cargo-mutants",
    version: "27.1.0",
    arguments: &[],
    expected: Duration::from_secs(150),
};

/// The package whose code is changed.
const PLUGIN: &str = "tessera-kubelet-plugin";

/// Excluded tests, by parts of their names: they take minutes and notice little more than quick ones.
const SLOW: [&str; 6] =
    ["interleavings::", "load::", "killed::", "share_crash::every", "share_crash::power", "mig_crash::every"];

/// Timeout of one mutant's tests, in seconds: several times their duration on two busy processors.
const LONGEST_TESTS: &str = "300";

/// Timeout for cargo-mutants to end after a signal.
const LONGEST_END: Duration = Duration::from_secs(30);

/// Exit codes of cargo-mutants: all mutants were noticed; some were not; some made tests hang.
const FINISHED: [i32; 3] = [0, 2, 3];

/// Arguments of `cargo xtask mutants`.
#[derive(Args)]
#[command(
    after_help = "Works in a copy of the repository: first the tests without any change, for some minutes, then each mutant, for a
minute or more. The slowest tests are left out. What no test noticed is printed at the end, and kept with the logs in
<target>/mutants. docs/benchmarks/mutants.md says what survives and why.

The copy has a target folder of its own, <target>/mutants/build.

Examples:
  cargo xtask mutants                                  all of them: more than a day on two processors
  cargo xtask mutants --in journal
  cargo xtask mutants --in prepare --minutes 25        a random sample
  cargo xtask mutants --in prepare --shard 0/8         the first eighth
  cargo xtask mutants --in mps --file stop.rs          those of one file
  cargo xtask mutants --in mps --list                  what would be changed

Exit code: 0 when every mutant that was tried was noticed, 1 when one was not."
)]
pub struct MutantsArguments {
    /// Mutate only this part (may be repeated). [default: all]
    #[arg(long = "in", value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Mutate only files of this name.
    #[arg(long, value_name = "NAME")]
    file: Option<String>,
    /// End after this many minutes for each part; mutants are chosen at random.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// Try one of N equal parts, counted from 0: `0/8`.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Print the mutants instead of trying them.
    #[arg(long)]
    list: bool,
}

/// A part of the node agent.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Journal,
    Prepare,
    Mps,
}

impl Part {
    const ALL: [Self; 3] = [Self::Journal, Self::Prepare, Self::Mps];

    const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Prepare => "prepare",
            Self::Mps => "mps",
        }
    }

    /// The package and the folder of its sources.
    const fn sources(self) -> (&'static str, &'static str) {
        match self {
            Self::Journal => ("tessera-journal", "crates/node/journal/src"),
            Self::Prepare => (PLUGIN, "kubelet-plugin/src/prepare"),
            Self::Mps => ("tessera-mps-host", "mps-host/src"),
        }
    }

    /// The tests expected to notice, as arguments of `cargo test`; the quick ones first.
    const fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Journal => &["--lib", "--test=journal", "--test=prepare"],
            Self::Prepare => &["--lib", "--test=prepare", "--test=shares"],
            Self::Mps => &["--lib", "--test=prepare", "--test=mps_host", "--test=shares"],
        }
    }
}

/// Tries the mutants; the unnoticed ones are the last lines on standard output.
///
/// # Errors
/// When cargo-mutants is missing or does not work, for example when tests fail without any change.
pub fn run(arguments: &MutantsArguments) -> Result<ExitCode> {
    let program = TOOL.find()?;
    let output = workspace::target()?.join("mutants");
    let build = output.join("build");
    let parts = if arguments.parts.is_empty() { &Part::ALL[..] } else { &arguments.parts };
    let mut all = Outcome { tried: 0, survivors: Vec::new() };
    for part in parts {
        let output = output.join(part.name());
        std::fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
        let mut command = command(&program, arguments, *part, &output);
        command.env("CARGO_TARGET_DIR", &build);
        let longest = arguments.minutes.map(|minutes| Duration::from_secs(minutes * 60));
        let (status, is_over) = wait(command, longest)?;
        if !is_over && !status.code().is_some_and(|code| FINISHED.contains(&code)) {
            bail!("cargo-mutants failed in {} ({status}); its logs are in {}", part.name(), output.display());
        }
        if !arguments.list {
            let outcome = read(&output.join("mutants.out"))?;
            all.tried += outcome.tried;
            all.survivors.extend(outcome.survivors);
        }
    }
    if arguments.list {
        return Ok(ExitCode::SUCCESS);
    }
    for survivor in &all.survivors {
        println!("{survivor}");
    }
    println!("{} mutants tried, {} not noticed by any test", all.tried, all.survivors.len());
    Ok(if all.survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn command(program: &Path, arguments: &MutantsArguments, part: Part, output: &Path) -> Command {
    let (package, sources) = part.sources();
    let mut command = Command::new(program);
    command.arg("mutants").current_dir(workspace::root()).args(["--package", package]);
    // The plugin's tests cover all parts.
    command.args(["--test-package", package, "--test-package", PLUGIN]);
    match &arguments.file {
        Some(file) => command.arg("--file").arg(format!("{sources}/**/{file}")),
        None => command.args(["--file", &format!("{sources}.rs"), "--file", &format!("{sources}/**")]),
    };
    if let Some(shard) = &arguments.shard {
        command.args(["--shard", shard]);
    }
    if arguments.list {
        command.arg("--list");
        return command;
    }
    if arguments.minutes.is_some() {
        command.arg("--shuffle");
    }
    command.args(["--timeout", LONGEST_TESTS, "--output"]).arg(output);
    // For all calls of cargo, which would build every test otherwise.
    command.args(part.tests().iter().map(|test| format!("--cargo-arg={test}")));
    command.args(["--", "--"]).args(SLOW.iter().flat_map(|slow| ["--skip", slow]));
    // Standard output is reserved for surviving mutants.
    command.stdout(Stdio::from(io::stderr()));
    command
}

/// Waits for the end or the time limit; returns the status, and whether the time was over.
fn wait(mut command: Command, longest: Option<Duration>) -> Result<(ExitStatus, bool)> {
    let mut child = command.spawn().context("cannot start cargo-mutants")?;
    let Some(longest) = longest else { return Ok((child.wait()?, false)) };
    if let Some(status) = wait_for(&mut child, longest)? {
        return Ok((status, false));
    }
    // Like Ctrl-C: cargo-mutants ends its child processes, and its lists are complete.
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)
        .context("cannot interrupt cargo-mutants")?;
    match wait_for(&mut child, LONGEST_END)? {
        Some(status) => Ok((status, true)),
        None => {
            child.kill().context("cannot end cargo-mutants")?;
            Ok((child.wait()?, true))
        }
    }
}

fn wait_for(child: &mut Child, longest: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + longest;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(None)
}

/// Results of a part's mutants.
struct Outcome {
    tried: usize,
    survivors: Vec<String>,
}

/// Reads the lists written by cargo-mutants, one mutant per line.
fn read(results: &Path) -> Result<Outcome> {
    let list = |name: &str| -> Result<Vec<String>> {
        let path = results.join(name);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let survivors = list("missed.txt")?;
    let tried = survivors.len() + list("caught.txt")?.len() + list("timeout.txt")?.len();
    ensure!(tried > 0, "no mutant was tried, see {}: give it more time", results.join("log").display());
    Ok(Outcome { tried, survivors })
}
