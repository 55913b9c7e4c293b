//! The report for programs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tessera_simulate::fleet::{PodOutcome, Summary};

use super::{PolicyRuns, Simulated, Variant, teams};

/// The full report.
pub fn report(simulated: &Simulated<'_>) -> Value {
    let variants = simulated.variants.iter().map(|variant| of_variant(simulated, variant));
    json!({ "seeds": simulated.seeds, "fleets": variants.collect::<Vec<_>>() })
}

fn of_variant(simulated: &Simulated<'_>, variant: &Variant) -> Value {
    let Variant { name, fleet, pools, workload, policies, without_quotas: _, demands: _ } = variant;
    let policies = policies.iter().map(|runs| (runs.policy.to_string(), of_policy(simulated, variant, runs)));
    let mut report = json!({
        "fleet": name,
        "nodes": fleet.nodes().len(),
        "cards": fleet.models(),
        "costPerMonth": simulated.cost(fleet.models().into_iter()),
        "pods": workload.pods.len(),
        "claimsHeldFromTheBeginning": workload.held(),
        "policies": policies.collect::<Map<_, _>>(),
    });
    if let Some(pools) = pools {
        report["gpuPools"] = json!(pools);
    }
    if let Some(teams) = teams::json(simulated, variant) {
        report["gpuQuotas"] = teams;
    }
    report
}

fn of_policy(simulated: &Simulated<'_>, variant: &Variant, runs: &PolicyRuns) -> Value {
    let PolicyRuns { first, summaries, .. } = runs;
    let pods = first.pods.iter().zip(&variant.workload.pods);
    let never = pods
        .filter_map(|(PodOutcome { why, .. }, pod)| Some(json!({ "pod": pod.name, "why": why.as_ref()? })));
    let wishes: BTreeMap<&str, usize> =
        simulated.wishes.iter().map(|wish| wish.text.as_str()).zip(first.wishes.iter().copied()).collect();
    let of = |of: fn(&Summary) -> f64| summaries.iter().map(of).map(rounded).collect::<Vec<_>>();
    json!({
        "runs": {
            "placed": summaries.iter().map(|summary| summary.placed).collect::<Vec<_>>(),
            "allocatedPercentMean": of(|summary| summary.mean),
            "usedPercentMean": of(|summary| summary.used),
            "allocatedPercentMost": of(|summary| summary.most),
            "allocatedPercentAtEnd": of(|summary| summary.end),
            "fragmentedPercent": summaries.iter().map(|summary| summary.fragmentation.map(rounded)).collect::<Vec<_>>(),
            "waitedSecondsMean": of(|summary| summary.waited[0].as_secs_f64()),
            "waitedSeconds95Percent": of(|summary| summary.waited[1].as_secs_f64()),
            "waitedSecondsWorst": of(|summary| summary.waited[2].as_secs_f64()),
            "endSeconds": of(|summary| summary.done_after.as_secs_f64()),
            "cardsUsed": summaries.iter().map(|summary| &summary.cards_used).collect::<Vec<_>>(),
            "nodesUsed": summaries.iter().map(|summary| summary.nodes_used).collect::<Vec<_>>(),
        },
        "allocatedPercentOverTime": summaries[0].over_time.iter().copied().map(rounded).collect::<Vec<_>>(),
        "costPerMonth": cost(simulated, &summaries[0]),
        "unusedCostPerMonth": unused_cost(simulated, variant, &summaries[0]),
        "neverPlaced": never.collect::<Vec<_>>(),
        "wishes": wishes,
        "map": { "atSeconds": rounded(first.at.as_secs_f64()), "nodes": map(variant, runs) },
    })
}

/// Monthly cost of the cards in use.
pub fn cost(simulated: &Simulated<'_>, summary: &Summary) -> Option<f64> {
    simulated.cost(summary.cards_used.iter().map(|(model, count)| (model.as_str(), *count)))
}

/// Monthly cost of what is allocated and not used, at the mean price of the cards in use.
pub fn unused_cost(simulated: &Simulated<'_>, variant: &Variant, summary: &Summary) -> Option<f64> {
    let cards: usize = summary.cards_used.values().sum();
    let unused = (summary.mean - summary.used).max(0.0) / 100.0 * variant.fleet.cards() as f64;
    Some(cost(simulated, summary)? / cards.max(1) as f64 * unused)
}

fn map<'v>(variant: &'v Variant, runs: &'v PolicyRuns) -> BTreeMap<&'v str, Vec<Value>> {
    let mut nodes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for card in runs.first.holdings.cards(&variant.fleet) {
        let held = card.holders.iter().map(|holder| {
            let pod = variant.workload.name(holder.pod);
            json!({ "pod": pod, "device": holder.device, "part": holder.part, "ofCard": rounded(holder.of_card) })
        });
        let held: Vec<Value> = held.collect();
        let row = json!({ "card": card.card.to_string(), "model": card.model, "held": held });
        nodes.entry(card.node).or_default().push(row);
    }
    nodes
}

/// To a ten-thousandth.
pub fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
