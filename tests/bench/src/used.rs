//! `cargo xtask bench used`: how much of the cards that are on is used, by what the same pods ask for, and by what pools give to others.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde_json::json;
use tessera_simulate::PolicyName;
use tessera_simulate::fleet::{Demands, Fleet, ListReader, Pools, Run, Workload};

/// The fleet: 32 H100, each offered whole, in partitions and in shares.
const FLEET: &str = "8xdgx-h100,cards=4";

/// How long all of it runs.
const END: Duration = Duration::from_secs(24 * 3_600);

/// Equal pods.
struct Kind {
    name: &'static str,
    /// Cards' worth that each keeps busy.
    uses: f64,
}

/// Jobs of four cards at 95 %, services at 15 % and notebooks at 5 %.
const MIX: [Kind; 3] = [
    Kind { name: "training", uses: 4.0 * 0.95 },
    Kind { name: "service", uses: 0.15 },
    Kind { name: "notebook", uses: 0.05 },
];

/// Services in groups, of each of which one more ends after an hour; notebooks; then jobs, of which some always wait.
const SERVICES: (usize, usize) = (4, 3);
const NOTEBOOKS: usize = 8;
const JOBS: usize = 8;

/// What each kind asks for, never less than it uses, and how much of that it uses, in percent.
struct Asks {
    name: &'static str,
    gpu: [&'static str; 3],
    busy: [u8; 3],
}

const WHOLE: Asks = Asks { name: "whole cards", gpu: ["4", "1", "1"], busy: [95, 15, 5] };
const PARTITIONS: Asks = Asks { name: "partitions", gpu: ["4", "2g.20gb", "1g.10gb"], busy: [95, 52, 35] };
const SHARES: Asks = Asks { name: "shares", gpu: ["4", "15%", "5%"], busy: [95, 100, 100] };

/// What the pool gives to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gives {
    /// What is free.
    Free,
    /// Devices of idle pods, too.
    Idle,
    /// And room made by moving pods.
    Moves,
}

impl Gives {
    fn text(self) -> &'static str {
        match self {
            Gives::Free => "",
            Gives::Idle => ", WhenWanted",
            Gives::Moves => ", WhenWanted, gathering",
        }
    }

    fn pools(self) -> Result<Pools> {
        let mut spec = json!({ "allocation": "Managed", "offer": { "sharing": { "mps": {} } } });
        if self >= Gives::Idle {
            spec["idle"] = json!({ "action": "WhenWanted", "belowPercent": 10 });
        }
        if self >= Gives::Moves {
            spec["placement"] = json!({ "gather": { "mode": "Move" } });
        }
        let mut pools = Pools::default();
        pools.insert("main", None, &spec)?;
        Ok(pools)
    }
}

/// The steps, one after the other.
const STEPS: [(Asks, PolicyName, Gives); 8] = [
    (WHOLE, PolicyName::KubeScheduler, Gives::Free),
    (WHOLE, PolicyName::Tessera, Gives::Free),
    (WHOLE, PolicyName::Tessera, Gives::Idle),
    (WHOLE, PolicyName::Tessera, Gives::Moves),
    (PARTITIONS, PolicyName::KubeScheduler, Gives::Free),
    (PARTITIONS, PolicyName::Tessera, Gives::Moves),
    (SHARES, PolicyName::KubeScheduler, Gives::Free),
    (SHARES, PolicyName::Tessera, Gives::Moves),
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
    /// Pods that run, by kind.
    running: [usize; 3],
    /// Cards at least partly allocated.
    on: usize,
    /// Cards' worth in use.
    used: f64,
    /// Pods that hold less than they use.
    slowed: usize,
    /// Pods that lost their devices once.
    evicted: usize,
}

