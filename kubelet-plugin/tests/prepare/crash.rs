//! Death at every effect on the disk, and every effect failing: the next start converges, and what was asked for works.

use std::io::ErrorKind;

use tessera_kubelet_plugin::prepare::{ClaimReference, PrepareError, Preparer};

use crate::support::{Fault, Moment, Node, claim, prepare, unprepare};

/// What dies.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Prepare,
    Unprepare,
    PrepareAgain,
    MoveToOtherCard,
    FirstStartAfterReboot,
    StartAfterDeath,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario::Prepare,
    Scenario::Unprepare,
    Scenario::PrepareAgain,
    Scenario::MoveToOtherCard,
    Scenario::FirstStartAfterReboot,
    Scenario::StartAfterDeath,
];

/// A node before the scenario: a neighbour's claim holds the third card throughout, except over a reboot.
async fn before(scenario: Scenario) -> (Node, ClaimReference, ClaimReference) {
    let node = Node::new(3);
    let (mine, neighbour) = (claim("mine"), claim("neighbour"));
    node.api.allocate(&mine, &[("gpus", "gpu-01-00"), ("gpus", "gpu-02-00")]);
    node.api.allocate(&neighbour, &[("gpus", "gpu-03-00")]);
    let preparer = node.start().await;
    prepare(&preparer, &neighbour).await.unwrap();
    match scenario {
        Scenario::Prepare => {}
        Scenario::Unprepare | Scenario::PrepareAgain => {
            prepare(&preparer, &mine).await.unwrap();
        }
        Scenario::MoveToOtherCard => {
            prepare(&preparer, &mine).await.unwrap();
            node.api.allocate(&mine, &[("gpus", "gpu-02-00")]);
        }
        Scenario::FirstStartAfterReboot => {
            prepare(&preparer, &mine).await.unwrap();
            drop(preparer);
            node.boot("boot-2");
        }
        Scenario::StartAfterDeath => {
            drop(preparer);
            // Between intent and completion.
            let (preparer, disk) = node.start_on(None).await;
            let preparer = preparer.unwrap();
            disk.set(Some(Fault::Die(6, Moment::After)));
            prepare(&preparer, &mine).await.unwrap_err();
            assert!(node.record_path(&mine).exists());
        }
    }
    (node, mine, neighbour)
}

/// The scenario itself, which a fault may break off anywhere.
async fn happen(scenario: Scenario, preparer: &Preparer, mine: &ClaimReference) -> Result<(), PrepareError> {
    match scenario {
        Scenario::Unprepare => unprepare(preparer, mine).await,
        _ => prepare(preparer, mine).await.map(drop),
    }
}

/// After any fault: a new start converges, and all goes on as if nothing had been.
async fn check(node: &Node, scenario: Scenario, mine: &ClaimReference, neighbour: &ClaimReference) {
    let preparer = node.start().await;
    preparer.restore_specs().await.unwrap();
    let settled = node.settled();
    let after_reboot = matches!(scenario, Scenario::FirstStartAfterReboot);
    assert_eq!(settled.contains_key(&neighbour.uid), !after_reboot);
    assert!(settled.len() <= 2);

    prepare(&preparer, mine).await.unwrap();
    prepare(&preparer, neighbour).await.unwrap();
    assert_eq!(node.settled().len(), 2);
    unprepare(&preparer, mine).await.unwrap();
    unprepare(&preparer, neighbour).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn death_at_every_effect() {
    for scenario in SCENARIOS {
        for moment in Moment::ALL {
            let mut deaths = 0;
            for number in 1.. {
                let (node, mine, neighbour) = before(scenario).await;
                let (preparer, disk) = node.start_on(Some(Fault::Die(number, moment))).await;
                if let Ok(preparer) = &preparer {
                    let _ = happen(scenario, preparer, &mine).await;
                }
                drop(preparer);
                if !disk.is_reached() {
                    break;
                }
                deaths += 1;
                check(&node, scenario, &mine, &neighbour).await;
            }
            // Two directories are made at each start; more must have happened.
            assert!(deaths >= 2, "{scenario:?} {moment:?}");
            if matches!(scenario, Scenario::Prepare) {
                assert!(deaths >= 10, "{scenario:?} {moment:?}: {deaths} effects");
            }
        }
    }
}

#[tokio::test]
async fn every_effect_failing_once() {
    for scenario in SCENARIOS {
        for error in [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied] {
            for number in 1.. {
                let (node, mine, neighbour) = before(scenario).await;
                let (preparer, disk) = node.start_on(Some(Fault::Fail(number, error))).await;
                let Ok(preparer) = preparer else {
                    check(&node, scenario, &mine, &neighbour).await;
                    continue;
                };
                let first = happen(scenario, &preparer, &mine).await;
                if !disk.is_reached() {
                    first.unwrap();
                    break;
                }
                // The process lives: a retry, as the kubelet's, must succeed without a start.
                happen(scenario, &preparer, &mine).await.unwrap();
                preparer.sweep().await.unwrap();
                preparer.restore_specs().await.unwrap();
                let settled = node.settled();
                let is_unprepare = matches!(scenario, Scenario::Unprepare);
                assert_eq!(settled.contains_key(&mine.uid), !is_unprepare, "{scenario:?} {number}");
                drop(preparer);
                check(&node, scenario, &mine, &neighbour).await;
            }
        }
    }
}

#[tokio::test]
async fn power_lost_at_every_effect() {
    for scenario in SCENARIOS {
        for number in 1.. {
            let (node, mine, neighbour) = before(scenario).await;
            let (preparer, disk) = node.start_on(Some(Fault::Die(number, Moment::After))).await;
            if let Ok(preparer) = &preparer {
                let _ = happen(scenario, preparer, &mine).await;
            }
            drop(preparer);
            if !disk.is_reached() {
                break;
            }
            disk.lose_power();
            node.boot("boot-after-power-loss");
            check(&node, Scenario::FirstStartAfterReboot, &mine, &neighbour).await;
        }
    }
}

#[tokio::test]
async fn an_intent_is_synced_before_anything_is_touched() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    // At the moment the first CDI file is created, the intent's file and directory are synced.
    for number in 1.. {
        let before = disk.syncs();
        disk.set(Some(Fault::Die(number, Moment::Before)));
        let _ = prepare(&preparer, &claim).await;
        let wrote_spec = node.path().join("cdi").exists();
        let synced = disk.syncs();
        disk.set(None);
        if wrote_spec {
            assert_eq!((synced.0 - before.0, synced.1 - before.1), (1, 1));
            let record = node.record(&claim);
            assert_eq!(record["stage"], "intent");
            break;
        }
    }
}
