//! `cargo xtask bench usage`: the processor time that the plugin's look at what cards do takes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tessera_harness::{Cluster, ClusterOptions};
use tokio::time::sleep;

use super::prepare::claims;
use super::prepare::plugin::{self, RunningPlugin};

/// Cards of the machine, and how many of them are divided into seven partitions that claims have.
const CARDS: usize = 8;
const DIVIDED: usize = 2;
const PARTITIONS: usize = 7;

/// The plugin's own default.
const INTERVAL: Duration = Duration::from_secs(15);

/// Until what the start and the claims have set off is over.
const CALM: Duration = Duration::from_secs(5);

/// Arguments of `cargo xtask bench usage`.
#[derive(Args)]
pub struct UsageArguments {
    /// How long to measure, twice: with a look every second, and without looks.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Measures programs as tests build them, which takes no minutes: an upper bound.
    #[arg(long)]
    unoptimised: bool,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &UsageArguments) -> Result<ExitCode> {
    let programs = if arguments.unoptimised { plugin::build_unoptimised()? } else { plugin::build()? };
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await?;
    cluster.add_node_object(plugin::NODE).await?;
    let mut took = Vec::new();
    for interval in ["1", "3600"] {
        let flags = [("usage-interval", interval.to_owned())];
        let name = format!("usage-{interval}");
        let plugin = RunningPlugin::start_with(&cluster, &programs, &name, CARDS, &flags).await?;
        let mut partitions = Vec::new();
        for card in plugin.devices.iter().take(DIVIDED) {
            partitions.extend((0..PARTITIONS).map(|start| format!("{card}-mig-1g10gb-{start}")));
        }
        let claims = claims::allocate(&cluster, &partitions, partitions.len()).await?;
        for claim in &claims {
            plugin.prepare(claim).await?;
        }
        sleep(CALM).await;
        let before = plugin.processor_time()?;
        sleep(Duration::from_secs(arguments.seconds.into())).await;
        took.push(plugin.processor_time()? - before);
        for claim in &claims {
            plugin.unprepare(claim).await?;
        }
        plugin.stop(&cluster).await?;
        claims::delete(&cluster).await?;
    }
    let [with, without] = [took[0], took[1]].map(|took| took.as_secs_f64());
    let look = (with - without) / f64::from(arguments.seconds);
    println!("{CARDS} cards, {DIVIDED} of them with {PARTITIONS} partitions each");
    println!("processor time of a look:        {:.2} ms", look * 1e3);
    println!("of a core, every {INTERVAL:?}:          {:.3} %", look / INTERVAL.as_secs_f64() * 100.0);
    let rest = without / f64::from(arguments.seconds) * 100.0;
    println!("of a core, everything else:      {rest:.3} %");
    Ok(ExitCode::SUCCESS)
}
