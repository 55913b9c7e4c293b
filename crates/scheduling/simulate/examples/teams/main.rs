//! What `cargo xtask bench teams` runs: ten teams on one fleet, first come first served and with GpuQuotas, on the same arrivals.
//! `teams DAYS NODES LOAD SEED [steady]` prints two tables.
//!
//! Every team asks for as much, in bursts by the day; half of them have twice the weight of the others. `steady`: single pods of up to
//! three days, evenly and by weight, so that all teams have demand all the time at a LOAD above 1. With quotas each team has half of
//! its share guaranteed. Evicted jobs begin anew. Beside them KAI-Scheduler's rule, with the same as its quota and weight.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]

mod kai;

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tessera_simulate::fleet::{Demands, Fleet, List, ListReader, Quotas, Run, RunReport, Workload};
use tessera_simulate::{PolicyName, Random};

const WEIGHTS: [u32; 10] = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2];
/// Cards of a node.
const CARDS: usize = 8;
const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Running times are log-normal: half of the jobs run longer than this, and one of a hundred longer than three days.
const MEDIAN: f64 = HOUR;
const SIGMA: f64 = 1.8384;
/// No job runs longer.
const LONGEST: f64 = 10.0 * DAY;
const LONGEST_STEADY: f64 = 3.0 * DAY;
/// Cards of single pods.
const SINGLE: [usize; 5] = [1, 1, 1, 2, 4];
/// Cards of gangs, whose pods have four each. None asks for more than a quarter of the fleet.
const GANGS: [usize; 6] = [8, 16, 24, 32, 48, 64];
const OF_GANG: usize = 4;
/// A team's demand on each day, as a multiple of its mean.
const BURSTS: [f64; 4] = [0.0, 0.5, 1.0, 2.5];

/// A pod alone, or a gang.
struct Job {
    team: usize,
    arrives: f64,
    cards: usize,
    runs: f64,
}

impl Job {
    /// Cards of each pod, and the number of pods.
    fn pods(&self) -> (usize, usize) {
        if self.cards < CARDS { (self.cards, 1) } else { (OF_GANG, self.cards / OF_GANG) }
    }
}

fn pick<T: Copy>(random: &mut Random, among: &[T]) -> T {
    among[random.below(among.len())]
}

/// How teams ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// All for as much, in bursts, and for gangs.
    Bursts,
    /// Evenly by weight, for single pods.
    Steady,
}

fn cards_of(random: &mut Random, fleet: usize, demand: Demand) -> usize {
    let gangs = GANGS.partition_point(|cards| cards * 4 <= fleet);
    if demand == Demand::Bursts && random.unit() < 0.3 {
        pick(random, &GANGS[..gangs.max(1)])
    } else {
        pick(random, &SINGLE)
    }
}

