//! The simulation's output, as tables.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::{Deserialize, Serialize};

/// The simulated machines.
const MACHINES: &str = include_str!("../../../../crates/base/inventory/tests/data/topologies.txt");

/// Mixes of requests.
pub const MIXES: usize = 2;

/// Policies in the order of the columns.
const POLICIES: [&str; 5] =
    ["tessera", "go-gpuallocator", "go-gpuallocator, fullest node", "published order", "index"];

/// Mean over the seeds, and the standard deviation between them.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Spread {
    mean: f64,
    deviation: f64,
}

/// The output of `crates/scheduling/decide/examples/sets/report.rs`: one policy on one kind of machine, with one mix and load.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// How many of them.
    pub nodes: usize,
    mix: String,
    load: f64,
    policy: String,
    ring: Spread,
    ring_of: BTreeMap<usize, Spread>,
    served: Spread,
    wait: Spread,
    wait_of: BTreeMap<usize, Spread>,
}

/// The names of the machines, in the order of their file.
pub fn machine_names() -> Vec<&'static str> {
    MACHINES.lines().filter_map(|line| line.strip_prefix("T ")?.split(' ').next()).collect()
}

/// Number of policies compared on this many machines.
pub fn policies(nodes: usize) -> usize {
    if nodes == 1 { POLICIES.len() - 1 } else { POLICIES.len() }
}

impl Report {
    /// Its place in the output.
    pub fn place(&self, machines: &[&str]) -> (usize, usize, String, u64, usize) {
        let machine = machines.iter().position(|name| *name == self.machine);
        let policy = POLICIES.iter().position(|name| *name == self.policy);
        let last = usize::MAX;
        (self.nodes, machine.unwrap_or(last), self.mix.clone(), self.load.to_bits(), policy.unwrap_or(last))
    }
}

/// Prints a table for one machine and one for several. The reports are in order.
pub fn print(reports: &[Report]) {
    let (one, several): (Vec<&Report>, Vec<&Report>) = reports.iter().partition(|report| report.nodes == 1);
    if !one.is_empty() {
        println!(
            "One machine; what it has no room for is lost. Ring bandwidth relative to the best set of the empty machine, mean \
             of the requests for two and more cards ± standard deviation between seeds:\n{}\n",
            table(&one, |report| format!("{:.3} ± {:.3}", report.ring.mean, report.ring.deviation))
        );
    }
    let Some(nodes) = several.first().map(|report| report.nodes) else { return };
    println!(
        "{nodes} machines with one queue. The same:\n{}\n\nMean wait of all requests, in mean times of service, and in brackets \
         that of the largest:\n{}",
        table(&several, |report| format!("{:.3} ± {:.3}", report.ring.mean, report.ring.deviation)),
        table(&several, |report| {
            let largest = report.wait_of.last_key_value().map_or(0.0, |(_, wait)| wait.mean);
            format!("{:.2} ± {:.2} ({largest:.1})", report.wait.mean, report.wait.deviation)
        })
    );
}

/// One row for each machine, mix and load; one column for each policy.
fn table(reports: &[&Report], cell: impl Fn(&Report) -> String) -> Table {
    let has = |policy: &&&str| reports.iter().any(|report| report.policy == **policy);
    let policies: Vec<&str> = POLICIES.iter().filter(has).copied().collect();
    let mut table = Table::new();
    table.set_header(["machine", "mix", "load"].iter().chain(&policies));
    let is_same = |one: &&Report, other: &&Report| {
        (&one.machine, &one.mix, one.load.to_bits()) == (&other.machine, &other.mix, other.load.to_bits())
    };
    for row in reports.chunk_by(is_same) {
        let first = row[0];
        let mut cells = vec![first.machine.clone(), first.mix.clone(), format!("{}", first.load)];
        cells.extend(policies.iter().map(|policy| {
            row.iter().find(|report| report.policy == *policy).map_or(String::new(), |report| cell(report))
        }));
        table.add_row(cells);
    }
    table
}
