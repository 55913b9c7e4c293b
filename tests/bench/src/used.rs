//! `cargo xtask bench used`: how much of the cards that are on is used, by what the same pods ask for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, Table};
use tessera_simulate::PolicyName;
use tessera_simulate::fleet::{Demands, Fleet, ListReader, Run, Workload};

/// The fleet: 32 H100, each offered whole, in partitions and in shares.
const FLEET: &str = "8xdgx-h100,cards=4";

/// Pods that are alike.
struct Kind {
    name: &'static str,
    count: usize,
    /// Cards' worth that each keeps busy.
    uses: f64,
}

/// Jobs of four cards at 95 %, services at 15 % and notebooks at 5 %.
const MIX: [Kind; 3] = [
    Kind { name: "training", count: 4, uses: 4.0 * 0.95 },
    Kind { name: "inference", count: 12, uses: 0.15 },
    Kind { name: "notebook", count: 8, uses: 0.05 },
];

/// What each kind asks for, step by step: never less than it uses.
const STEPS: [(&str, [&str; 3]); 3] = [
    ("whole cards", ["4", "1", "1"]),
    ("partitions", ["4", "2g.20gb", "1g.10gb"]),
    ("shares", ["4", "15%", "5%"]),
];

/// Arguments of `cargo xtask bench used`.
#[derive(Args)]
pub struct UsedArguments {
    /// Seed of kube-scheduler's choice among equal nodes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a step came to.
#[derive(Debug)]
struct Outcome {
    waiting: usize,
    /// Cards at least partly allocated.
    on: usize,
    /// Cards' worth in use.
    used: f64,
    /// Pods that hold less than they use.
    slowed: usize,
}

/// Simulates and prints.
///
/// # Errors
/// When the fleet or a workload cannot be simulated.
pub fn run(arguments: &UsedArguments) -> Result<ExitCode> {
    let mut table = Table::new();
    table.set_header(["asked for", "scheduler", "cards on", "used of these, %", "pods waiting", "slowed"]);
    for (step, asks) in &STEPS {
        for policy in [PolicyName::KubeScheduler, PolicyName::Tessera] {
            let outcome = simulate(asks, policy, arguments.seed)?;
            table.add_row([
                (*step).to_owned(),
                policy.to_string(),
                outcome.on.to_string(),
                format!("{:.1}", outcome.percent()),
                outcome.waiting.to_string(),
                outcome.slowed.to_string(),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}\nslowed: pods whose devices are less than what they use.");
    Ok(ExitCode::SUCCESS)
}

/// The mix with these requests, all pods at once and for ever.
fn simulate(asks: &[&str; 3], policy: PolicyName, seed: u64) -> Result<Outcome> {
    let fleet = Fleet::new(&[FLEET.parse()?])?;
    let mut list = ListReader::default();
    list.line("name,count,gpu")?;
    for (kind, ask) in MIX.iter().zip(asks) {
        list.line(&format!("{},{},{ask}", kind.name, kind.count))?;
    }
    let workload = Workload::of_list(&list.finish()?, &fleet);
    let demands = Demands::of(&fleet, &workload);
    let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
    let report = run.run(policy, seed, |_| ());
    let mut held = vec![0.0; workload.pods.len()];
    for holder in report.holdings.cards(&fleet).flat_map(|card| card.holders) {
        held[holder.pod] += holder.of_card;
    }
    let uses = MIX.iter().flat_map(|kind| vec![kind.uses; kind.count]);
    let placed: Vec<(f64, f64)> = held.into_iter().zip(uses).filter(|(held, _)| *held > 0.0).collect();
    Ok(Outcome {
        waiting: workload.pods.len() - placed.len(),
        on: report.cards_used.values().sum(),
        used: placed.iter().map(|(held, uses)| held.min(*uses)).sum(),
        slowed: placed.iter().filter(|(held, uses)| held + 1e-9 < *uses).count(),
    })
}

impl Outcome {
    fn percent(&self) -> f64 {
        100.0 * self.used / self.on as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_partitions_leave_little_unused_and_nobody_slowed() {
        let of = |step: usize| simulate(&STEPS[step].1, PolicyName::Tessera, 1).unwrap();
        let (whole, partitions, shares) = (of(0), of(1), of(2));
        assert!(whole.percent() < 55.0 && whole.waiting == 4, "{whole:?}");
        assert!(partitions.percent() > 80.0 && partitions.waiting == 0, "{partitions:?}");
        assert!(shares.percent() > 90.0 && shares.waiting == 0, "{shares:?}");
        assert_eq!([whole.slowed, partitions.slowed, shares.slowed], [0; 3]);
    }

    #[test]
    fn a_pod_that_asks_for_less_than_it_uses_is_slowed() {
        let outcome = simulate(&["4", "10%", "5%"], PolicyName::Tessera, 1).unwrap();
        assert_eq!(outcome.slowed, 12, "{outcome:?}");
    }
}
