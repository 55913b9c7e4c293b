//! `cargo xtask bench mig`: the plugin, as built for the node image, makes and destroys partitions over its socket on
//! emulated cards with steps of a second; compared with one call at a time, as under one lock for the node.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use futures::future::try_join_all;
use serde::Serialize;
use tessera_harness::{Cluster, ClusterOptions, kubelet_stand_in::Claim};
use tokio::sync::Mutex;

use super::{
    output::Output,
    prepare::{
        again_optimised, claims,
        metrics::OwnTime,
        plugin::{self, RunningPlugin},
    },
    quantiles::Quantiles,
};

/// Number of the smallest partitions on an H100.
const PARTITIONS: usize = 7;

/// Time to make a partition, and to destroy it, as reported for hardware (`O(1 s)`).
const STEP: Duration = Duration::from_secs(1);

/// Arguments of `cargo xtask bench mig`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask bench mig
  cargo xtask bench mig --cards 2 --rounds 5 -o json")]
pub struct MigArguments {
    /// Cards, each with seven claims that come and go.
    #[arg(long, default_value_t = 8)]
    cards: usize,
    /// How many times each claim comes and goes, all at once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many times a single claim comes and goes, with steps that take a second; twenty times as many with steps
    /// that take no time.
    #[arg(long, default_value_t = 15)]
    rounds_alone: usize,
    /// A table, or one JSON object.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Results for claims coming and going.
#[derive(Serialize)]
struct Churn {
    claims: usize,
    /// Partitions made or destroyed per second.
    steps_per_second: f64,
    /// The same, relative to the cards' limit if only their steps took time.
    share_of_cards: f64,
    prepare: Quantiles,
    unprepare: Quantiles,
}

/// Results for one claim coming and going alone.
#[derive(Serialize)]
struct Alone {
    /// Time in addition to the step's second.
    prepare_beyond_step: Quantiles,
    unprepare_beyond_step: Quantiles,
    /// With steps of no duration.
    prepare: Quantiles,
    unprepare: Quantiles,
    /// The plugin's own time for such a Prepare by its metrics, without locks, API server, driver and disk syncs.
    own: OwnTime,
}

#[derive(Serialize)]
struct Report {
    cards: usize,
    all_at_once: Churn,
    one_at_a_time: Churn,
    /// Steps per second all at once, relative to one at a time.
    ratio: f64,
    alone: Alone,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &MigArguments) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        return again_optimised();
    }
    ensure!((1..=8).contains(&arguments.cards), "an HGX H100 has 1 to 8 cards");
    let programs = plugin::build()?;
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await?;
    cluster.add_node_object(plugin::NODE).await?;
    let plugin = RunningPlugin::start(&cluster, &programs, "mig", arguments.cards).await?;
    // The first of each card before the second of any.
    let partitions: Vec<String> = (0..PARTITIONS)
        .flat_map(|start| plugin.devices.iter().map(move |card| format!("{card}-mig-1g10gb-{start}")))
        .collect();
    let claims = claims::allocate(&cluster, &partitions, partitions.len()).await?;

    plugin.delay_partitions(0)?;
    // Not measured: the first finds the driver's files and opens connections, once only and not for every pod.
    come_and_go(&plugin, &claims, 1, None).await?;
    // Another partition of its card stays, to keep the MIG mode on.
    let (one, beside) = (&claims[..1], &claims[arguments.cards]);
    plugin.prepare(beside).await?;
    let before = plugin.metrics().await?;
    let (prepare, unprepare) = come_and_go(&plugin, one, arguments.rounds_alone * 20, None).await?;
    let own = plugin.metrics().await?.own_since(&before);
    plugin.delay_partitions(STEP.as_millis().try_into()?)?;
    let beyond = |samples: Vec<Duration>| {
        Quantiles::of(samples.into_iter().map(|sample| sample.saturating_sub(STEP)).collect())
    };
    let slow = come_and_go(&plugin, one, arguments.rounds_alone, None).await?;
    let alone = Alone {
        prepare_beyond_step: beyond(slow.0),
        unprepare_beyond_step: beyond(slow.1),
        prepare: Quantiles::of(prepare),
        unprepare: Quantiles::of(unprepare),
        own,
    };
    plugin.unprepare(beside).await?;

    let churn = async |claims: &[Claim], rounds: usize, lock: Option<&Mutex<()>>| {
        let since = Instant::now();
        let (prepare, unprepare) = come_and_go(&plugin, claims, rounds, lock).await?;
        let steps = (prepare.len() + unprepare.len()) as f64;
        let steps_per_second = steps / since.elapsed().as_secs_f64();
        anyhow::Ok(Churn {
            claims: claims.len(),
            steps_per_second,
            share_of_cards: steps_per_second * STEP.as_secs_f64() / arguments.cards as f64,
            prepare: Quantiles::of(prepare),
            unprepare: Quantiles::of(unprepare),
        })
    };
    let all_at_once = churn(&claims, arguments.rounds, None).await?;
    let lock = Mutex::new(());
    let few = &claims[..claims.len().min(2 * arguments.cards)];
    let one_at_a_time = churn(few, 1, Some(&lock)).await?;
    let report = Report {
        cards: arguments.cards,
        ratio: all_at_once.steps_per_second / one_at_a_time.steps_per_second,
        all_at_once,
        one_at_a_time,
        alone,
    };
    arguments.output.print(&report, print)?;
    Ok(ExitCode::SUCCESS)
}

