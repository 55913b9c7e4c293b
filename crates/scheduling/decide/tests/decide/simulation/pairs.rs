//! Every pair of faults at every pair of the controller's writes, the second fault at the same write or a later one, in an
//! otherwise deterministic scene.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::api_server::{Server, Surroundings};
use super::bug::Bug;
use super::faults::{Fault, Plan};
use super::play::{self, Ended};
use super::scene::Scene;

fn run(scene: Scene, faults: &[(usize, Fault)], bug: Option<Bug>, with_log: bool) -> Ended {
    let mut around = Surroundings::new(0, Some(Plan::of(faults)), bug, with_log);
    let mut server = Server::default();
    let stage = scene.begin(&mut around, &mut server);
    play::until_quiet(around, server, stage)
}

/// A run, by its scene and faults.
type Case = (Scene, Vec<(usize, Fault)>);

/// Plays all cases on all processors and calls `ended` with each result; `false` ends the search.
fn play_all(cases: &[Case], bug: Option<Bug>, ended: impl Fn(&Case, Ended) -> bool + Sync) -> usize {
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

/// Plays all scenes with no fault, one, and two. Returns the number of runs and the first bad end.
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
        runs += play_all(&cases, bug, judge);
        if let Some(found) = found.lock().expect("no thread panics with it").take() {
            return (runs, Some(found));
        }
        // Repeats each of these with one more fault, at the write of the last fault or a later one.
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