/// Simulates and prints.
///
/// # Errors
/// When the fleet or a workload cannot be simulated.
pub fn run(arguments: &UsedArguments) -> Result<ExitCode> {
    let mut table = Table::new();
    let kinds = ["jobs", "services", "notebooks"];
    let head = ["asked for", "scheduler", "cards on", "used of these, %"];
    table.set_header(head.iter().chain(&kinds).chain(&["evicted", "slowed"]));
    for (asks, policy, gives) in &STEPS {
        let outcome = simulate(asks, *policy, *gives, arguments.seed)?;
        let mut row = vec![
            format!("{}{}", asks.name, gives.text()),
            policy.to_string(),
            outcome.on.to_string(),
            format!("{:.1}", outcome.percent()),
        ];
        row.extend(outcome.running.iter().map(usize::to_string));
        row.extend([outcome.evicted.to_string(), outcome.slowed.to_string()]);
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!(
        "{table}\n{JOBS} jobs, {} services and {NOTEBOOKS} notebooks; who does not run waits. slowed: pods whose devices are less than \
         what they use.",
        SERVICES.0 * SERVICES.1
    );
    Ok(ExitCode::SUCCESS)
}

/// The mix with these requests.
fn simulate(asks: &Asks, policy: PolicyName, gives: Gives, seed: u64) -> Result<Outcome> {
    let fleet = Fleet::with_pools(&[FLEET.parse()?], &gives.pools()?)?;
    let mut list = ListReader::default();
    list.line("name,count,at,duration,movable,gpu,busy")?;
    let mut line = |kind: usize, name: &str, rest: &str| {
        list.line(&format!("{name},{rest},{},{}%", asks.gpu[kind], asks.busy[kind]))
    };
    for group in 0..SERVICES.0 {
        let at = 2 * group;
        line(1, &format!("service-{group}"), &format!("{},{at}s,,yes", SERVICES.1))?;
        line(1, &format!("service-over-{group}"), &format!("1,{}s,1h,yes", at + 1))?;
    }
    line(2, "notebook", &format!("{NOTEBOOKS},1m,,"))?;
    line(0, "training", &format!("{JOBS},3h,,"))?;
    let workload = Workload::of_list(&list.finish()?, &fleet);
    let demands = Demands::of(&fleet, &workload);
    let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
    let report = run.run_until(END, policy, seed, |_| ());
    let mut held = vec![0.0; workload.pods.len()];
    let mut on = 0;
    for card in report.holdings.cards(&fleet) {
        on += usize::from(!card.holders.is_empty());
        for holder in card.holders {
            held[holder.pod] += holder.of_card;
        }
    }
    let evicted = report.pods.iter().filter(|pod| !pod.lost.is_empty()).count();
    let mut outcome = Outcome { running: [0; 3], on, used: 0.0, slowed: 0, evicted };
    for (pod, held) in workload.pods.iter().zip(held).filter(|(_, held)| *held > 0.0) {
        for (kind, Kind { name, uses }) in MIX.iter().enumerate() {
            if pod.name.starts_with(name) {
                outcome.running[kind] += 1;
                outcome.used += held.min(*uses);
                outcome.slowed += usize::from(held + 1e-9 < *uses);
            }
        }
    }
    Ok(outcome)
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
    fn each_step_uses_more_of_the_cards_and_nobody_is_slowed() {
        let of = |asks: &Asks, gives| simulate(asks, PolicyName::Tessera, gives, 1).unwrap();
        let steps = [
            of(&WHOLE, Gives::Free),
            of(&WHOLE, Gives::Idle),
            of(&WHOLE, Gives::Moves),
            of(&PARTITIONS, Gives::Moves),
            of(&SHARES, Gives::Moves),
        ];
        assert!(steps.iter().all(|step| step.slowed == 0 && step.running[1] == 12), "{steps:?}");
        assert!(steps.is_sorted_by(|one, next| one.percent() < next.percent()), "{steps:?}");
        assert!(steps[0].percent() < 50.0 && steps[3].percent() > 80.0, "{steps:?}");
    }

    #[test]
    fn a_pod_that_asks_for_less_than_it_uses_is_slowed() {
        let asks = Asks { name: "less", gpu: ["4", "10%", "5%"], busy: [95, 100, 100] };
        let outcome = simulate(&asks, PolicyName::Tessera, Gives::Free, 1).unwrap();
        assert_eq!(outcome.slowed, 12, "{outcome:?}");
    }
}
