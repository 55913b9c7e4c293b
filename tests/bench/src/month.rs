//! `cargo xtask bench month`: jobs, services and notebooks come and go on one fleet: waiting, and cards in use, with devices of idle pods
//! given to those who wait, with pods that move for them, and without.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde_json::json;
use tessera_simulate::fleet::{Demands, Fleet, ListReader, Pools, Run, RunReport, Summary, Workload};
use tessera_simulate::{PolicyName, Random};

const FLEET: &str = "8xdgx-h100,cards=4";
const HOUR: f64 = 3_600.0;

/// Equal pods.
struct Kind {
    name: &'static str,
    /// Requests, one as likely as the other: in whole cards, and with partitions.
    gpu: [&'static [&'static str]; 2],
    /// Percent used of the request.
    busy: [u8; 2],
    /// How many there are on average, if none waits.
    pods: f64,
    /// Running time in hours: each order of magnitude between these is as likely.
    hours: (f64, f64),
    is_movable: bool,
}

/// Jobs, of which the small ones may move, services and notebooks.
const KINDS: [Kind; 4] = [
    Kind {
        name: "large",
        gpu: [&["2", "4", "4"]; 2],
        busy: [95; 2],
        pods: 4.0,
        hours: (1.0, 24.0),
        is_movable: false,
    },
    Kind {
        name: "small",
        gpu: [&["1", "1", "2"]; 2],
        busy: [95; 2],
        pods: 3.0,
        hours: (1.0, 24.0),
        is_movable: true,
    },
    Kind {
        name: "service",
        gpu: [&["1"], &["2g.20gb"]],
        busy: [15, 52],
        pods: 10.0,
        hours: (12.0, 96.0),
        is_movable: true,
    },
    Kind {
        name: "notebook",
        gpu: [&["1"], &["1g.10gb"]],
        busy: [5, 35],
        pods: 6.0,
        hours: (4.0, 48.0),
        is_movable: false,
    },
];

/// Arguments of `cargo xtask bench month`.
#[derive(Args)]
pub struct MonthArguments {
    /// Days during which pods arrive.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Whether idle pods make room, and others move.
const RULES: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("WhenWanted", true, false),
    ("gathering", false, true),
    ("both", true, true),
];

