//! A fleet that need not exist, and a workload on it.

mod json;
mod map;
mod text;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use tessera_simulate::fleet::{
    Fleet, FleetPolicy, ListReader, NodeGroup, Run, RunReport, Summary, Wish, Workload,
};

use super::{lines, policies, wrong};
use crate::arguments::SimulateArguments;
use crate::output::{self, CommandError, Verdict};

/// All that was simulated.
struct Simulated<'s> {
    workload_file: String,
    seeds: Vec<u64>,
    prices: Vec<(String, f64)>,
    wishes: &'s [Wish],
    variants: Vec<Variant>,
}

/// One fleet with the workload on it.
struct Variant {
    /// What makes it different.
    name: String,
    fleet: Fleet,
    workload: Workload,
    policies: Vec<PolicyRuns>,
}

/// What a policy made of it.
struct PolicyRuns {
    policy: FleetPolicy,
    /// Of the first seed.
    first: RunReport,
    /// One for each seed, or a single one where seeds make no difference.
    summaries: Vec<Summary>,
}

/// Runs the command.
///
/// # Errors
/// The workload is none, or the fleet cannot be.
pub fn run(arguments: &SimulateArguments) -> Result<Verdict, CommandError> {
    let Some(file) = &arguments.workload else {
        return Err(CommandError::Asked("--nodes needs a workload: --workload FILE".to_owned()));
    };
    let names = policies(&arguments.policies, &FleetPolicy::ALL)?;
    let mut reader = ListReader::default();
    lines(file, |line| reader.line(line))?;
    let list = reader.finish().map_err(|error| wrong(file, &error))?;
    let fleet =
        |groups: &[NodeGroup]| Fleet::new(groups).map_err(|error| CommandError::Asked(error.to_string()));
    let mut fleets = vec![("as it is".to_owned(), fleet(&arguments.nodes)?)];
    if !arguments.add.is_empty() {
        let groups = [&arguments.nodes[..], &arguments.add[..]].concat();
        let added: Vec<String> =
            arguments.add.iter().map(|group| format!("+{}x{}", group.count, group.machine)).collect();
        fleets.push((added.join(" "), fleet(&groups)?));
    }
    let prices = prices(&arguments.prices, fleets.iter().map(|(_, fleet)| fleet))?;
    let seeds = (0..arguments.runs).map(|run| arguments.seed.wrapping_add(run)).collect();
    let variants = fleets.into_iter().map(|(name, fleet)| {
        let workload = Workload::of_lines(&list, &fleet);
        Variant { name, fleet, workload, policies: Vec::new() }
    });
    let mut simulated = Simulated {
        workload_file: file.display().to_string(),
        seeds,
        prices,
        wishes: &arguments.wishes,
        variants: variants.collect(),
    };
    simulated.run(&names, arguments.at);
    match arguments.output {
        Some(format) => output::structured(format, &json::report(&simulated))?,
        None => output::print(&text::report(&simulated))?,
    }
    Ok(Verdict::Yes)
}

/// The prices of cards, by their product names.
fn prices<'f>(
    given: &[(String, f64)],
    fleets: impl Iterator<Item = &'f Fleet>,
) -> Result<Vec<(String, f64)>, CommandError> {
    let models: std::collections::BTreeSet<&str> =
        fleets.flat_map(|fleet| fleet.models().into_keys()).collect();
    let price = |(name, price): &(String, f64)| {
        let is_it = |model: &&&str| **model == name || model.strip_prefix("NVIDIA ") == Some(name);
        let known = || models.iter().copied().collect::<Vec<_>>().join(", ");
        let found = models.iter().find(is_it).map(|model| ((*model).to_owned(), *price));
        found.ok_or_else(|| {
            CommandError::Asked(format!("--price: no card of the fleet is {name:?}; there are: {}", known()))
        })
    };
    let prices: Vec<(String, f64)> = given.iter().map(price).collect::<Result<_, _>>()?;
    let missing =
        models.iter().find(|model| !prices.is_empty() && !prices.iter().any(|(name, _)| name == *model));
    match missing {
        Some(model) => Err(CommandError::Asked(format!("--price: give one for {model:?}, too"))),
        None => Ok(prices),
    }
}

impl Simulated<'_> {
    /// All policies on all fleets, on all cores.
    fn run(&mut self, names: &[FleetPolicy], at: Option<std::time::Duration>) {
        let (seeds, wishes, variants) = (&self.seeds, self.wishes, &self.variants);
        let mut runs: Vec<(usize, FleetPolicy, u64)> = Vec::new();
        for variant in 0..variants.len() {
            for policy in names {
                let count = if policy.uses_seed() { seeds.len() } else { 1 };
                runs.extend(seeds[..count].iter().map(|seed| (variant, *policy, *seed)));
            }
        }
        let progress = ProgressBar::new(
            runs.iter().map(|(variant, ..)| variants[*variant].workload.pods.len() as u64).sum(),
        );
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %, {elapsed}: {msg}") {
            progress.set_style(style);
        }
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<Option<(RunReport, Summary)>>> = Mutex::new(vec![None; runs.len()]);
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((variant, policy, seed)) = runs.get(place).copied() else { return };
                progress.set_message(policy.name());
                let Variant { fleet, workload, .. } = &variants[variant];
                let mut told = 0;
                let run = Run { fleet, workload, at, wishes };
                let report = run.run(policy, seed, |arrived| {
                    progress.inc((arrived - told) as u64);
                    told = arrived;
                });
                let summary = Summary::of(fleet, workload, &report);
                found.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some((report, summary));
            }
        };
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from).min(runs.len());
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        progress.finish_and_clear();
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        for ((variant, policy, _), found) in runs.into_iter().zip(found) {
            let Some((first, summary)) = found else { continue };
            let policies = &mut self.variants[variant].policies;
            match policies.last_mut().filter(|last| last.policy == policy) {
                Some(known) => known.summaries.push(summary),
                None => policies.push(PolicyRuns { policy, first, summaries: vec![summary] }),
            }
        }
    }

    /// What these cards cost a month; `None` without prices.
    fn cost<'m>(&self, cards: impl Iterator<Item = (&'m str, usize)>) -> Option<f64> {
        if self.prices.is_empty() {
            return None;
        }
        let price =
            |model: &str| self.prices.iter().find(|(name, _)| name == model).map_or(0.0, |(_, price)| *price);
        Some(cards.map(|(model, count)| price(model) * count as f64).sum())
    }
}
