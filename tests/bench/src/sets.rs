//! `cargo xtask bench sets`: which whole cards claims get while others come and go, by us and by others, on every known
//! machine.

mod report;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tessera_harness::workspace;

use report::Report;

/// Number of machines with a common queue.
const SEVERAL: usize = 16;

const EXAMPLES: &str = "\
Examples:
  Every machine, some minutes:
    cargo xtask bench sets
  One of them:
    cargo xtask bench sets --machine dgx-1-v100-hybrid-cube-mesh
  With less to do, and no request placed before an earlier one:
    cargo xtask bench sets --machine dgx-1-p100 --load 0.7 --in-order
  One line a machine, mix, load and policy:
    cargo xtask bench sets -o json";

/// Arguments of `cargo xtask bench sets`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SetsArguments {
    /// Only this machine of crates/base/inventory/tests/data/topologies.txt; repeat for several.
    #[arg(long = "machine", value_name = "NAME")]
    machines: Vec<String>,
    /// Requested cards relative to those that are there; repeat for several.
    #[arg(long = "load", value_name = "PART", default_values_t = [0.85, 0.95])]
    loads: Vec<f64>,
    /// Requests in each simulation of one machine.
    #[arg(long, default_value_t = 40_000)]
    arrivals: usize,
    /// Requests in each simulation of 16 machines; 0 leaves these out.
    #[arg(long, default_value_t = 10_000)]
    fleet_arrivals: usize,
    /// Simulations of each case, with the seeds 1, 2, 3, ….
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// On 16 machines a request waits for all that came before it, instead of for room alone.
    #[arg(long)]
    in_order: bool,
    /// `json` prints one line for each machine, mix, load and policy instead of tables.
    #[arg(short, long, value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

/// Simulates and prints.
///
/// # Errors
/// When the simulation cannot be built or run, or an argument is invalid.
pub fn run(arguments: &SetsArguments) -> Result<ExitCode> {
    let SetsArguments { machines, loads, arrivals, fleet_arrivals, seeds, in_order, output } = arguments;
    ensure!(loads.iter().all(|load| *load > 0.0 && load.is_finite()), "--load must be more than 0");
    ensure!(
        *arrivals >= 1_000 && (*fleet_arrivals == 0 || *fleet_arrivals >= 1_000) && *seeds > 0,
        "too few arrivals or seeds to say anything"
    );
    let names = report::machine_names();
    if let Some(unknown) = machines.iter().find(|machine| !names.contains(&machine.as_str())) {
        anyhow::bail!("there is no machine {unknown}; there are {}", names.join(", "));
    }
    workspace::build(&["--release", "-p", "tessera-decide", "--example", "sets"])?;
    let program = workspace::target()?.join("release/examples/sets");
    let nodes: &[usize] = if *fleet_arrivals == 0 { &[1] } else { &[1, SEVERAL] };
    let options = json!({
        "machines": machines, "nodes": nodes, "loads": loads, "arrivals": [arrivals, fleet_arrivals],
        "seeds": (1..=*seeds).collect::<Vec<u64>>(), "in_order": in_order,
    });
    let mut child = Command::new(&program)
        .arg(options.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let count = if machines.is_empty() { names.len() } else { machines.len() };
    let lines: usize = nodes.iter().map(|nodes| report::policies(*nodes) * report::MIXES * loads.len()).sum();
    let progress = ProgressBar::new((count * lines) as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} simulated, {elapsed}: {msg}")?);
    let mut reports = Vec::new();
    for line in BufReader::new(child.stdout.take().context("standard output is a pipe")?).lines() {
        let report: Report = serde_json::from_str(&line?)?;
        progress.set_message(format!("{} × {}", report.nodes, report.machine));
        progress.inc(1);
        reports.push(report);
    }
    progress.finish_and_clear();
    ensure!(child.wait()?.success(), "{} failed", program.display());
    reports.sort_by_key(|report| report.place(&names));
    match output.as_str() {
        "json" => {
            for report in &reports {
                println!("{}", serde_json::to_string(report)?);
            }
        }
        _ => report::print(&reports),
    }
    Ok(ExitCode::SUCCESS)
}