/// Simulates and prints.
///
/// # Errors
/// When the fleet or the workload cannot be simulated.
pub fn run(arguments: &MonthArguments) -> Result<ExitCode> {
    let mut table = Table::new();
    table.set_header([
        "asked for",
        "given to those who wait",
        "allocated, %",
        "used, %",
        "jobs wait, h: mean; 95 %",
        "services",
        "notebooks",
        "idle, evicted",
        "moved",
        "lost, %",
    ]);
    let runs = ["whole cards", "partitions"].into_iter().enumerate();
    let runs = runs.flat_map(|(form, asks)| RULES.map(|rule| (form, asks, rule)));
    let rows = thread::scope(|scope| {
        let running: Vec<_> =
            runs.map(|(form, asks, rule)| scope.spawn(move || row((form, asks), rule, arguments))).collect();
        let joined = running.into_iter().map(|run| run.join().map_err(|_| anyhow!("a run failed"))?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!(
        "{table}\nMean hours of waiting; of jobs also what 95 % do not exceed. lost: running time of jobs and services that moved and began \
         anew, of the cards' time."
    );
    Ok(ExitCode::SUCCESS)
}

/// Plays the arrivals. Returns a row of the table.
fn row(
    (form, asks): (usize, &str),
    (rule, idle, moves): (&str, bool, bool),
    arguments: &MonthArguments,
) -> Result<Vec<String>> {
    let mut spec = json!({ "allocation": "Managed" });
    if idle {
        spec["idle"] = json!({ "action": "WhenWanted", "belowPercent": 10 });
    }
    if moves {
        spec["placement"] = json!({ "gather": { "mode": "Move" } });
    }
    let mut pools = Pools::default();
    pools.insert("main", None, &spec)?;
    let fleet = Fleet::with_pools(&[FLEET.parse()?], &pools)?;
    let workload = arrivals(form, &fleet, arguments)?;
    let demands = Demands::of(&fleet, &workload);
    let (at, end) = (Some(Duration::ZERO), Duration::from_secs(u64::from(arguments.days) * 86_400));
    let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at, wishes: &[] };
    let report = run.run_until(end, PolicyName::Tessera, arguments.seed, |_| ());
    let summary = Summary::of(&fleet, &workload, &report);
    let wait = |names: &[&str]| waits(&workload, &report, end, names);
    let (jobs, services, notebooks) = (wait(&["large", "small"]), wait(&["service"]), wait(&["notebook"]));
    let lost = |is_notebook: bool| {
        let pods = workload.pods.iter().zip(&report.pods);
        pods.filter(move |(pod, _)| pod.name.starts_with("notebook") == is_notebook)
            .map(|(_, outcome)| outcome)
    };
    let times = |is_notebook| lost(is_notebook).map(|outcome| outcome.lost.len()).sum::<usize>();
    let hours = lost(false).map(|outcome| outcome.lost_card_hours).fold(0.0, |sum, one| sum + one);
    Ok(vec![
        asks.to_owned(),
        rule.to_owned(),
        format!("{:.1}", summary.mean),
        format!("{:.1}", summary.used),
        format!("{:.1}; {:.1}", jobs.0, jobs.1),
        format!("{:.1}", services.0),
        format!("{:.1}", notebooks.0),
        times(true).to_string(),
        times(false).to_string(),
        format!("{:.2}", 100.0 * hours / (fleet.cards() as f64 * end.as_secs_f64() / HOUR)),
    ])
}

/// Mean and 95th percentile of the hours that pods of these kinds waited until then, those that wait still included.
fn waits(workload: &Workload, report: &RunReport, end: Duration, names: &[&str]) -> (f64, f64) {
    let pods = workload.pods.iter().zip(&report.pods);
    let of = pods.filter(|(pod, _)| names.iter().any(|name| pod.name.starts_with(name)));
    let hours = of.map(|(pod, outcome)| {
        let ran: Duration = outcome.lost.iter().map(|run| run.end - run.start).sum();
        let waited = outcome.waited(pod.at).unwrap_or_else(|| end.saturating_sub(pod.at + ran));
        waited.as_secs_f64() / HOUR
    });
    let mut hours: Vec<f64> = hours.collect();
    hours.sort_by(f64::total_cmp);
    let mean = hours.iter().sum::<f64>() / hours.len().max(1) as f64;
    (mean, hours.get((hours.len() * 95).div_ceil(100).max(1) - 1).copied().unwrap_or_default())
}

/// Pods that come at random (Poisson), the same at the same times in all forms.
fn arrivals(form: usize, fleet: &Fleet, MonthArguments { days, seed }: &MonthArguments) -> Result<Workload> {
    let end = f64::from(*days) * 24.0 * HOUR;
    let mut list = ListReader::default();
    list.line("name,gpu,busy,movable,at,duration")?;
    for (number, kind) in KINDS.iter().enumerate() {
        let mut random = Random::new(seed.wrapping_mul(1_000).wrapping_add(number as u64));
        let (least, most) = kind.hours;
        // The mean of a log-uniform time.
        let mean = (most - least) / (most / least).ln() * HOUR;
        // As many as on average are there from the beginning.
        let (mut at, mut came) = (0.0, 0.0);
        loop {
            if came >= kind.pods {
                at -= (1.0 - random.unit()).ln() * mean / kind.pods;
            }
            if at >= end {
                break;
            }
            let runs = least * (most / least).powf(random.unit()) * HOUR;
            let choice = random.unit();
            let gpu = kind.gpu[form];
            let gpu = gpu[((choice * gpu.len() as f64) as usize).min(gpu.len() - 1)];
            let movable = if kind.is_movable { "yes" } else { "no" };
            let name = format!("{}-{came}", kind.name);
            list.line(&format!("{name},{gpu},{}%,{movable},{at:.0}s,{runs:.0}s", kind.busy[form]))?;
            came += 1.0;
        }
    }
    Ok(Workload::of_list(&list.finish()?, fleet))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_the_same_in_all_forms() {
        let fleet = Fleet::new(&[FLEET.parse().unwrap()]).unwrap();
        let arguments = MonthArguments { days: 7, seed: 1 };
        let times = |form| {
            let pods = arrivals(form, &fleet, &arguments).unwrap().pods.into_iter();
            pods.map(|pod| (pod.name, pod.at, pod.duration)).collect::<Vec<_>>()
        };
        let whole = times(0);
        assert_eq!(whole, times(1));
        assert!(whole.len() > 100, "{}", whole.len());
    }

    #[test]
    fn whoever_waits_at_the_end_counts_with_the_time_until_then() {
        let fleet = Fleet::new(&["1xdgx-h100,cards=1".parse().unwrap()]).unwrap();
        let mut list = ListReader::default();
        for line in ["name,gpu,count,at,duration", "large,1,1,0,", "small,1,1,1h,"] {
            list.line(line).unwrap();
        }
        let workload = Workload::of_list(&list.finish().unwrap(), &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        let end = Duration::from_secs(5 * 3_600);
        let report = run.run_until(end, PolicyName::Tessera, 1, |_| ());
        assert_eq!(waits(&workload, &report, end, &["large", "small"]), (2.0, 4.0));
    }
}
