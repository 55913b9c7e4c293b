//! Waiting time of gangs and small pods in a simulated month: our decision loop beside three simple policies, on the same arrivals.
//!
//! `month [SEED]` prints a table. All time is virtual.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

mod objects;
mod ours;
mod simple;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread;

use ours::Ours;
use serde_json::json;
use simple::{Easy, Fifo, FirstCome};

/// Number of nodes, each with 8 cards.
const NODES: usize = 16;
const HOUR: u64 = 3_600;
const MONTH: u64 = 30 * 24 * HOUR;
/// Load of all jobs together, as a fraction of the cards.
const LOAD: f64 = 0.85;
/// Share of the load requested by gangs.
const GANGS: f64 = 0.6;

/// A single pod or a gang.
#[derive(Debug, Clone)]
pub struct Job {
    /// Arrival, in seconds of the month.
    pub arrives: u64,
    /// Number of pods.
    pub pods: usize,
    /// Cards per pod.
    pub cards: usize,
    /// Run time in seconds.
    pub runs: u64,
    /// `activeDeadlineSeconds`: the user's upper bound of the run time, in seconds.
    pub limit: u64,
}

/// A way to give out cards.
pub trait Policy {
    /// Takes the jobs newly arrived and ended. Returns the jobs to start now.
    fn step(&mut self, now: u64, came: &[usize], ended: &[usize]) -> Vec<usize>;

    /// Time of the next step even if nothing happens.
    fn wake(&self) -> Option<u64> {
        None
    }
}

/// Adds jobs of one kind: Poisson arrivals with a load of `asked` card-seconds per second.
fn arrive(
    random: &mut fastrand::Rng,
    asked: f64,
    mut draw: impl FnMut(&mut fastrand::Rng) -> (usize, usize, u64),
    jobs: &mut Vec<Job>,
) {
    let mean = {
        let mut other = fastrand::Rng::with_seed(0);
        let all =
            (0..100_000).map(|_| draw(&mut other)).map(|(pods, cards, runs)| (pods * cards) as u64 * runs);
        all.sum::<u64>() as f64 / 100_000.0
    };
    let mut now = 0.0;
    loop {
        now -= (1.0 - random.f64()).ln() * mean / asked;
        if now >= MONTH as f64 {
            return;
        }
        let (pods, cards, runs) = draw(random);
        // Users request up to three times the time needed.
        let limit = (runs as f64 * (1.0 + 2.0 * random.f64())) as u64;
        jobs.push(Job { arrives: now as u64, pods, cards, runs, limit });
    }
}

/// Log-uniform random number.
fn between(random: &mut fastrand::Rng, least: u64, most: u64) -> u64 {
    (least as f64 * (most as f64 / least as f64).powf(random.f64())) as u64
}

fn workload(seed: u64) -> Vec<Job> {
    let mut random = fastrand::Rng::with_seed(seed);
    let cards = (NODES * objects::CARDS) as f64 * LOAD;
    let mut jobs = Vec::new();
    let gang = |random: &mut fastrand::Rng| {
        ([2, 2, 4, 4, 8][random.usize(0..5)], objects::CARDS, between(random, HOUR, 24 * HOUR))
    };
    arrive(&mut random, cards * GANGS, gang, &mut jobs);
    let small = |random: &mut fastrand::Rng| {
        (1, [1, 1, 1, 2, 2, 4][random.usize(0..6)], between(random, HOUR / 6, 12 * HOUR))
    };
    arrive(&mut random, cards * (1.0 - GANGS), small, &mut jobs);
    jobs.sort_by_key(|job| job.arrives);
    jobs
}

