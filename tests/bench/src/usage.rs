//! `cargo xtask bench usage`: the processor time of the plugin's monitoring of cards, the plugin's total at rest and
//! while claims come and go, and its answers to scrapes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tessera_harness::kubelet_stand_in::Claim;
use tessera_harness::{Cluster, ClusterOptions};
use tokio::time::{interval, sleep};

use super::prepare::claims;
use super::prepare::plugin::{self, RunningPlugin};

/// Cards of the machine, and how many of them are divided into seven partitions for claims.
const CARDS: usize = 8;
const DIVIDED: usize = 2;
const PARTITIONS: usize = 7;

/// The plugin's own default.
const INTERVAL: Duration = Duration::from_secs(15);

/// Time for the effects of the start and the claims to end.
const CALM: Duration = Duration::from_secs(5);

/// Between two claims ending and beginning again.
const CHURN: Duration = Duration::from_millis(250);

/// Arguments of `cargo xtask bench usage`.
#[derive(Args)]
pub struct UsageArguments {
    /// How long to measure, four times: with a look every second, without looks, with the default at rest, and while claims come
    /// and go.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Measures programs as tests build them, which takes no minutes: an upper bound.
    #[arg(long)]
    unoptimised: bool,
}

/// A plugin whose claims have all partitions.
struct Holding {
    plugin: RunningPlugin,
    claims: Vec<Claim>,
}

impl Holding {
    async fn start(cluster: &Cluster, programs: &plugin::Programs, every: Duration) -> Result<Self> {
        let every = every.as_secs().to_string();
        let name = format!("usage-{every}");
        let flags = [("usage-interval", every)];
        let plugin = RunningPlugin::start_with(cluster, programs, &name, CARDS, &flags).await?;
        let mut partitions = Vec::new();
        for card in plugin.devices.iter().take(DIVIDED) {
            partitions.extend((0..PARTITIONS).map(|start| format!("{card}-mig-1g10gb-{start}")));
        }
        let claims = claims::allocate(cluster, &partitions, partitions.len()).await?;
        for claim in &claims {
            plugin.prepare(claim).await?;
        }
        sleep(CALM).await;
        Ok(Self { plugin, claims })
    }

    /// Processor time of the plugin at rest, as a share of a core.
    async fn at_rest(&self, time: Duration) -> Result<f64> {
        let before = self.plugin.processor_time()?;
        sleep(time).await;
        Ok((self.plugin.processor_time()? - before).as_secs_f64() / time.as_secs_f64())
    }

    /// The same while claims end and begin again, and how many did.
    async fn in_churn(&self, time: Duration) -> Result<(f64, usize)> {
        let before = self.plugin.processor_time()?;
        let mut ticks = interval(CHURN);
        let count = (time.as_millis() / CHURN.as_millis()) as usize;
        for claim in self.claims.iter().cycle().take(count) {
            ticks.tick().await;
            self.plugin.unprepare(claim).await?;
            self.plugin.prepare(claim).await?;
        }
        Ok(((self.plugin.processor_time()? - before).as_secs_f64() / time.as_secs_f64(), count))
    }

    async fn stop(self, cluster: &Cluster) -> Result<()> {
        for claim in &self.claims {
            self.plugin.unprepare(claim).await?;
        }
        self.plugin.stop(cluster).await?;
        claims::delete(cluster).await
    }
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &UsageArguments) -> Result<ExitCode> {
    let programs = if arguments.unoptimised { plugin::build_unoptimised()? } else { plugin::build()? };
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await?;
    cluster.add_node_object(plugin::NODE).await?;
    let time = Duration::from_secs(arguments.seconds.into());
    let mut shares = Vec::new();
    for every in [Duration::from_secs(1), Duration::from_hours(1)] {
        let holding = Holding::start(&cluster, &programs, every).await?;
        shares.push(holding.at_rest(time).await?);
        holding.stop(&cluster).await?;
    }
    let (look, rest) = (shares[0] - shares[1], shares[1]);
    println!("{CARDS} cards, {DIVIDED} of them with {PARTITIONS} partitions each, all of them held");
    println!("processor time of a look:        {:.2} ms", look * 1e3);
    println!("of a core, every {INTERVAL:?}:          {:.3} %", look / INTERVAL.as_secs_f64() * 100.0);
    println!("of a core, everything else:      {:.3} %", rest * 100.0);

    let holding = Holding::start(&cluster, &programs, INTERVAL).await?;
    let share = holding.at_rest(time).await?;
    println!("with a look every {INTERVAL:?}:");
    println!(
        "at rest:                         {:.3} % of a core, {:.1} MiB",
        share * 100.0,
        holding.plugin.resident_mib()?
    );
    for path in ["/metrics", tessera_api::usage::PATH] {
        println!("{path:<33}{}", holding.plugin.scrapes(path).await?);
    }
    let (share, count) = holding.in_churn(time).await?;
    println!(
        "{count} partitions given back and made: {:.3} % of a core, {:.1} ms each, {:.1} MiB",
        share * 100.0,
        share * time.as_secs_f64() * 1e3 / count as f64,
        holding.plugin.resident_mib()?
    );
    holding.stop(&cluster).await?;
    Ok(ExitCode::SUCCESS)
}
