//! Whole cards given to claims while others come and go, by us and by others: `sets OPTIONS`, with [`Options`] as JSON, prints
//! each [`Report`] as one line of JSON. For `cargo xtask bench sets`.
//!
//! ```text
//! arrivals (mix, load, seed) ─> simulation ─┬─> ours: the whole decision loop
//!                                           └─> peers: go-gpuallocator, orders of cards
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a program for developers")]

mod arrivals;
mod go_gpuallocator;
// Included by path: the crate pulls in emulated hardware and an API server.
#[path = "../../../../../tests/fakes/src/known_machines.rs"]
#[allow(dead_code, missing_docs)]
mod known_machines;
#[path = "../../tests/decide/known_nodes.rs"]
#[allow(dead_code)]
mod known_nodes;
#[path = "../../tests/decide/objects.rs"]
#[allow(dead_code)]
mod objects;
mod ours;
mod peers;
mod report;
mod simulation;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Deserialize;

use arrivals::{Mix, Request};
use known_machines::KnownMachine;
use report::{Ideal, Report};
use simulation::{Policy, Queue};

/// Simulation options.
#[derive(Deserialize)]
struct Options {
    /// Names of machines. Empty means all.
    machines: Vec<String>,
    /// Numbers of machines, each simulated separately. With one machine, a request without room is lost. Several machines share a
    /// queue.
    nodes: Vec<usize>,
    /// Requested cards relative to existing cards.
    loads: Vec<f64>,
    /// Requests per simulation, on one machine and on several.
    arrivals: (usize, usize),
    /// One simulation per seed.
    seeds: Vec<u64>,
    /// Whether a request waits for all earlier requests.
    in_order: bool,
}

fn main() {
    let options = std::env::args().nth(1).expect("the options as JSON");
    let options: Options = serde_json::from_str(&options).expect("the options as JSON");
    let mut machines = known_machines::all();
    machines.retain(|machine| options.machines.is_empty() || options.machines.contains(&machine.name));
    // Long simulations first.
    let mut work: Vec<(&KnownMachine, usize)> = machines
        .iter()
        .flat_map(|machine| options.nodes.iter().map(move |nodes| (machine, *nodes)))
        .collect();
    work.sort_by_key(|(machine, nodes)| std::cmp::Reverse(machine.numa.len() * nodes));
    let next = AtomicUsize::new(0);
    let (sender, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next, work, options) = (sender.clone(), &next, &work, &options);
            scope.spawn(move || {
                while let Some((machine, nodes)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    measure(machine, *nodes, options, &mut |report| sender.send(report).expect("a reader"));
                }
            });
        }
        drop(sender);
        for report in &reports {
            println!("{}", serde_json::to_string::<Report>(&report).expect("plain numbers"));
        }
    });
}

fn measure(machine: &KnownMachine, nodes: usize, options: &Options, tell: &mut impl FnMut(Report)) {
    let mut policies: Vec<(&'static str, Box<dyn Policy>)> = peers::all(machine, nodes);
    policies.insert(0, ("tessera", ours::policy(machine, nodes)));
    let ideal = Ideal::of(machine);
    let queue = match (nodes, options.in_order) {
        (1, _) => Queue::None,
        (_, true) => Queue::InOrder,
        (_, false) => Queue::Overtaking,
    };
    let arrivals = if nodes == 1 { options.arrivals.0 } else { options.arrivals.1 };
    let cards = machine.numa.len();
    for mix in Mix::all() {
        for load in &options.loads {
            let requests: Vec<Vec<Request>> = options
                .seeds
                .iter()
                .map(|seed| {
                    arrivals::arrivals(&mix.up_to(cards), load * (cards * nodes) as f64, arrivals, *seed)
                })
                .collect();
            for (name, policy) in &mut policies {
                let runs = requests
                    .iter()
                    .map(|requests| simulation::run(requests, (nodes, cards), queue, policy.as_mut()))
                    .collect::<Vec<_>>();
                tell(Report::of(machine, nodes, (mix.name, *load), name, &ideal, &runs));
            }
        }
    }
}
