//! `cargo xtask bench mig-order`: how much of the requested compute fits, by the order in which MIG placements are
//! published.
//!
//! ```text
//! model ──> tessera_inventory::Pool ──> published (first-fit; held to Kubernetes' allocator) ─┬─> one_card, exactly
//!                                                                                    mix ──┴─> simulation <── managed
//! ```

mod gather;
mod kubernetes;
mod managed;
mod mix;
pub mod model;
mod one_card;
mod published;
mod report;
mod simulation;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::ProgressBar;
use tessera_api::offer::PlacementOrder;

use mix::{AGAINST, MIXES, Mix};
use model::Model;
use one_card::{OneCard, Policy};
use published::Published;
use report::{FleetReport, MixReport, Orders};
use simulation::{Fleet, NodeChoice, Outcome};

/// The board of the mixes; all boards of 8 memory slices have the same placements.
const MODEL: &str = "A100-80GB";

/// Arguments of `cargo xtask bench mig-order`.
#[derive(Args)]
pub struct MigOrderArguments {
    /// Load: requested compute slices relative to those of the cards, in the simulation in which claims end.
    #[arg(long, default_value_t = 0.9)]
    load: f64,
    /// Arrivals in each simulation.
    #[arg(long, default_value_t = 400_000)]
    arrivals: usize,
    /// How many times the cards are filled.
    #[arg(long, default_value_t = 8_000)]
    fillings: usize,
    /// Also simulate a fleet of this many nodes of 8 cards, where each request goes to a random node on which it fits, to the
    /// first, or where the product puts it; 12 for about 100 cards. Takes longer.
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also show mixes, outside the nine, for which the order is not good.
    #[arg(long)]
    against: bool,
    /// Instead of the orders: what moving partitions is worth, on 8 cards and with --nodes on the fleet.
    #[arg(long)]
    gather: bool,
    /// `json` prints one line per mix, with values from 0 to 1, instead of tables.
    #[arg(short, long, value_parser = ["table", "json"], default_value = "table")]
    output: String,
}

/// Simulates and prints.
///
/// # Errors
/// When published devices are not allocated first-fit, or an argument is invalid.
pub fn run(arguments: &MigOrderArguments) -> Result<ExitCode> {
    ensure!(arguments.load > 0.0 && arguments.load.is_finite(), "--load must be more than 0");
    ensure!(
        arguments.arrivals >= 1000 && arguments.fillings >= 100,
        "too few arrivals or fillings to say anything"
    );
    let model = Model::named(MODEL)?;
    if arguments.gather {
        return gathered(&model, arguments);
    }
    for order in [PlacementOrder::Balanced, PlacementOrder::HighestStart] {
        kubernetes::agrees(&model.pool(8, order)?, 400, arguments.seed)
            .context("first-fit over the published counters is not what Kubernetes' allocator does")?;
    }
    let mixes: Vec<&Mix> = MIXES.iter().chain(AGAINST.iter().filter(|_| arguments.against)).collect();
    let progress = ProgressBar::new(mixes.len() as u64);
    let mut reports = Vec::new();
    for mix in mixes {
        progress.set_message(mix.name);
        reports.push(measure(&model, mix, arguments)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    match arguments.output.as_str() {
        "json" => reports.iter().for_each(|report| println!("{}", report.json())),
        _ => report::print(&reports, MIXES.len(), arguments.load, arguments.nodes),
    }
    Ok(ExitCode::SUCCESS)
}

/// The same cards published in each order.
fn orders(model: &Model, cards: usize) -> Result<Orders<Published>> {
    let balanced = Published::of_pool(&model.pool(cards, PlacementOrder::Balanced)?)?;
    let highest_start = Published::of_pool(&model.pool(cards, PlacementOrder::HighestStart)?)?;
    Ok(Orders { by_name: balanced.by_name(), balanced, highest_start })
}

/// Running time lost by cheap moves, as a part of the request's mean running time: the loop's bound.
fn cheap() -> f64 {
    1.0 / f64::from(tessera_placement::gather::GAINED_FOR_LOST)
}

/// Prints what moves are worth.
fn gathered(model: &Model, arguments: &MigOrderArguments) -> Result<ExitCode> {
    let MigOrderArguments { load, arrivals, nodes, seed, .. } = *arguments;
    let cards = orders(model, 8)?.balanced;
    for nodes in [1, nodes].into_iter().filter(|nodes| *nodes > 0) {
        let rows: Result<Vec<gather::Row>> = MIXES
            .iter()
            .map(|mix| {
                let requests = cards.requests(mix)?;
                let run = |most| gather::steady(&cards, nodes, &requests, (load, arrivals, seed), most);
                let (without, cheap, all) = (run(0.0)?, run(cheap())?, run(f64::INFINITY)?);
                Ok(gather::Row { mix: mix.name, without, cheap, all })
            })
            .collect();
        let title =
            format!("{} cards, load {load}, accepted compute slices, by the time that they run", 8 * nodes);
        gather::print(&title, &rows?, f64::from(cards.compute_slices()) / 8.0);
    }
    println!(
        "Left: moves that lose at most {} of what the request runs in the mean; right: all. A card is gained for a mean duration. \
         Lost for gained: running time of moved slices, for each unit of running time accepted because of them.",
        cheap()
    );
    Ok(ExitCode::SUCCESS)
}

fn measure(model: &Model, mix: &Mix, arguments: &MigOrderArguments) -> Result<MixReport> {
    let MigOrderArguments { load, arrivals, fillings, nodes, seed, .. } = *arguments;
    let one = orders(model, 1)?;
    let eight = orders(model, 8)?;
    let exactly = |published: &Published, policy| -> Result<(f64, f64)> {
        let card = OneCard::new(published, &published.requests(mix)?)?;
        Ok((card.steady(policy, load), card.filling(policy)))
    };
    let simulated = |published: &Published, nodes, choice| -> Result<Outcome> {
        let requests = published.requests(mix)?;
        Ok(Fleet::new(published, nodes, choice)?.steady(&requests, load, arrivals, seed))
    };
    let filled = |published: &Published, choice| -> Result<Outcome> {
        let requests = published.requests(mix)?;
        Ok(Fleet::new(published, 1, choice)?.filling(&requests, fillings, seed))
    };
    let managed = NodeChoice::Managed;
    let one_card = one.map(|published| exactly(published, Policy::FirstFit))?;
    let best = exactly(&one.balanced, Policy::Best)?;
    Ok(MixReport {
        mix: mix.name,
        one_card: one_card.map(|(steady, _)| Ok(*steady))?,
        one_card_best: best.0,
        one_card_filling: one_card.map(|(_, filling)| Ok(*filling))?,
        one_card_filling_best: best.1,
        one_card_managed: simulated(&one.balanced, 1, managed)?,
        one_card_filling_managed: filled(&one.balanced, managed)?,
        eight_cards: eight.map(|published| simulated(published, 1, NodeChoice::First))?,
        across_cards: simulated(&eight.balanced.across_cards(), 1, NodeChoice::First)?,
        eight_cards_managed: simulated(&eight.balanced, 1, managed)?,
        eight_cards_filling: eight.map(|published| filled(published, NodeChoice::First))?,
        eight_cards_filling_managed: filled(&eight.balanced, managed)?,
        fleet: match nodes {
            0 => None,
            nodes => Some(FleetReport {
                random: eight.map(|published| simulated(published, nodes, NodeChoice::Random))?,
                first: eight.map(|published| simulated(published, nodes, NodeChoice::First))?,
                managed: simulated(&eight.balanced, nodes, managed)?,
            }),
        },
    })
}

#[cfg(test)]
mod tests;
