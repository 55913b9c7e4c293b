//! Failures at every step: death before, during and after each effect, each effect failing, each driver call failing,
//! power loss. Every test loops over the number of the step until a run ends before reaching it.

use std::fmt::Debug;
use std::io::ErrorKind;

use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::prepare::{PrepareError, Preparer};

use crate::support::{Fault, Loss, Moment, Node, prepare, unprepare};

/// A node before the operation, with one claim for it and a neighbour's.
pub struct Before {
    pub node: Node,
    pub mine: ClaimReference,
    pub neighbour: ClaimReference,
}

/// An operation to interrupt.
pub trait Scenario: Copy + Debug {
    async fn before(self) -> Before;

    /// Whether the claim is gone afterwards; otherwise the claim is prepared.
    fn is_end(self) -> bool;

    /// Whether the neighbour's claim is prepared throughout.
    fn has_neighbour(self) -> bool;

    /// Minimum number of steps, to check that the loop covers them.
    fn least_steps(self) -> usize;

    /// Checks that the administrator's changes are untouched.
    fn is_untouched(_node: &Node) {}

    /// Checks while both claims are prepared.
    fn check_both(self, _node: &Node) {}

    /// The machine was started again after a power loss. Returns the scenario from there on.
    async fn after_power_loss(self, before: &Before) -> Self;
}

async fn happen<S: Scenario>(scenario: S, preparer: &Preparer, before: &Before) -> Result<(), PrepareError> {
    if scenario.is_end() {
        unprepare(preparer, &before.mine).await
    } else {
        prepare(preparer, &before.mine).await.map(drop)
    }
}

/// Retries like the kubelet. Succeeds without a new start.
async fn retry<S: Scenario>(scenario: S, preparer: &Preparer, before: &Before) {
    happen(scenario, preparer, before).await.unwrap();
    preparer.sweep().await.unwrap();
    preparer.restore_specs().await.unwrap();
    // Fails itself if claims, journal, CDI specs and cards disagree.
    let settled = before.node.settled();
    assert_eq!(settled.contains_key(&before.mine.uid), !scenario.is_end(), "{scenario:?}");
}

/// After any fault: a new start converges, and everything works as if nothing had happened.
async fn check<S: Scenario>(scenario: S, before: &Before) {
    let Before { node, mine, neighbour } = before;
    let preparer = node.start().await;
    preparer.restore_specs().await.unwrap();
    let settled = node.settled();
    assert_eq!(settled.contains_key(&neighbour.uid), scenario.has_neighbour(), "{scenario:?}");
    S::is_untouched(node);

    prepare(&preparer, mine).await.unwrap();
    prepare(&preparer, neighbour).await.unwrap();
    assert_eq!(node.settled().len(), 2);
    scenario.check_both(node);
    unprepare(&preparer, mine).await.unwrap();
    node.settled();
    unprepare(&preparer, neighbour).await.unwrap();
    assert!(node.settled().is_empty());
    assert!(node.cards.instances().1.is_empty());
    S::is_untouched(node);
}

/// Lets the process die at a step; returns whether the step was reached.
async fn dies<S: Scenario>(scenario: S, before: &Before, number: usize, moment: Moment) -> bool {
    let (preparer, disk) = before.node.start_on(Some(Fault::Die(number, moment))).await;
    if let Ok(preparer) = &preparer {
        let _ = happen(scenario, preparer, before).await;
    }
    drop(preparer);
    disk.is_reached()
}

pub async fn death_at_every_step<S: Scenario>(scenarios: &[S]) {
    for scenario in scenarios.iter().copied() {
        for moment in Moment::ALL {
            let mut deaths = 0;
            for number in 1.. {
                let before = scenario.before().await;
                if !dies(scenario, &before, number, moment).await {
                    break;
                }
                deaths += 1;
                check(scenario, &before).await;
            }
            assert!(deaths >= scenario.least_steps(), "{scenario:?} {moment:?}: {deaths} steps");
        }
    }
}

pub async fn every_step_failing_once<S: Scenario>(scenarios: &[S], errors: &[ErrorKind]) {
    for scenario in scenarios.iter().copied() {
        for error in errors.iter().copied() {
            for number in 1.. {
                let before = scenario.before().await;
                let (preparer, disk) = before.node.start_on(Some(Fault::Fail(number, error))).await;
                let Ok(preparer) = preparer else {
                    check(scenario, &before).await;
                    continue;
                };
                let first = happen(scenario, &preparer, &before).await;
                if !disk.is_reached() {
                    first.unwrap();
                    break;
                }
                retry(scenario, &preparer, &before).await;
                drop(preparer);
                check(scenario, &before).await;
            }
        }
    }
}

/// Each call fails once with each of these driver errors. Calls marked `true` take effect anyway.
pub async fn every_call_of_the_driver_failing_once<S: Scenario>(scenarios: &[S], faults: &[(u32, bool)]) {
    for scenario in scenarios.iter().copied() {
        for (code, has_effect) in faults.iter().copied() {
            for number in 1.. {
                let before = scenario.before().await;
                let preparer = before.node.start().await;
                before.node.cards.fail_call(number, code, has_effect);
                let first = happen(scenario, &preparer, &before).await;
                let is_reached = before.node.cards.heal();
                S::is_untouched(&before.node);
                if !is_reached {
                    first.unwrap();
                    break;
                }
                retry(scenario, &preparer, &before).await;
                drop(preparer);
                check(scenario, &before).await;
            }
        }
    }
}

pub async fn power_lost_at_every_step<S: Scenario>(scenarios: &[S]) {
    for scenario in scenarios.iter().copied() {
        for is_by_names in [true, false] {
            for number in 1.. {
                // The replacement of lost content makes no difference to the step.
                let loss = match number % 2 {
                    _ if is_by_names => Loss::Names,
                    0 => Loss::Content,
                    _ => Loss::Zeros,
                };
                let before = scenario.before().await;
                if !dies(scenario, &before, number, Moment::After).await {
                    break;
                }
                before.node.lose_power(loss);
                before.node.boot("boot-after-power-loss");
                let after = scenario.after_power_loss(&before).await;
                check(after, &before).await;
            }
        }
    }
}
