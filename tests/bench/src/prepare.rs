//! `cargo xtask bench prepare`: the plugin as built for the node image, a real API server, emulated cards with and
//! without delay, and a stand-in for the kubelet calling the plugin over its socket.

pub(super) mod claims;
pub(super) mod metrics;
mod paced;
pub(super) mod plugin;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets};
use futures::future::try_join_all;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use serde::Serialize;
use tessera_harness::{Cluster, ClusterOptions, kubelet_stand_in::Claim, workspace};
use tokio::time::sleep;

use self::{
    metrics::{OwnTime, PhaseMeans},
    plugin::RunningPlugin,
};
use super::{output::Output, quantiles::Quantiles};

/// Concurrent claims: the most ever started at once by a busy node.
const AT_ONCE: usize = 64;

/// Wait for the end of the plugin's idle threads, which end after 10 s (tokio's default for blocking work).
const CALM: Duration = Duration::from_secs(12);

/// Builds the programs for benchmarks of the node part.
pub(super) fn programs() -> Result<plugin::Programs> {
    plugin::build()
}

/// Arguments of `cargo xtask bench prepare`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask bench prepare
  cargo xtask bench prepare --rounds 0 --paced 300    # only claims with pauses, as a node sees them
  cargo xtask bench prepare --rounds 1000 -o json")]
pub struct PrepareArguments {
    /// Claims prepared one after another; a tenth as many rounds are done with 64 at once.
    #[arg(long, default_value_t = 300)]
    rounds: usize,
    /// Claims of each kind that come one at a time with pauses; 0 skips these.
    #[arg(long, default_value_t = 100)]
    paced: usize,
    /// The pause before each call, in milliseconds.
    #[arg(long, default_value_t = 100)]
    pause: u64,
    /// A table, or one JSON object.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Results for one kind of load.
#[derive(Serialize)]
struct Case {
    claims_at_once: usize,
    card_delay_ms: u64,
    prepare: Quantiles,
    unprepare: Quantiles,
    /// The plugin's own time by its metrics, without locks, API server, driver and disk syncs.
    own: OwnTime,
    /// Processor time of the plugin for one Prepare and one Unprepare, in milliseconds.
    processor_ms: f64,
    /// Mean time of a claim in each phase of Prepare, from the plugin's own metrics, in milliseconds.
    phases_ms: PhaseMeans,
}

#[derive(Serialize)]
struct Report {
    cases: Vec<Case>,
    /// One at a time, with pauses.
    #[serde(skip_serializing_if = "Option::is_none")]
    paced: Option<paced::Paced>,
    /// One GET of a claim by another client, for comparison.
    claim_get: Quantiles,
    /// One write of a small file with fsync, rename and fsync of the directory, for comparison.
    disk_sync: Quantiles,
    /// From the start of the process until all slices are visible in the API.
    start_to_slices: Quantiles,
    /// Resident memory before the first claim, right after the runs, and when idle threads have ended.
    resident_mib: Resident,
    binary_mib: f64,
}

#[derive(Default, Serialize)]
struct Resident {
    at_rest: f64,
    after_load: f64,
    calm_again: f64,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &PrepareArguments) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        return again_optimised();
    }
    let programs = plugin::build()?;
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await?;
    cluster.add_node_object(plugin::NODE).await?;
    let mut cases = Vec::new();
    let mut starts = Vec::new();
    let mut paced = None;
    if arguments.paced > 0 {
        let plugin = RunningPlugin::start(&cluster, &programs, "paced", 8).await?;
        let pause = Duration::from_millis(arguments.pause);
        paced = Some(paced::measure(&cluster, &plugin, arguments.paced, pause).await?);
        plugin.stop(&cluster).await?;
        claims::delete(&cluster).await?;
    }
    let mut resident_mib = Resident::default();
    for delay in [0, 100].into_iter().filter(|_| arguments.rounds > 0) {
        let plugin = RunningPlugin::start(&cluster, &programs, &format!("delay-{delay}"), AT_ONCE).await?;
        starts.push(plugin.start_to_slices);
        let at_rest = plugin.resident_mib()?;
        let claims = claims::allocate(&cluster, &plugin.devices, AT_ONCE).await?;
        plugin.delay_cards(delay)?;
        let rounds = if delay == 0 { arguments.rounds } else { arguments.rounds.div_ceil(10) };
        cases.push(measure(&plugin, &claims[..1], rounds, delay).await?);
        cases.push(measure(&plugin, &claims, rounds.div_ceil(10), delay).await?);
        let after_load = plugin.resident_mib()?;
        sleep(CALM).await;
        let calm_again = plugin.resident_mib()?;
        if after_load > resident_mib.after_load {
            resident_mib = Resident { at_rest, after_load, calm_again };
        }
        plugin.stop(&cluster).await?;
        claims::delete(&cluster).await?;
    }
    for index in 0..5 {
        let plugin = RunningPlugin::start(&cluster, &programs, &format!("start-{index}"), 8).await?;
        starts.push(plugin.start_to_slices);
        plugin.stop(&cluster).await?;
    }
    let report = Report {
        cases,
        paced,
        claim_get: claim_get(&cluster, arguments.rounds.max(100)).await?,
        disk_sync: disk_sync(cluster.state(), arguments.rounds.max(100))?,
        start_to_slices: Quantiles::of(starts),
        resident_mib,
        binary_mib: fs::metadata(&programs.plugin)?.len() as f64 / f64::from(1 << 20),
    };
    arguments.output.print(&report, print)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs this command again from an optimised build: an unoptimised client's calls take longer than the measured ones,
