//! The simulation's output, as tables.

use comfy_table::Table;
use serde::Deserialize;
use tessera_simulate::{PolicyName, Spread};

/// Policies compared with departures.
pub const STEADY: [PolicyName; 2] = [PolicyName::TesseraBare, PolicyName::Fgd];

/// Whose results others are divided by.
const PEER: PolicyName = PolicyName::Fgd;

/// Of a trace, percent allocated at load 100: the aim, and the bound of every policy, even of one knowing all arrivals
/// beforehand (a linear programme over all nodes).
const AIMS: [(&str, f64, f64); 4] = [
    ("default", 96.1, 96.9),
    ("gpushare40", 94.65, 95.65),
    ("multigpu20", 96.6, 97.34),
    ("cpu100", 96.1, 96.9),
];

/// Where load 100 is in a run's results.
const FULL: usize = 2;

/// The output of `crates/scheduling/simulate/examples/packing.rs`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// One run without departures.
    Filling {
        trace: String,
        policy: String,
        seed: u64,
        allocated: [f64; 4],
        fragmentation: [f64; 4],
        seconds: f64,
    },
    /// One run with departures.
    Steady { trace: String, policy: String, load: f64, allocated: f64, refused: f64 },
    /// Durations of choices.
    Decisions { policy: String, nodes: usize, decisions: usize, p50_us: f64, p99_us: f64, max_us: f64 },
}

/// Prints the tables.
pub fn print(traces: &[String], lines: &[Line]) {
    println!(
        "Percent of the cards allocated when what arrived asks for all of them, mean ± standard deviation of the seeds; in brackets \
         relative to {PEER} in the same runs:\n{}\n",
        filling(traces, lines, |line| match line {
            Line::Filling { allocated, .. } => Some(allocated[FULL]),
            _ => None,
        })
    );
    println!(
        "Percent of what is free that a typical pod cannot use, when 80 % are asked for:\n{}\n",
        filling(traces, lines, |line| match line {
            Line::Filling { fragmentation, .. } => Some(fragmentation[0]),
            _ => None,
        })
    );
    println!(
        "{} at that load, beside what is aimed at and what is possible:\n{}\n",
        PolicyName::TesseraBare,
        aims(traces, lines)
    );
    for ours in PolicyName::ALL.into_iter().filter(|policy| policy.is_loop()) {
        let bare = of_pairs(lines, ours);
        println!(
            "{ours} at that load, less {} on the same arrivals: {:+.2} ± {:.2} points\n",
            PolicyName::TesseraBare,
            bare.mean,
            bare.deviation
        );
    }
    for ours in [PolicyName::TesseraBare, PolicyName::Tessera] {
        let seconds = of(lines, |line| match line {
            Line::Filling { policy, seconds, .. } if policy == ours.name() => Some(*seconds),
            _ => None,
        });
        println!("A run of {ours}: {:.2} s\n", seconds.mean);
    }
    if lines.iter().any(|line| matches!(line, Line::Steady { .. })) {
        println!(
            "Pods leave again; offered load in percent of the cards. Percent of the cards asked for that were refused, and in \
             brackets allocated on average:\n{}\n",
            steady(traces, lines)
        );
    }
    for line in lines {
        if let Line::Decisions { policy, nodes, decisions, p50_us, p99_us, max_us } = line {
            println!(
                "{policy}: {decisions} decisions on {nodes} nodes: p50 {p50_us:.1} µs, p99 {p99_us:.1} µs, longest {max_us:.0} µs"
            );
        }
    }
}

fn of(lines: &[Line], value: impl FnMut(&Line) -> Option<f64>) -> Spread {
    Spread::of(&lines.iter().filter_map(value).collect::<Vec<f64>>())
}

fn of_filling(lines: &[Line], on: &str, by: PolicyName, value: impl Fn(&Line) -> Option<f64>) -> Spread {
    of(lines, |line| match line {
        Line::Filling { trace, policy, .. } if trace == on && policy == by.name() => value(line),
        _ => None,
    })
}

/// By how many points a policy allocates more than the policy alone at load 100, on the same arrivals.
fn of_pairs(lines: &[Line], ours: PolicyName) -> Spread {
    of(lines, |line| {
        let Line::Filling { trace, policy, seed, allocated, .. } = line else { return None };
        let bare = lines.iter().find_map(|other| match other {
            Line::Filling { trace: on, policy, seed: of, allocated, .. }
                if on == trace && of == seed && policy == PolicyName::TesseraBare.name() =>
            {
                Some(allocated[FULL])
            }
            _ => None,
        })?;
        (policy == ours.name()).then_some(allocated[FULL] - bare)
    })
}

/// One row for each policy, one column for each trace.
fn filling(traces: &[String], lines: &[Line], value: impl Fn(&Line) -> Option<f64> + Copy) -> Table {
    let mut table = Table::new();
    table.set_header(std::iter::once("policy").chain(traces.iter().map(String::as_str)));
    for policy in PolicyName::ALL {
        let mut row = vec![policy.to_string()];
        row.extend(traces.iter().map(|trace| {
            let found = of_filling(lines, trace, policy, value);
            let peer = of_filling(lines, trace, PEER, value);
            if found.count == 0 {
                return "-".to_owned();
            }
            format!("{:.2} ± {:.2} (×{:.3})", found.mean, found.deviation, found.mean / peer.mean)
        }));
        table.add_row(row);
    }
    table
}

fn aims(traces: &[String], lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.set_header(["trace", "reached", "aim", "upper bound", "ahead of fgd"]);
    let allocated = |line: &Line| match line {
        Line::Filling { allocated, .. } => Some(allocated[FULL]),
        _ => None,
    };
    for (trace, aim, bound) in AIMS.iter().filter(|aim| traces.iter().any(|trace| trace == aim.0)) {
        let reached = of_filling(lines, trace, PolicyName::TesseraBare, allocated).mean;
        let peer = of_filling(lines, trace, PEER, allocated).mean;
        let verdict = if reached >= *aim { "reached" } else { "missed" };
        table.add_row([
            (*trace).to_owned(),
            format!("{reached:.2}"),
            format!("{aim:.2} ({verdict})"),
            format!("{bound:.2}"),
            format!("{:.2}", reached - peer),
        ]);
    }
    table
}

/// One row for each trace and load, one column for each policy.
fn steady(traces: &[String], lines: &[Line]) -> Table {
    let mut loads: Vec<f64> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Steady { load, .. } => Some(*load),
            _ => None,
        })
        .collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let mut table = Table::new();
    let mut header = vec!["trace".to_owned(), "load".to_owned()];
    header.extend(STEADY.map(|policy| policy.to_string()));
    header.push(format!("refused, ×{PEER}"));
    table.set_header(header);
    for trace in traces {
        for load in &loads {
            let mean = |by: PolicyName, value: fn(f64, f64) -> f64| {
                let found = of(lines, |line| match line {
                    Line::Steady { trace: on, policy, load: at, allocated, refused }
                        if on == trace && policy == by.name() && at == load =>
                    {
                        Some(value(*allocated, *refused))
                    }
                    _ => None,
                });
                found.mean
            };
            let refused = |by| mean(by, |_, refused| refused);
            let mut row = vec![trace.clone(), format!("{load}")];
            row.extend(STEADY.map(|policy| {
                format!("{:.3} ({:.2})", refused(policy), mean(policy, |allocated, _| allocated))
            }));
            row.push(format!("{:.3}", refused(PolicyName::TesseraBare) / refused(PEER)));
            table.add_row(row);
        }
    }
    table
}