/// Lets each claim come and go this many times; with a lock, one call at a time. Returns the duration of each call.
async fn come_and_go(
    plugin: &RunningPlugin,
    claims: &[Claim],
    rounds: usize,
    lock: Option<&Mutex<()>>,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let locked = async || match lock {
        Some(lock) => Some(lock.lock().await),
        None => None,
    };
    let each = claims.iter().map(async |claim| {
        let (mut prepared, mut unprepared) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let since = Instant::now();
            {
                let _lock = locked().await;
                plugin.prepare(claim).await?;
            }
            prepared.push(since.elapsed());
            let since = Instant::now();
            {
                let _lock = locked().await;
                plugin.unprepare(claim).await?;
            }
            unprepared.push(since.elapsed());
        }
        anyhow::Ok((prepared, unprepared))
    });
    let (prepared, unprepared): (Vec<_>, Vec<_>) = try_join_all(each).await?.into_iter().unzip();
    Ok((prepared.concat(), unprepared.concat()))
}

fn print(report: &Report) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "CLAIMS THAT COME AND GO",
        "STEPS A SECOND",
        "OF WHAT THE CARDS CAN DO",
        "PREPARE p50",
        "p99",
        "UNPREPARE p50",
        "p99",
    ]);
    let seconds = |milliseconds: f64| format!("{:.2} s", milliseconds / 1e3);
    for (name, churn) in [
        ("at once", &report.all_at_once),
        ("one call at a time (one lock for the node)", &report.one_at_a_time),
    ] {
        table.add_row([
            format!("{} {name}", churn.claims),
            format!("{:.2}", churn.steps_per_second),
            format!("{:.0} %", churn.share_of_cards * 100.0),
            seconds(churn.prepare.p50_ms),
            seconds(churn.prepare.p99_ms),
            seconds(churn.unprepare.p50_ms),
            seconds(churn.unprepare.p99_ms),
        ]);
    }
    println!("{} cards; a step, making or destroying a partition, takes 1 s on a card", report.cards);
    println!("{table}");
    println!("at once is {:.1} times one at a time", report.ratio);
    let of =
        |quantiles: &Quantiles| format!("p50 {:.2} ms, p99 {:.2} ms", quantiles.p50_ms, quantiles.p99_ms);
    let Alone { prepare_beyond_step, unprepare_beyond_step, prepare, unprepare, own } = &report.alone;
    println!("one claim alone, beyond the second of its step:");
    println!("  Prepare:    {}", of(prepare_beyond_step));
    println!("  Unprepare:  {}", of(unprepare_beyond_step));
    println!("one claim alone, steps that take no time:");
    println!("  Prepare:    {}; of it own p50 <{:.2} ms, p99 <{:.2} ms", of(prepare), own.p50_ms, own.p99_ms);
    println!("  Unprepare:  {}", of(unprepare));
}