fn runs(random: &mut Random, demand: Demand) -> f64 {
    let longest = if demand == Demand::Bursts { LONGEST } else { LONGEST_STEADY };
    let normal = (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
    (MEDIAN * (SIGMA * normal).exp()).clamp(60.0, longest).round()
}

fn jobs(days: usize, cards: usize, load: f64, seed: u64, demand: Demand) -> Vec<Job> {
    let mut random = Random::new(seed);
    let one = |random: &mut Random| cards_of(random, cards, demand) as f64 * runs(random, demand);
    let mean = (0..100_000).map(|_| one(&mut random)).sum::<f64>() / 1e5;
    let mut jobs = Vec::new();
    for team in 0..WEIGHTS.len() {
        let part = if demand == Demand::Bursts { 1.0 / WEIGHTS.len() as f64 } else { share(team) };
        let gap = mean / (cards as f64 * load * part);
        for day in 0..days {
            let burst = if demand == Demand::Bursts { pick(&mut random, &BURSTS) } else { 1.0 };
            let mut at = 0.0;
            loop {
                at -= (1.0 - random.unit()).ln() * gap / burst;
                if at >= DAY || burst == 0.0 {
                    break;
                }
                let arrives = (day as f64 * DAY + at).floor();
                jobs.push(Job {
                    team,
                    arrives,
                    cards: cards_of(&mut random, cards, demand),
                    runs: runs(&mut random, demand),
                });
            }
        }
    }
    jobs
}

fn list(jobs: &[Job]) -> List {
    let mut reader = ListReader::default();
    reader.line("name,namespace,gpu,count,at,duration,gang").expect("known columns");
    for (number, job) in jobs.iter().enumerate() {
        let (Job { team, arrives, runs, .. }, (gpu, count)) = (job, job.pods());
        let line = format!("j{number},team-{team},{gpu},{count},{arrives}s,{runs}s,{count}");
        reader.line(&line).expect("a good line");
    }
    reader.finish().expect("jobs")
}

fn share(team: usize) -> f64 {
    f64::from(WEIGHTS[team]) / f64::from(WEIGHTS.iter().sum::<u32>())
}

fn quotas(cards: usize, min_runtime: u32) -> Quotas {
    let quota = |team: usize| {
        let name = format!("team-{team}");
        let guaranteed = (cards as f64 * share(team) / 2.0).floor();
        let quota = json!({
            "metadata": { "name": name },
            "spec": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
                "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": guaranteed as u32 }],
                "weight": WEIGHTS[team],
                "minRuntimeSeconds": min_runtime,
            },
        });
        serde_json::from_value(quota).expect("a GpuQuota")
    };
    Quotas::new((0..WEIGHTS.len()).map(quota).collect(), BTreeMap::new())
}

/// Number of the job of a pod with this name.
fn job_of(name: &str) -> usize {
    let number = name[1..].split('-').next().and_then(|number| number.parse().ok());
    number.expect("the number of a job")
}

/// What became of a job until the end of the month.
#[derive(Default)]
struct Fate {
    /// In seconds.
    waited: f64,
    lost: Vec<Range<f64>>,
    run: Option<Range<f64>>,
}

impl Fate {
    /// Of a job with these runs, of which all but the last were in vain, before that end.
    fn until(end: f64, job: &Job, lost: Vec<Range<f64>>, run: Option<Range<f64>>) -> Self {
        let run = run.filter(|run| run.start < end);
        let lost: Vec<Range<f64>> = lost.into_iter().filter(|run| run.start < end).collect();
        let ran: f64 = lost.iter().map(|run| run.end - run.start).sum();
        let waited = run.as_ref().map_or(end, |run| run.start) - job.arrives - ran;
        Fate { waited: waited.max(0.0), lost, run }
    }

    fn runs(&self) -> impl Iterator<Item = &Range<f64>> {
        self.lost.iter().chain(&self.run)
    }
}

fn fates(end: f64, jobs: &[Job], workload: &Workload, report: &RunReport) -> Vec<Fate> {
    let mut fates: Vec<Fate> = jobs.iter().map(|_| Fate::default()).collect();
    // All pods of a gang have the same times.
    for (pod, outcome) in workload.pods.iter().zip(&report.pods) {
        let job = job_of(&pod.name);
        let run = outcome.began.map(|began| began.as_secs_f64());
        let run = run.map(|began| began..began + jobs[job].runs);
        let lost = outcome.lost.iter().map(|run| run.start.as_secs_f64()..run.end.as_secs_f64());
        fates[job] = Fate::until(end, &jobs[job], lost.collect(), run);
    }
    fates
}

/// Parts of the cards by weight, of teams that ask for so many: what a team does not ask for the others divide.
fn parts(mut cards: f64, asked: &[f64; WEIGHTS.len()]) -> [f64; WEIGHTS.len()] {
    let mut parts = [0.0; WEIGHTS.len()];
    let mut order: Vec<usize> = (0..WEIGHTS.len()).collect();
    order.sort_by(|one, other| (asked[*one] / share(*one)).total_cmp(&(asked[*other] / share(*other))));
    let mut shares = 1.0;
    for team in order {
        parts[team] = asked[team].min(cards * share(team) / shares);
        cards -= parts[team];
        shares -= share(team);
    }
    parts
}

