//! Death at every effect on the disk, and every effect failing: the next start converges, and what was asked for works.

use std::io::ErrorKind;

use crate::crash_matrix::{self, Before};
use crate::support::{Fault, Moment, Node, claim, prepare};

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

impl crash_matrix::Scenario for Scenario {
    /// A neighbour's claim holds the third card throughout, except over a reboot.
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
                // Between intent and completion.
                let (preparer, disk) = node.start_on(None).await;
                let preparer = preparer.unwrap();
                disk.set(Some(Fault::Die(6, Moment::After)));
                prepare(&preparer, &mine).await.unwrap_err();
                assert!(node.record_path(&mine).exists());
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
        // Two directories are made at each start; more must have happened.
        if matches!(self, Self::Prepare) { 10 } else { 2 }
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
