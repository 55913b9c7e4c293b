//! `cargo xtask bench packing`: how much of a fleet each policy allocates on openb's traces, and how long a choice takes.

mod report;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tessera_harness::workspace;
use tessera_simulate::PolicyName;

use report::Line;

const EXAMPLES: &str = "\
The traces are Alibaba's, in the form in which FGD was measured on them: data/csv of
https://github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0).

Examples:
  All four traces, ten seeds, and fleets that pods leave; some minutes:
    cargo xtask bench packing ../shared/data/openb
  One trace, and nothing with departures:
    cargo xtask bench packing ../shared/data/openb --trace default --steady-seeds 0
  One line a result:
    cargo xtask bench packing ../shared/data/openb -o json";

/// Arguments of `cargo xtask bench packing`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PackingArguments {
    /// With openb_node_list_gpu_node.csv and openb_pod_list_NAME.csv.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Names of the lists of pods; repeat for several.
    #[arg(long = "trace", value_name = "NAME", default_values = ["default", "gpushare40", "multigpu20", "cpu100"])]
    traces: Vec<String>,
    /// Runs of each policy on each trace without departures.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Of these, runs through the decision loop, on the first trace only: each takes a good ten seconds.
    #[arg(long, default_value_t = 3)]
    loop_seeds: usize,
    /// The seed of the first run.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Runs of each case with departures; 0 for none.
    #[arg(long, default_value_t = 3)]
    steady_seeds: u64,
    /// Offered loads with departures, in percent of the cards; repeat for several.
    #[arg(long = "steady-load", value_name = "PERCENT", default_values_t = [90.0, 100.0, 110.0, 130.0])]
    steady_loads: Vec<f64>,
    /// Nodes of the fleet on which decisions are timed; 0 for none.
    #[arg(long, default_value_t = 5_000)]
    decision_nodes: usize,
    /// Decisions of the loop that are timed on it.
    #[arg(long, default_value_t = 10_000)]
    loop_decisions: usize,
    /// `json` prints one line for each result instead of tables.
    #[arg(short, long, value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

/// Simulates and prints.
///
/// # Errors
/// When the simulation cannot be built or run, or the traces are not there.
pub fn run(arguments: &PackingArguments) -> Result<ExitCode> {
    let PackingArguments {
        directory,
        traces,
        seeds,
        loop_seeds,
        seed,
        steady_seeds,
        steady_loads,
        decision_nodes,
        loop_decisions,
        output,
    } = arguments;
    ensure!(*seeds > 0, "--seeds must be more than 0");
    ensure!(
        steady_loads.iter().all(|load| *load > 0.0 && *load <= 1000.0),
        "--steady-load must be from 1 to 1000"
    );
    for trace in traces {
        let file = directory.join(format!("openb_pod_list_{trace}.csv"));
        ensure!(file.is_file(), "there is no {}; --help says where the traces are from", file.display());
    }
    // The program runs in another directory.
    let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
    workspace::build(&["--release", "-p", "tessera-simulate", "--example", "packing"])?;
    let program = workspace::target()?.join("release/examples/packing");
    let policies = PolicyName::ALL.map(PolicyName::name);
    let from = |count: u64| (*seed..).take(count as usize).collect::<Vec<u64>>();
    let options = json!({
        "directory": directory, "traces": traces, "policies": policies, "seeds": from(*seeds),
        "loop_seeds": loop_seeds,
        "steady_loads": steady_loads, "steady_policies": report::STEADY.map(PolicyName::name), "steady_seeds": from(*steady_seeds),
        "decision_nodes": decision_nodes, "loop_decisions": loop_decisions,
    });
    let mut child = Command::new(&program)
        .arg(options.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let loops = PolicyName::ALL.iter().filter(|policy| policy.is_loop()).count();
    let filling = traces.len() as u64 * seeds * (policies.len() - loops) as u64
        + (*loop_seeds as u64).min(*seeds) * loops as u64;
    let steady = (traces.len() * steady_loads.len() * report::STEADY.len()) as u64 * steady_seeds;
    let progress = ProgressBar::new(filling + steady + 2 * u64::from(*decision_nodes > 0));
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} simulated, {elapsed}")?);
    let mut lines: Vec<Line> = Vec::new();
    for line in BufReader::new(child.stdout.take().context("standard output is a pipe")?).lines() {
        let line = line?;
        progress.inc(1);
        if output == "json" {
            progress.suspend(|| println!("{line}"));
        }
        lines.push(serde_json::from_str(&line)?);
    }
    progress.finish_and_clear();
    ensure!(child.wait()?.success(), "{} failed", program.display());
    if output == "table" {
        report::print(traces, &lines);
    }
    Ok(ExitCode::SUCCESS)
}
