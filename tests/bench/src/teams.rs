//! `cargo xtask bench teams`: ten teams share a fleet for a month, first come first served and with GpuQuotas; and what 200 quotas cost a
//! round of decisions.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tessera_harness::workspace;

/// Teams of the rounds that are timed.
const TEAMS: usize = 200;

const EXAMPLES: &str = "\
Examples:
  A month, overloaded and not, and rounds on 5,000 nodes:
    cargo xtask bench teams
  A week, without waiting for an optimised build:
    cargo xtask bench teams --days 7 --unoptimised
  Rounds alone:
    cargo xtask bench teams --days 0";

/// Arguments of `cargo xtask bench teams`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TeamsArguments {
    /// Days during which jobs arrive; 0 leaves the month out.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=366))]
    days: u32,
    /// Nodes with eight cards.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(8..=1_000))]
    nodes: u32,
    /// Requested card-hours relative to those that there are; repeat for several.
    #[arg(long = "load", value_name = "PART", default_values_t = [2.0, 0.85])]
    loads: Vec<f64>,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nodes of the fleet on which rounds are timed; 0 for none.
    #[arg(long, default_value_t = 5_000)]
    round_nodes: u32,
    /// Pods that wait meanwhile.
    #[arg(long, default_value_t = 10_000)]
    round_pods: u32,
    /// Build without optimisation: figures in hours and cards are the same, times of rounds are longer.
    #[arg(long)]
    unoptimised: bool,
}

/// Simulates and prints.
///
/// # Errors
/// When the simulation cannot be built or run, or an argument is invalid.
pub fn run(arguments: &TeamsArguments) -> Result<ExitCode> {
    let TeamsArguments { days, nodes, loads, seed, round_nodes, round_pods, unoptimised } = arguments;
    ensure!(
        loads.iter().all(|load| *load > 0.0 && *load <= 10.0),
        "--load must be more than 0, and at most 10"
    );
    let examples =
        ["-p", "tessera-simulate", "-p", "tessera-decide", "--example", "teams", "--example", "quota_rounds"];
    let (profile, optimised): (_, &[&str]) =
        if *unoptimised { ("debug", &[]) } else { ("release", &["--release"]) };
    workspace::build(&[&examples[..], optimised].concat())?;
    let folder = workspace::target()?.join(profile).join("examples");
    for load in loads.iter().filter(|_| *days > 0) {
        example(
            &folder.join("teams"),
            &[days.to_string(), nodes.to_string(), load.to_string(), seed.to_string()],
        )?;
        println!();
    }
    if *round_nodes > 0 {
        for teams in [0, TEAMS] {
            let sizes = [round_nodes.to_string(), round_pods.to_string(), teams.to_string()];
            example(&folder.join("quota_rounds"), &sizes)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs an example, which prints its result.
fn example(program: &Path, arguments: &[String]) -> Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .status()
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(status.success(), "{} failed", program.display());
    Ok(())
}
