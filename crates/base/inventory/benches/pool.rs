//! What one look at a machine costs: `cargo bench -p tessera-inventory`.
//!
//! Prints, for each known machine, the median time of the topology rule alone and of the whole pool.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tessera_fakes::known_machines;
use tessera_inventory::pool::PoolOptions;
use tessera_inventory::{Pool, Topology};

fn main() {
    // `cargo test --all-targets` runs this too, without --bench: once is enough to see that it works.
    let runs = if std::env::args().any(|argument| argument == "--bench") { 201 } else { 1 };
    let options = PoolOptions::new(tessera_api::DEFAULT_DRIVER_NAME);
    println!("{:30} {:>5} {:>10} {:>10}", "machine", "cards", "rule", "pool");
    for known in known_machines::all() {
        let machine = known.machine();
        let rule = median(runs, || {
            black_box(Topology::new(black_box(&machine)).groups());
        });
        let pool = median(runs, || {
            black_box(Pool::new(black_box(&machine), &options));
        });
        println!("{:30} {:5} {rule:>10.1?} {pool:>10.1?}", known.name, machine.cards.len());
    }
}

fn median(runs: usize, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
