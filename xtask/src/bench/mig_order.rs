//! `cargo xtask bench mig-order`: how much of what is asked for fits, by the order in which placements are tried.
//!
//! One card is computed exactly (the Markov chain of its states), eight cards are simulated with fixed seeds. The devices,
//! their order and their counters are those that the driver publishes; a request gets the first that fits, as from
//! kube-scheduler.

mod chain;
mod cluster;
mod devices;
mod mixes;
mod random;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::Table;
use serde_json::json;

use devices::{Card, Policy};
use mixes::Mix;

/// What `cargo xtask bench mig-order` takes.
#[derive(Args)]
pub struct MigOrderArguments {
    /// Model of card, as in inventory/tests/data/mig-profiles.txt.
    #[arg(long, default_value = "A100-80GB")]
    model: String,
    /// Requests of each simulation.
    #[arg(long, default_value_t = 200_000)]
    requests: u32,
    /// Fillings of eight empty cards that are averaged.
    #[arg(long, default_value_t = 2_000)]
    fillings: u32,
    /// `json` prints one line for each mix and policy instead of tables.
    #[arg(short, long, value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

/// Offered compute slices, as a part of the compute slices that there are.
const LOAD: f64 = 0.9;

/// Cards of the larger machine.
const CARDS: usize = 8;

/// What one policy makes of one mix: accepted compute slices in percent of those offered.
struct Figures {
    one_card: f64,
    eight_cards: f64,
    filling: f64,
}

/// Computes, simulates and prints.
///
/// # Errors
/// For an unknown model.
pub fn run(arguments: &MigOrderArguments) -> Result<ExitCode> {
    let card = Card::new(&arguments.model)?;
    let mixes = mixes::all();
    let mut rows = Vec::new();
    for policy in Policy::ALL {
        let of = |mix: &Mix| -> Result<Figures> {
            let shares = card.shares(mix).context("a mix is made of other profiles than the card has")?;
            let order = card.order(policy);
            let eight = cluster::steady(&card, &order, &shares, LOAD, CARDS, arguments.requests);
            Ok(Figures {
                one_card: 100.0 * chain::accepted(&card, &order, &shares, LOAD),
                eight_cards: 100.0 * eight,
                filling: 100.0 * cluster::filling(&card, &order, &shares, CARDS, arguments.fillings),
            })
        };
        rows.push((policy, mixes.iter().map(of).collect::<Result<Vec<_>>>()?));
    }
    let best: Vec<f64> = mixes
        .iter()
        .map(|mix| Ok(100.0 * chain::best(&card, &card.shares(mix).context("profiles")?, LOAD)))
        .collect::<Result<_>>()?;
    if arguments.output == "json" {
        for (policy, figures) in &rows {
            for ((mix, figures), best) in mixes.iter().zip(figures).zip(&best) {
                let line = json!({
                    "policy": policy.name(), "mix": mix.name, "one_card": figures.one_card,
                    "eight_cards": figures.eight_cards, "filling": figures.filling, "one_card_best": best,
                });
                println!("{line}");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    print_means(&rows, &best);
    print_mixes(&mixes, &rows, &best);
    Ok(ExitCode::SUCCESS)
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1);
    values.sum::<f64>() / count as f64
}

fn print_means(rows: &[(Policy, Vec<Figures>)], best: &[f64]) {
    let mut table = Table::new();
    table.set_header(["order, mean of the mixes, %", "1 card at 0.9", "8 cards at 0.9", "8 cards filling"]);
    for (policy, figures) in rows {
        let cell = |value: fn(&Figures) -> f64| format!("{:.2}", mean(figures.iter().map(value)));
        table.add_row([
            policy.name().to_owned(),
            cell(|figures| figures.one_card),
            cell(|figures| figures.eight_cards),
            cell(|figures| figures.filling),
        ]);
    }
    let best = format!("{:.2}", mean(best.iter().copied()));
    table.add_row([
        "best choice of placement (one card, exact)".to_owned(),
        best,
        String::new(),
        String::new(),
    ]);
    println!("{table}");
}

fn print_mixes(mixes: &[Mix], rows: &[(Policy, Vec<Figures>)], best: &[f64]) {
    let mut table = Table::new();
    let mut header = vec!["mix, 1 card / 8 cards at 0.9".to_owned()];
    header.extend(rows.iter().map(|(policy, _)| policy.name().to_owned()));
    header.push("best, 1 card".to_owned());
    table.set_header(header);
    for (position, mix) in mixes.iter().enumerate() {
        let mut cells = vec![mix.name.to_owned()];
        cells.extend(rows.iter().map(|(_, figures)| {
            let Figures { one_card, eight_cards, .. } = &figures[position];
            format!("{one_card:.2} / {eight_cards:.2}")
        }));
        cells.push(format!("{:.2}", best[position]));
        table.add_row(cells);
    }
    println!("{table}\nAccepted compute slices in percent of those asked for.");
}
