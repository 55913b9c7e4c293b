//! Every pair of faults, at every pair of the controller's writes: at the first write and at each that is left after that, in a
//! scene that is otherwise always the same.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tessera_decide::Time;

use super::api_server::{Server, Surroundings};
use super::bug::Bug;
use super::faults::{Fault, Plan};
use super::replica::{Lease, Replica};
use super::scene::Scene;
use super::scheduler::Scheduler;
use super::{checks, kubernetes};

/// When the processes start: what is managed has been so for long. Nor does the first of them fence what comes late, when the
/// scene begins.
const BEGIN: Time = Time::from_secs(60);
/// Virtual time between two looks at everything.
const STEP: Time = Time::from_millis(200);
/// The same while nothing changes.
const LONG_STEP: Time = Time::from_secs(1);
/// So long after the last change it counts as idle.
const IDLE: Time = Time::from_secs(3);
/// So long nothing may change any more: longer than anything waits that does not say so.
const QUIET: Time = Time::from_secs(40);
/// By then everything must be quiet: refusals count for five minutes.
const LATEST: Time = Time::from_secs(700);

/// What a run says.
struct Ended {
    violation: Option<String>,
    /// Writes of all replicas.
    writes: usize,
    log: Vec<String>,
}

fn run(scene: Scene, faults: &[(usize, Fault)], bug: Option<Bug>, with_log: bool) -> Ended {
    let plan = Plan { faults: faults.to_vec(), writes: 0 };
    let mut around = Surroundings::new(0, Some(plan), bug, with_log);
    let mut server = Server::default();
    let mut stage = scene.begin(&mut around, &mut server);
    around.now = BEGIN;
    let mut scheduler = Scheduler::new(&mut around, &mut server);
    let mut lease = Lease::default();
    let mut replicas = [0, 1].map(|number| Replica::new(&mut around, &mut server, number));
    let mut seen = 0;
    let mut changed = (around.now, server.version);
    // The last change, whoever is away.
    let mut active = around.now;
    while around.violation.is_none() {
        let is_idle = around.now > active + IDLE;
        around.now += if is_idle { LONG_STEP } else { STEP };
        stage.step(&mut around, &mut server, &mut scheduler, &replicas);
        kubernetes::step(&mut around, &mut server, &mut seen);
        scheduler.step(&mut around, &mut server);
        for replica in &mut replicas {
            replica.step(&mut around, &mut server, &mut lease);
        }
        checks::gangs::look(&mut around, &server);
        let will_go_on = |replica: &Replica| replica.is_busy() || replica.will_wake(&around);
        if changed.1 != server.version {
            active = around.now;
        }
        if changed.1 != server.version || !stage.is_over() || replicas.iter().any(will_go_on) {
            changed = (around.now, server.version);
        }
        if around.now > changed.0 + QUIET {
            // What follows from the last change is told at once.
            checks::end(&mut around, &server, &mut replicas, changed.0 + IDLE);
            break;
        }
        if around.now > LATEST {
            around.violated(|| "it does not become quiet".to_owned());
        }
    }
    let writes = around.plan.map_or(0, |plan| plan.writes);
    Ended { violation: around.violation, writes, log: around.log.unwrap_or_default() }
}

/// A run, by the faults in it.
type Case = (Scene, Vec<(usize, Fault)>);

/// Plays all cases through, on all processors, and calls `ended` with each; `false` is enough.
fn play(cases: &[Case], bug: Option<Bug>, ended: impl Fn(&Case, Ended) -> bool + Sync) -> usize {
    let next = AtomicUsize::new(0);
    let is_enough = AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_enough.load(Ordering::Relaxed)
                    && let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if !ended(case, run(case.0, &case.1, bug, false)) {
                        is_enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    next.into_inner().min(cases.len())
}

/// All scenes with no fault, one, and two: the number of runs, and the first that ended badly.
fn enumerate(bug: Option<Bug>) -> (usize, Option<(Case, String)>) {
    let found = Mutex::new(None);
    let singles = Mutex::new(Vec::new());
    let judge = |case: &Case, ended: Ended| {
        let is_good = ended.violation.is_none();
        if let Some(violation) = ended.violation {
            *found.lock().expect("no thread panics with it") = Some((case.clone(), violation));
        } else if case.1.len() < 2 {
            singles.lock().expect("no thread panics with it").push((case.clone(), ended.writes));
        }
        is_good
    };
    let mut runs = 0;
    let mut cases: Vec<Case> = Scene::ALL.map(|scene| (scene, Vec::new())).into();
    for kinds in [&Fault::ALL[..], &Fault::PAIRED[..], &[]] {
        runs += play(&cases, bug, judge);
        if let Some(found) = found.lock().expect("no thread panics with it").take() {
            return (runs, Some(found));
        }
        // Each of these once more, with one more fault: at the write of the last, or at any after that.
        cases.clear();
        let mut played = std::mem::take(&mut *singles.lock().expect("no thread panics with it"));
        played.sort_by_key(|((scene, faults), _)| (*scene as usize, faults.first().map(|first| first.0)));
        for ((scene, faults), writes) in played {
            if faults.iter().any(|(_, fault)| !Fault::PAIRED.contains(fault)) {
                continue;
            }
            let first = faults.first().map_or(1, |first| first.0);
            for (number, kind) in
                (first..=writes).flat_map(|number| kinds.iter().map(move |kind| (number, *kind)))
            {
                cases.push((scene, faults.iter().copied().chain([(number, kind)]).collect()));
            }
        }
    }
    (runs, None)
}

#[test]
fn every_pair_of_faults_ends_well() {
    let begun = std::time::Instant::now();
    let (runs, found) = enumerate(None);
    println!("{runs} runs in {:.0?}", begun.elapsed());
    if let Some(((scene, faults), violation)) = found {
        let log = run(scene, &faults, None, true).log.join("\n");
        panic!("{log}\n{scene:?} with {faults:?}: {violation}");
    }
}

#[test]
fn the_pairs_find_planted_bugs() {
    let mut missed = Vec::new();
    let only = std::env::var("SIMULATION_BUG").unwrap_or_default();
    for bug in Bug::OF_PAIRS.into_iter().filter(|bug| format!("{bug:?}").contains(&only)) {
        match enumerate(Some(bug)) {
            (runs, Some(((scene, faults), violation))) => {
                println!("{bug:?}: {scene:?} with {faults:?}, run {runs}: {violation}");
            }
            (_, None) => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