/// Start time of each job.
fn play(jobs: &[Job], policy: &mut dyn Policy) -> Vec<u64> {
    let mut begun = vec![None; jobs.len()];
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut next = 0;
    loop {
        let arrival = jobs.get(next).map(|job| job.arrives);
        let end = ends.peek().map(|Reverse((end, _))| *end);
        let waits = begun[..next].iter().any(Option::is_none);
        let wake = policy.wake().filter(|_| waits);
        let Some(now) = [arrival, end, wake].into_iter().flatten().min() else { break };
        let (mut came, mut ended) = (Vec::new(), Vec::new());
        while jobs.get(next).is_some_and(|job| job.arrives <= now) {
            came.push(next);
            next += 1;
        }
        while let Some(Reverse((end, job))) = ends.peek().copied()
            && end <= now
        {
            ends.pop();
            ended.push(job);
        }
        for job in policy.step(now, &came, &ended) {
            assert!(begun[job].replace(now).is_none(), "{:?} began twice", jobs[job]);
            ends.push(Reverse((now + jobs[job].runs, job)));
        }
    }
    begun.into_iter().map(|begun| begun.expect("all begin in the end")).collect()
}

/// Mean and longest wait in hours.
fn waiting(jobs: &[Job], begun: &[u64], is_of: impl Fn(&Job) -> bool) -> (f64, f64) {
    let waits: Vec<f64> = jobs
        .iter()
        .zip(begun)
        .filter(|(job, _)| is_of(job))
        .map(|(job, begun)| (begun - job.arrives) as f64 / HOUR as f64)
        .collect();
    (waits.iter().sum::<f64>() / waits.len() as f64, waits.iter().copied().fold(0.0, f64::max))
}

fn main() {
    let seed = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a seed"));
    let jobs = workload(seed);
    let gangs = jobs.iter().filter(|job| job.pods > 1).count();
    println!(
        "{NODES} nodes with 8 cards, 30 days, seed {seed}: {gangs} gangs of 2 to 8 pods with 8 cards each (1 to 24 h) and {} small pods with \
         1 to 4 cards (10 min to 12 h), which ask for {:.0} % of the cards, gangs for {:.0} % of that",
        jobs.len() - gangs,
        LOAD * 100.0,
        GANGS * 100.0
    );
    println!(
        "hours of waiting                            gangs: mean  longest   small pods: mean  longest   cards in use"
    );
    let (jobs, best_effort, strict) = (&jobs, json!({}), json!({ "queue": "Strict" }));
    thread::scope(|scope| {
        let runs = [
            ("Tessera, BestEffort", scope.spawn(|| play(jobs, &mut Ours::new(jobs, NODES, &best_effort)))),
            ("Tessera, Strict", scope.spawn(|| play(jobs, &mut Ours::new(jobs, NODES, &strict)))),
            ("FIFO", scope.spawn(|| play(jobs, &mut Fifo::new(jobs, NODES)))),
            ("backfill by EASY", scope.spawn(|| play(jobs, &mut Easy::new(jobs, NODES)))),
            (
                "kube-scheduler, first-come gates",
                scope.spawn(|| play(jobs, &mut FirstCome::new(jobs, NODES))),
            ),
        ];
        for (name, run) in runs {
            print(name, jobs, &run.join().expect("a whole month"));
        }
    });
}

/// Prints one line of the table.
fn print(name: &str, jobs: &[Job], begun: &[u64]) {
    let (gang_mean, gang_most) = waiting(jobs, begun, |job| job.pods > 1);
    let (small_mean, small_most) = waiting(jobs, begun, |job| job.pods == 1);
    let used = jobs.iter().zip(begun).map(|(job, begun)| {
        let end = (begun + job.runs).min(MONTH);
        end.saturating_sub(*begun) * (job.pods * job.cards) as u64
    });
    let used = used.sum::<u64>() as f64 / (MONTH * (NODES * objects::CARDS) as u64) as f64 * 100.0;
    println!(
        "{name:<42} {gang_mean:>12.1} {gang_most:>8.1} {small_mean:>18.2} {small_most:>8.1} {used:>12.1} %"
    );
}