/// What each team used until then, relative to its part by weight of all that was used, among the teams that had pods running or waiting
/// at the time.
fn by_part(until: f64, jobs: &[Job], fates: &[Fate]) -> [f64; WEIGHTS.len()] {
    // Time, team, and change of the cards in use and asked for.
    let mut changes: Vec<(f64, usize, f64, f64)> = Vec::new();
    for (job, fate) in jobs.iter().zip(fates) {
        let cards = job.cards as f64;
        changes.push((job.arrives, job.team, 0.0, cards));
        changes.extend(fate.run.iter().map(|run| (run.end, job.team, 0.0, -cards)));
        for run in fate.runs() {
            changes.extend([(run.start, job.team, cards, 0.0), (run.end, job.team, -cards, 0.0)]);
        }
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let zero = [0.0; WEIGHTS.len()];
    let (mut now, mut using, mut asked, mut used, mut due) = (0.0, zero, zero, zero, zero);
    for (at, team, more, wanted) in changes.into_iter().chain([(until, 0, 0.0, 0.0)]) {
        let seconds = (at.min(until) - now).max(0.0);
        let parts = parts(using.iter().sum(), &asked);
        for team in 0..WEIGHTS.len() {
            used[team] += using[team] * seconds;
            due[team] += parts[team] * seconds;
        }
        now = at.max(now);
        using[team] += more;
        asked[team] += wanted;
    }
    std::array::from_fn(|team| if due[team] > 0.0 { used[team] / due[team] } else { 1.0 })
}

/// Jain's index of these, from a tenth to 1; and by how much the team furthest from its part is off, in percent of it.
fn fairness(by_part: &[f64; WEIGHTS.len()]) -> (f64, f64) {
    let sum: f64 = by_part.iter().sum();
    let squares: f64 = by_part.iter().map(|one| one * one).sum();
    let off = by_part.iter().map(|one| (one - 1.0).abs() * 100.0).fold(0.0, f64::max);
    (sum * sum / (squares * WEIGHTS.len() as f64), off)
}

/// Of the cards' time until then, in percent: free; and free while a job of one card waits, which fits on any of them.
fn idle(until: f64, cards: usize, jobs: &[Job], fates: &[Fate]) -> (f64, f64) {
    let mut changes: Vec<(f64, i64, i64)> = Vec::new();
    for (job, fate) in jobs.iter().zip(fates) {
        let mut since = job.arrives;
        for run in fate.runs() {
            let (cards, one) = (job.cards as i64, i64::from(job.cards == 1));
            changes.extend([(since, 0, one), (run.start, -cards, -one), (run.end, cards, 0)]);
            since = run.end;
        }
        if fate.run.is_none() {
            changes.push((since, 0, i64::from(job.cards == 1)));
        }
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut now, mut free, mut waits) = (0.0, cards as i64, 0);
    let mut sums = (0.0, 0.0);
    for (at, more, waiting) in changes.into_iter().chain([(until, 0, 0)]) {
        let seconds = (at.min(until) - now).max(0.0);
        sums.0 += free as f64 * seconds;
        sums.1 += if waits > 0 { free as f64 * seconds } else { 0.0 };
        (now, free, waits) = (at.max(now), free + more, waits + waiting);
    }
    let all = cards as f64 * until / 100.0;
    (sums.0 / all, sums.1 / all)
}

/// Median and 95th percentile of the waits in hours.
fn waits(jobs: &[Job], fates: &[Fate], is_of: impl Fn(&Job) -> bool) -> String {
    let of = jobs.iter().zip(fates).filter(|(job, _)| is_of(job));
    let mut waits: Vec<f64> = of.map(|(_, fate)| fate.waited / HOUR).collect();
    waits.sort_by(f64::total_cmp);
    let at = |percent: usize| waits.get((waits.len() * percent).div_ceil(100).max(1) - 1).copied();
    format!("{:.1}; {:.1}", at(50).unwrap_or(0.0), at(95).unwrap_or(0.0))
}

fn main() {
    let argument = |place: usize| std::env::args().nth(place).expect("DAYS NODES LOAD SEED [steady]");
    let (days, nodes): (usize, usize) = (argument(1).parse().unwrap(), argument(2).parse().unwrap());
    let (load, seed): (f64, u64) = (argument(3).parse().unwrap(), argument(4).parse().unwrap());
    let cards = nodes * CARDS;
    let is_steady = std::env::args().nth(5).is_some_and(|text| text == "steady");
    let jobs = jobs(days, cards, load, seed, if is_steady { Demand::Steady } else { Demand::Bursts });
    let fleet = Fleet::new(&[format!("{nodes}xdgx-h100").parse().unwrap()]).unwrap();
    let list = list(&jobs);
    let policies =
        [("first come first served", None), ("quotas, 0 s", Some(0)), ("quotas, 3,600 s", Some(3600))];
    let month = days as f64 * DAY;
    let play = |name: &str, min_runtime: Option<u32>| {
        let quotas = min_runtime.map(|seconds| quotas(cards, seconds)).unwrap_or_default();
        let mut workload = Workload::of_list(&list, &fleet);
        workload.quotas = quotas;
        let demands = Demands::of(&fleet, &workload);
        let at = Some(Duration::ZERO);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at, wishes: &[] };
        let mut told = 0;
        let progress = |arrived: usize| {
            let day = workload.pods[..arrived].last().map_or(0, |pod| pod.at.as_secs() / 86_400);
            if day > told {
                told = day;
                eprintln!("load {load}, {name}: day {day} of {days}");
            }
        };
        let report = run.run_until(Duration::from_secs_f64(month), PolicyName::Tessera, seed, progress);
        fates(month, &jobs, &workload, &report)
    };
    let played: Vec<(&str, Vec<Fate>)> = thread::scope(|scope| {
        let runs = policies.map(|(name, min_runtime)| (name, scope.spawn(move || play(name, min_runtime))));
        let mut played: Vec<(&str, Vec<Fate>)> =
            runs.into_iter().map(|(name, run)| (name, run.join().expect("a run"))).collect();
        played.insert(1, ("KAI's rule", kai::play(month, &jobs, nodes)));
        played
    });
    println!(
        "{} jobs on {cards} cards in {days} days, {:.0} % of what they can do; seed {seed}\n",
        jobs.len(),
        load * 100.0
    );
    let after: Vec<usize> = [1, 7].into_iter().filter(|day| *day < days).chain([days]).collect();
    let joined = |texts: Vec<String>| texts.join(", ");
    println!(
        "| | Jain's index after {} days | furthest off | free | free while one card is wanted | evicted | run in vain |",
        joined(after.iter().map(usize::to_string).collect())
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, fates) in &played {
        let fairness: Vec<(f64, f64)> =
            after.iter().map(|day| fairness(&by_part(*day as f64 * DAY, &jobs, fates))).collect();
        let (free, wanted) = idle(month, cards, &jobs, fates);
        let evicted: usize = fates.iter().map(|fate| fate.lost.len()).sum();
        let lost = |(job, fate): (&Job, &Fate)| {
            fate.lost
                .iter()
                .map(|run| (run.end - run.start) * job.cards as f64)
                .fold(0.0, |sum, one| sum + one)
        };
        // The sum of nothing would be -0.
        let lost = jobs.iter().zip(fates).map(lost).fold(0.0, |sum, one| sum + one);
        println!(
            "| {name} | {} | {} % | {free:.1} % | {wanted:.1} % | {evicted} | {:.1} % |",
            joined(fairness.iter().map(|(index, _)| format!("{index:.3}")).collect()),
            joined(fairness.iter().map(|(_, off)| format!("{off:.0}")).collect()),
            lost / (cards as f64 * month) * 100.0
        );
    }
    println!(
        "\n| hours waited, median; 95 % | one pod | 8 and 16 cards | 24 and 32 | 48 and 64 | weight 1 | weight 2 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, fates) in &played {
        let of = |sizes: Range<usize>| waits(&jobs, fates, |job| sizes.contains(&job.cards));
        let of_weight = |weight: u32| waits(&jobs, fates, |job| WEIGHTS[job.team] == weight);
        let all = [of(0..8), of(8..17), of(17..33), of(33..65), of_weight(1), of_weight(2)];
        println!("| {name} | {} |", all.join(" | "));
    }
}
