//! A whole cluster in virtual time: an API server that delays, loses and refuses, kube-scheduler, users, and replicas of the
//! controller that crash and pause. One seed is one run.
//!
//! Planted mistakes prove that the checks can fail: each [`Bug`] must be found.

mod api_server;
mod bug;
mod cases;
mod checks;
mod faults;
mod idle;
mod jobs;
mod kubernetes;
mod oracle;
mod pairs;
mod play;
mod quotas;
mod replica;
mod scene;
mod scheduler;
mod surroundings;
mod users;

use tessera_cluster::Kind;
use tessera_decide::{ReclaimTo, Time};

use api_server::{Server, Surroundings};
use bug::Bug;
use jobs::Jobs;
use quotas::{NAMESPACES, QuotaAdmins};
use replica::{Lease, Replica};
use scheduler::Scheduler;
use users::Users;

/// Virtual time per step.
const STEP: Time = Time::from_millis(200);
/// Step once nothing fails any more.
const LONG_STEP: Time = Time::from_secs(1);
/// Duration of user actions and faults.
const FAULTS: Time = Time::from_secs(100);
/// Time after the faults until everything must be quiet: refusals count for five minutes, at worst twice in a row. After that,
/// pods of a higher priority may preempt others.
const SETTLE: Time = Time::from_secs(800);
/// Duration of the quiet that must follow.
const QUIET: Time = Time::from_secs(60);
/// A planted bug must be found within this many seeds.
const SEEDS: u64 = 5_000;
/// Bugs found only after many seeds, each with a seed that finds the bug: the search starts there.
const LATE: [(Bug, u64); 13] = [
    (Bug::LimitBeforeChoice, 165),
    (Bug::GuaranteeNotObserved, 343),
    (Bug::GuaranteeOverrun, 119),
    (Bug::LentOnlyNotObserved, 35),
    (Bug::NominationNotObserved, 865),
    (Bug::RefusalNotObserved, 60),
    (Bug::DecidesBeforeTheListIsComplete, 173),
    (Bug::UidNotChecked, 750),
    (Bug::ReservationNotObserved, 272),
    (Bug::DeadlineTakenForShort, 272),
    (Bug::PingPong, 2005),
    (Bug::OwnerNotObserved, 535),
    (Bug::GangNotObserved, 1519),
];

struct Run {
    violation: Option<String>,
    log: Vec<String>,
}

/// What a run has beside the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    Nothing,
    Quotas,
    IdlePods,
}

fn run(seed: u64, extra: Extra, bug: Option<Bug>, with_log: bool) -> Run {
    let mut around = Surroundings::new(seed, None, bug, with_log);
    let mut server = Server::default();
    let mut admins = None;
    if extra == Extra::Quotas {
        around.namespaces = &NAMESPACES;
        if seed % 2 == 1 {
            around.reclaim_to = ReclaimTo::FairShare;
        }
        server = Server::with_kinds(&[Kind::Namespace, Kind::GpuQuota]);
        admins = Some(QuotaAdmins::new(&mut around, &mut server));
    }
    around.has_idle_pods = extra == Extra::IdlePods;
    let mut users = Users::new(&mut around, &mut server);
    let mut jobs = Jobs::default();
    let mut scheduler = Scheduler::new(&mut around, &mut server);
    let mut lease = Lease::default();
    let count = around.rng.usize(1..=2);
    let mut replicas: Vec<Replica> =
        (0..count).map(|number| Replica::new(&mut around, &mut server, number)).collect();
    let mut seen = 0;
    let end = FAULTS + SETTLE + QUIET;
    while around.now < end && around.violation.is_none() {
        around.now += if around.now < FAULTS + QUIET { STEP } else { LONG_STEP };
        if around.is_faulty && around.now >= FAULTS {
            around.is_faulty = false;
            users.end(&mut around, &mut server);
            if around.has_idle_pods {
                idle::end(&mut around, &mut server);
            }
            replicas.iter_mut().for_each(Replica::recover);
        }
        if around.is_faulty {
            users.step(&mut around, &mut server);
            jobs.act(&mut around, &mut server);
            admins.iter_mut().for_each(|admins| admins.step(&mut around, &mut server));
            if around.has_idle_pods {
                idle::step(&mut around, &mut server);
            }
        }
        jobs.step(&mut around, &mut server);
        users.untaint(&mut around, &mut server);
        users.tell_what_is_steered(&mut around, &server);
        kubernetes::step(&mut around, &mut server, &mut seen);
        scheduler.step(&mut around, &mut server);
        for replica in &mut replicas {
            replica.step(&mut around, &mut server, &mut lease);
        }
        checks::gangs::look(&mut around, &server);
    }
    if around.violation.is_none() {
        checks::end(&mut around, &server, &replicas, FAULTS + SETTLE);
    }
    Run { violation: around.violation, log: around.log.unwrap_or_default() }
}

/// First seed; `SIMULATION_FIRST` overrides it.
fn first() -> u64 {
    std::env::var("SIMULATION_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Number of seeds that must pass without a bug; `SIMULATION_SEEDS` overrides it.
fn seeds(usual: u64) -> u64 {
    std::env::var("SIMULATION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn all_end_well(extra: Extra, count: u64) {
    for seed in first()..first() + count {
        if let Some(violation) = run(seed, extra, None, false).violation {
            let log = run(seed, extra, None, true).log.join("\n");
            panic!("{log}\nseed {seed}: {violation}");
        }
    }
}

/// Searches runs for each of these bugs whose name contains `SIMULATION_BUG`, until one says this.
fn all_are_found(bugs: impl IntoIterator<Item = (Bug, &'static str)>, extra: Extra) {
    let mut missed = Vec::new();
    let only = std::env::var("SIMULATION_BUG").unwrap_or_default();
    for (bug, text) in bugs.into_iter().filter(|(bug, _)| format!("{bug:?}").contains(&only)) {
        let late = LATE.into_iter().find_map(|(late, seed)| (late == bug).then_some(seed));
        let first = late.unwrap_or_default().max(first());
        let violation =
            |seed| run(seed, extra, Some(bug), false).violation.filter(|found| found.contains(text));
        match (first..first + SEEDS).find_map(|seed| Some((seed, violation(seed)?))) {
            Some((seed, violation)) => println!("{bug:?}: seed {seed}: {violation}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn every_run_ends_well() {
    all_end_well(Extra::Nothing, seeds(100));
}

#[test]
fn every_run_with_quotas_ends_well() {
    all_end_well(Extra::Quotas, seeds(40));
}

#[test]
fn every_planted_bug_is_found() {
    all_are_found(Bug::ALL.map(|bug| (bug, "")), Extra::Nothing);
}

#[test]
fn every_planted_bug_about_quotas_is_found() {
    all_are_found(Bug::OF_TEAMS, Extra::Quotas);
}

#[test]
fn every_run_with_idle_pods_ends_well() {
    all_end_well(Extra::IdlePods, seeds(40));
}

#[test]
fn every_planted_bug_about_idle_pods_is_found() {
    all_are_found(Bug::OF_IDLE_PODS, Extra::IdlePods);
}
