//! Simulates a workload on a real or hypothetical fleet.

mod inputs;
mod json;
mod map;
mod pools;
mod quotas;
mod teams;
mod text;

use std::collections::BTreeSet;

use tessera_simulate::PolicyName;
use tessera_simulate::fleet::{Demands, Fleet, Run, RunReport, Summary, Wish, Workload};

use super::{lines, on_all_cores, policies, wrong};
use crate::arguments::SimulateArguments;
use crate::output::{self, CommandError, Verdict, warn};
use inputs::{Inputs, NamedFleet};
use pools::PoolsOfFleet;

/// Policies simulated by default: ours, and common current practice.
const USUAL: [PolicyName; 7] = [
    PolicyName::Tessera,
    PolicyName::KubeScheduler,
    PolicyName::HamiBinpack,
    PolicyName::KaiBinpack,
    PolicyName::BestFit,
    PolicyName::FirstFit,
    PolicyName::Random,
];

/// Results of all simulations.
struct Simulated<'s> {
    /// Where the pods are from.
    workload: String,
    seeds: Vec<u64>,
    prices: Vec<(String, f64)>,
    wishes: &'s [Wish],
    variants: Vec<Variant>,
}

/// One fleet with the workload on it.
struct Variant {
    /// Name of the variant's difference.
    name: String,
    fleet: Fleet,
    /// Cards of the fleet as offered by the GpuPools of a file.
    pools: Option<PoolsOfFleet>,
    /// With the GpuQuotas of a file: index of the same fleet without them.
    without_quotas: Option<usize>,
    workload: Workload,
    demands: Demands,
    policies: Vec<PolicyRuns>,
}

/// Results of a policy.
struct PolicyRuns {
    policy: PolicyName,
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
    let names = policies(&arguments.policies, &USUAL, &PolicyName::of_fleets())?;
    let inputs = Inputs::read(arguments)?;
    let fleets = inputs.fleets(arguments)?;
    let prices = prices(&arguments.prices, fleets.iter().map(|of_pools| &of_pools.fleet))?;
    let seeds = (0..arguments.runs).map(|run| arguments.seed.wrapping_add(run)).collect();
    if !arguments.quotas.is_empty() && !names.contains(&PolicyName::Tessera) {
        return Err(CommandError::Asked("--quota has an effect on the policy tessera only".to_owned()));
    }
    let variant = |NamedFleet { name, fleet, pools, quotas, without_quotas }| {
        let mut workload = inputs.workload(&fleet)?;
        workload.quotas = quotas;
        let demands = Demands::of(&fleet, &workload);
        Ok(Variant { name, fleet, pools, without_quotas, workload, demands, policies: Vec::new() })
    };
    let variants = fleets.into_iter().map(variant).collect::<Result<Vec<Variant>, CommandError>>()?;
    if let Some(first) = variants.first() {
        warn(&first.workload.left_out);
        warn(&first.workload.notes);
        if first.workload.pods.is_empty() && arguments.wishes.is_empty() && first.workload.held() == 0 {
            let asked = "no pod waits for devices: give pods with --workload or -f, or ask for a --wish";
            return Err(CommandError::Asked(asked.to_owned()));
        }
    }
    let mut simulated =
        Simulated { workload: inputs.what.clone(), seeds, prices, wishes: &arguments.wishes, variants };
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
    let models: BTreeSet<&str> = fleets.flat_map(|fleet| fleet.models().into_keys()).collect();
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
        Some(model) => Err(CommandError::Asked(format!("--price: a price for {model:?} is missing"))),
        None => Ok(prices),
    }
}

impl Simulated<'_> {
    /// All policies on all fleets.
    fn run(&mut self, names: &[PolicyName], at: Option<std::time::Duration>) {
        let (seeds, wishes, variants) = (&self.seeds, self.wishes, &self.variants);
        let mut runs: Vec<(usize, PolicyName, u64)> = Vec::new();
        for (variant, of_variant) in variants.iter().enumerate() {
            let has_quotas = of_variant.without_quotas.is_some();
            for policy in names.iter().filter(|policy| !has_quotas || **policy == PolicyName::Tessera) {
                let count = if policy.uses_seed() { seeds.len() } else { 1 };
                runs.extend(seeds[..count].iter().map(|seed| (variant, *policy, *seed)));
            }
        }
        let length = runs.iter().map(|(variant, ..)| variants[*variant].workload.pods.len() as u64).sum();
        let template = "{bar:30} {percent} %, {elapsed}: {msg}";
        let found = on_all_cores(template, length, &runs, |(variant, policy, seed), progress| {
            progress.set_message(policy.name());
            let Variant { fleet, workload, demands, .. } = &variants[*variant];
            let mut told = 0;
            let run = Run { fleet, workload, demands, at, wishes };
            let report = run.run(*policy, *seed, |arrived| {
                progress.inc((arrived - told) as u64);
                told = arrived;
            });
            let summary = Summary::of(fleet, workload, &report);
            (report, summary)
        });
        for ((variant, policy, _), (first, summary)) in runs.into_iter().zip(found) {
            let policies = &mut self.variants[variant].policies;
            match policies.last_mut().filter(|last| last.policy == policy) {
                Some(known) => known.summaries.push(summary),
                None => policies.push(PolicyRuns { policy, first, summaries: vec![summary] }),
            }
        }
    }

    /// Monthly cost of these cards; `None` without prices.
    fn cost<'m>(&self, cards: impl Iterator<Item = (&'m str, usize)>) -> Option<f64> {
        if self.prices.is_empty() {
            return None;
        }
        let price =
            |model: &str| self.prices.iter().find(|(name, _)| name == model).map_or(0.0, |(_, price)| *price);
        Some(cards.map(|(model, count)| price(model) * count as f64).sum())
    }
}
