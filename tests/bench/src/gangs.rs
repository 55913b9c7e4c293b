//! `cargo xtask bench gangs`: time to plan a gang on a large fleet.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Deserialize;
use tessera_harness::workspace;

use super::quantiles::Quantiles;

const EXAMPLES: &str = "\
Examples:
  A gang of 64 pods with 8 cards each on 5,000 nodes:
    cargo xtask bench gangs
  A smaller one:
    cargo xtask bench gangs --nodes 500 --pods 16";

/// Arguments of `cargo xtask bench gangs`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GangsArguments {
    /// Nodes, with 8 managed cards each, of which half are held.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    nodes: u32,
    /// Pods of a gang, with 8 cards each.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pods: u32,
    /// How often it is done, each time from the beginning.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// The output of the example `gangs` of `crates/scheduling/decide`, in milliseconds.
#[derive(Deserialize)]
struct Round {
    /// The first gang after a start: all nodes are looked at.
    first_ms: f64,
    /// The second one: only changed nodes are looked at.
    next_ms: f64,
    /// This many pods outside gangs, each given its cards as it comes, all looked at together.
    alone_ms: f64,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub fn run(arguments: &GangsArguments) -> Result<ExitCode> {
    workspace::build(&["--release", "-p", "tessera-decide", "--example", "gangs"])?;
    let program = workspace::target()?.join("release/examples/gangs");
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..arguments.rounds {
        let output = Command::new(&program)
            .args([arguments.nodes.to_string(), arguments.pods.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        ensure!(output.status.success(), "{} failed: does the gang fit?", program.display());
        rounds.push(serde_json::from_slice(&output.stdout)?);
    }
    let median = |value: fn(&Round) -> f64| {
        let times = rounds.iter().map(|round| Duration::from_secs_f64(value(round) / 1e3));
        Quantiles::of(times.collect()).p50_ms
    };
    let (first, next, alone) =
        (median(|round| round.first_ms), median(|round| round.next_ms), median(|round| round.alone_ms));
    println!(
        "{} nodes with 8 cards, half of them held; medians of {} rounds, in milliseconds",
        arguments.nodes, arguments.rounds
    );
    println!("a gang of {} x 8, the first after a start: {first:.1}", arguments.pods);
    println!("the next one: {next:.1}");
    println!(
        "as many pods that are no gang, each where it fits (first-come gates): {alone:.1}; a gang takes {:.2} of it",
        next / alone
    );
    Ok(ExitCode::SUCCESS)
}
