//! Death at every write to disk, and every write failing: the next start converges, and the request succeeds.

use std::io::ErrorKind;

use crate::crash_matrix::{self, Before};
use crate::support::{Fault, Moment, Node, claim, prepare, unprepare};

/// The interrupted operation.
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

impl crash_matrix::Scenario for Scenario {
    /// Another claim holds the third card throughout, except across a reboot.
    async fn before(self) -> Before {
        let node = Node::new(3);
        let (mine, neighbour) = (claim("mine"), claim("neighbour"));
        node.api.allocate(&mine, &[("gpus", "gpu-01-00"), ("gpus", "gpu-02-00")]);
        node.api.allocate(&neighbour, &[("gpus", "gpu-03-00")]);
        let preparer = node.start().await;
        prepare(&preparer, &neighbour).await.unwrap();
        match self {
            Self::Prepare => {}
            Self::Unprepare | Self::PrepareAgain => {
                prepare(&preparer, &mine).await.unwrap();
            }
            Self::MoveToOtherCard => {
                prepare(&preparer, &mine).await.unwrap();
                node.api.allocate(&mine, &[("gpus", "gpu-02-00")]);
            }
            Self::FirstStartAfterReboot => {
                prepare(&preparer, &mine).await.unwrap();
                drop(preparer);
                node.boot("boot-2");
            }
            Self::StartAfterDeath => {
                drop(preparer);
                // Interrupted between CDI spec and record. Earlier steps are the file of its metadata and the metadata's spec; each is
                // written under another name first.
                let (preparer, disk) = node.start_on(None).await;
                let preparer = preparer.unwrap();
                disk.set(Some(Fault::Die(6, Moment::After)));
                prepare(&preparer, &mine).await.unwrap_err();
                assert!(node.spec_path(&mine).exists() && !node.record_path(&mine).exists());
            }
        }
        Before { node, mine, neighbour }
    }

    fn is_end(self) -> bool {
        matches!(self, Self::Unprepare)
    }

    fn has_neighbour(self) -> bool {
        !matches!(self, Self::FirstStartAfterReboot)
    }

    fn least_steps(self) -> usize {
        // Each start makes two directories; more must have happened.
        if matches!(self, Self::Prepare) { 6 } else { 2 }
    }

    async fn after_power_loss(self, _: &Before) -> Self {
        Self::FirstStartAfterReboot
    }
}

#[tokio::test]
async fn death_at_every_effect() {
    crash_matrix::death_at_every_step(&SCENARIOS).await;
}

#[tokio::test]
async fn every_effect_failing_once() {
    let errors = [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied];
    crash_matrix::every_step_failing_once(&SCENARIOS, &errors).await;
}

#[tokio::test]
async fn power_lost_at_every_effect() {
    crash_matrix::power_lost_at_every_step(&SCENARIOS).await;
}

#[tokio::test]
async fn an_intent_is_synced_before_a_card_is_touched() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00-mig-1g10gb-0")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    for number in 1.. {
        let before = disk.syncs();
        disk.set(Some(Fault::Die(number, Moment::After)));
        let _ = prepare(&preparer, &claim).await;
        let synced = disk.syncs();
        disk.set(None);
        if node.cards.mode(0) == Some(true) {
            // The mode switch and the partition, in one directory.
            assert_eq!((synced.0 - before.0, synced.1 - before.1), (2, 1));
            assert_eq!(node.record(&claim)["stage"], "intent");
            break;
        }
    }
}

/// The record of an unchanged card means nothing to another boot, so needs no sync.
#[tokio::test]
async fn a_whole_card_waits_for_no_disk() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    prepare(&preparer, &claim).await.unwrap();
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(disk.syncs(), (0, 0));
}
