//! Claims of any kind come and go in any order, on nodes with any configuration: by kube-scheduler's rules, never more
//! is given out than exists. All sums are computed here, from the published devices, the claims' results and the
//! hardware's sizes, without the allocator.

mod cluster;
mod limits;
mod scenario;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use cluster::{Cluster, Pod};
use limits::Sums;
use scenario::{Scenario, Step};

/// Counts of what became of a scenario's claims, to show that scenarios are not trivial.
#[derive(Debug, Default)]
pub struct Outcome {
    granted: usize,
    shares: usize,
    refused: usize,
}

fn play(scenario: &Scenario) -> Result<Outcome, TestCaseError> {
    let mut cluster = Cluster::new(&scenario.nodes);
    let mut outcome = Outcome::default();
    let mut live: Vec<Pod> = Vec::new();
    for step in &scenario.steps {
        match step {
            Step::Depart(which) => {
                if !live.is_empty() {
                    let pod = live.swap_remove(which.index(live.len()));
                    cluster.release(&pod);
                }
            }
            Step::Arrive(arrival) => match cluster.allocate(arrival) {
                Some(pod) => {
                    limits::is_what_was_asked(&cluster, arrival, &pod)?;
                    outcome.granted += pod.grants.len();
                    outcome.shares += pod.grants.iter().filter(|grant| grant.share.is_some()).count();
                    live.push(pod);
                }
                None => {
                    outcome.refused += 1;
                    limits::could_not_be_given(&cluster, &live, arrival)?;
                }
            },
        }
        Sums::of(&cluster, &live).check(&cluster)?;
    }
    // After the last claim everything is free again: the first pod would get the same once more.
    for pod in live.drain(..) {
        cluster.release(&pod);
    }
    let first = scenario.steps.iter().find_map(|step| match step {
        Step::Arrive(arrival) => Some(arrival),
        Step::Depart(_) => None,
    });
    if let Some(arrival) = first {
        let given = |cluster: &mut Cluster| cluster.allocate(arrival).map(|pod| pod.devices());
        prop_assert_eq!(given(&mut cluster), given(&mut Cluster::new(&scenario.nodes)));
    }
    Ok(outcome)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_more_is_given_out_than_there_is(scenario in scenario::any()) {
        play(&scenario)?;
    }
}

/// Scenarios are not trivial: many shares are given and refused.
#[test]
fn scenarios_give_and_refuse() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut sum = Outcome::default();
    for _ in 0..24 {
        let scenario = scenario::any().new_tree(&mut runner).unwrap().current();
        let outcome = play(&scenario).unwrap();
        sum.granted += outcome.granted;
        sum.shares += outcome.shares;
        sum.refused += outcome.refused;
    }
    assert!(sum.granted > 200 && sum.shares > 100 && sum.refused > 100, "{sum:?}");
}