/// on the same processors.
pub(super) fn again_optimised() -> Result<ExitCode> {
    eprintln!("building this command optimised (the first time takes minutes)");
    workspace::build(&["--release", "-p", "tessera-bench", "-p", "tessera-harness"])?;
    let status = Command::new(workspace::target()?.join("release/tessera-bench"))
        .args(std::env::args_os().skip(1))
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prepares and unprepares all of `claims`, each by a call of its own, all calls at once.
async fn measure(plugin: &RunningPlugin, claims: &[Claim], rounds: usize, delay: u64) -> Result<Case> {
    let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
    // Not measured: the first round finds the driver's files and opens connections, once only and not for every pod.
    plugin.round(claims).await?;
    let (before, processor) = (plugin.metrics().await?, plugin.processor_time()?);
    for _ in 0..rounds {
        let (prepared, unprepared) = plugin.round(claims).await?;
        prepare.extend(prepared);
        unprepare.extend(unprepared);
    }
    let (after, processor) = (plugin.metrics().await?, plugin.processor_time()? - processor);
    Ok(Case {
        claims_at_once: claims.len(),
        card_delay_ms: delay,
        own: after.own_since(&before),
        processor_ms: processor.as_secs_f64() * 1e3 / prepare.len() as f64,
        phases_ms: after.phases_since(&before),
        prepare: Quantiles::of(prepare),
        unprepare: Quantiles::of(unprepare),
    })
}

impl RunningPlugin {
    async fn round(&self, claims: &[Claim]) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let prepared = try_join_all(claims.iter().map(|claim| self.prepare(claim))).await?;
        let unprepared = try_join_all(claims.iter().map(|claim| self.unprepare(claim))).await?;
        Ok((prepared, unprepared))
    }
}

async fn claim_get(cluster: &Cluster, rounds: usize) -> Result<Quantiles> {
    let client = cluster.client().await?;
    let name = claims::one(cluster).await?;
    let claims: Api<ResourceClaim> = Api::namespaced(client, "default");
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let since = Instant::now();
        claims.get(&name).await?;
        samples.push(since.elapsed());
    }
    Ok(Quantiles::of(samples))
}

fn disk_sync(directory: &Path, rounds: usize) -> Result<Quantiles> {
    let samples: Result<Vec<Duration>> = (0..rounds).map(|_| sync_once(directory)).collect();
    Ok(Quantiles::of(samples?))
}

fn sync_once(directory: &Path) -> Result<Duration> {
    let (temporary, file) = (directory.join("sync.new"), directory.join("sync"));
    let since = Instant::now();
    let mut new = fs::File::create(&temporary)?;
    new.write_all(&[b'x'; 400])?;
    new.sync_all()?;
    fs::rename(&temporary, &file)?;
    fs::File::open(directory)?.sync_all()?;
    Ok(since.elapsed())
}

fn print(report: &Report) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "CLAIMS AT ONCE",
        "CARD DELAY",
        "PREPARE p50",
        "p99",
        "OF IT OWN p50",
        "p99",
        "UNPREPARE p50",
        "p99",
        "PROCESSOR",
        "A CLAIM'S MEAN TIME IN EACH PHASE, ms",
    ]);
    let ms = |value: f64| format!("{value:.2} ms");
    for case in &report.cases {
        table.add_row([
            case.claims_at_once.to_string(),
            format!("{} ms", case.card_delay_ms),
            ms(case.prepare.p50_ms),
            ms(case.prepare.p99_ms),
            format!("<{}", ms(case.own.p50_ms)),
            format!("<{}", ms(case.own.p99_ms)),
            ms(case.unprepare.p50_ms),
            ms(case.unprepare.p99_ms),
            ms(case.processor_ms),
            case.phases_ms.to_string(),
        ]);
    }
    if !report.cases.is_empty() {
        println!("{table}");
    }
    let of =
        |quantiles: &Quantiles| format!("p50 {:.2} ms, p99 {:.2} ms", quantiles.p50_ms, quantiles.p99_ms);
    if let Some(paced) = &report.paced {
        println!("one at a time, {} ms before each call, beside another writer:", paced.pause_ms);
        for (name, lone) in [("card", &paced.card), ("partition", &paced.partition)] {
            println!("  Prepare of a {name:<9}    {}; {}", of(&lone.prepare), lone.phases_ms);
            println!("  Unprepare of a {name:<9}  {}", of(&lone.unprepare));
        }
        println!("  a synced small file       {}", of(&paced.disk_sync));
    }
    println!("one GET of a claim by another client:            {}", of(&report.claim_get));
    println!("one synced write of a small file:                {}", of(&report.disk_sync));
    println!("process start to slices visible:                 {}", of(&report.start_to_slices));
    let Resident { at_rest, after_load, calm_again } = report.resident_mib;
    println!(
        "resident memory at rest, after load, 12 s later:  {at_rest:.1} MiB, {after_load:.1} MiB, {calm_again:.1} MiB"
    );
    println!("size of the binary:                              {:.1} MiB", report.binary_mib);
}
