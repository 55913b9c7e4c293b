//! Partitions: death at and between all steps of making and destroying them, every step failing, every driver call
//! failing, hanging calls. Afterwards journal, cards, CDI specs and claims agree, and nothing of the administrator's
//! was touched.

use std::io::ErrorKind;
use std::time::Duration;

use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::prepare::{PrepareError, Preparer};

use crate::crash_matrix::{self, Before};
use crate::support::{Behaviour, Fault, Moment, Node, claim, prepare, unprepare};

/// The interrupted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Three partitions on two cards, both not in MIG mode.
    Make,
    /// The same beside a partition of another claim.
    MakeBeside,
    /// Destroying them, and restoring the cards' mode.
    Destroy,
    /// Destroying them while another claim has a partition on one of the cards.
    DestroyBeside,
    /// A claim meanwhile allocated other partitions.
    Move,
    /// A claim for a whole card put into MIG mode by its administrator.
    Whole,
    /// Unpreparing the whole card's claim.
    WholeEnds,
    /// The first start after a reboot.
    AfterReboot,
    /// A start after an earlier death.
    AfterDeath,
}

const SCENARIOS: [Scenario; 9] = [
    Scenario::Make,
    Scenario::MakeBeside,
    Scenario::Destroy,
    Scenario::DestroyBeside,
    Scenario::Move,
    Scenario::Whole,
    Scenario::WholeEnds,
    Scenario::AfterReboot,
    Scenario::AfterDeath,
];

const MINE: [&str; 3] = ["gpu-01-00-mig-1g10gb-6", "gpu-01-00-mig-3g40gb-0", "gpu-02-00-mig-2g20gb-4"];

fn allocate(node: &Node, claim: &ClaimReference, devices: &[&str]) {
    let results: Vec<_> = devices.iter().map(|device| ("gpus", *device)).collect();
    node.api.allocate(claim, &results);
}

fn administer(node: &Node) {
    for card in [2, 3] {
        node.cards.admin_mode(card, true);
    }
    node.cards.admin_instance((2, 9, 0), true);
    node.cards.admin_instance((2, 19, 4), false);
}

impl crash_matrix::Scenario for Scenario {
    /// A node before the operation. The third card is in MIG mode, with an instance of the administrator's and a GPU
    /// instance left without compute instance; the fourth is empty.
    async fn before(self) -> Before {
        let node = Node::new(4);
        administer(&node);
        let (mine, neighbour) = (claim("mine"), claim("neighbour"));
        let beside = matches!(self, Self::MakeBeside | Self::DestroyBeside);
        allocate(&node, &mine, &MINE);
        allocate(
            &node,
            &neighbour,
            if beside { &["gpu-02-00-mig-1g10gb-0"] } else { &["gpu-03-00-mig-1g10gb-6"] },
        );
        let preparer = node.start().await;
        prepare(&preparer, &neighbour).await.unwrap();
        match self {
            Self::Make | Self::MakeBeside => {}
            Self::Destroy | Self::DestroyBeside => {
                prepare(&preparer, &mine).await.unwrap();
            }
            Self::Move => {
                prepare(&preparer, &mine).await.unwrap();
                allocate(&node, &mine, &["gpu-01-00-mig-3g40gb-0", "gpu-02-00-mig-7g80gb-0"]);
            }
            Self::Whole | Self::WholeEnds => {
                allocate(&node, &mine, &["gpu-04-00"]);
                if self == Self::WholeEnds {
                    prepare(&preparer, &mine).await.unwrap();
                }
            }
            Self::AfterReboot => {
                prepare(&preparer, &mine).await.unwrap();
                drop(preparer);
                node.boot("boot-2");
                administer(&node);
            }
            Self::AfterDeath => {
                drop(preparer);
                let (preparer, disk) = node.start_on(None).await;
                let preparer = preparer.unwrap();
                disk.set(Some(Fault::Die(22, Moment::After)));
                prepare(&preparer, &mine).await.unwrap_err();
                assert!(node.record_path(&mine).exists() && !node.cards.instances().1.is_empty());
            }
        }
        Before { node, mine, neighbour }
    }

    fn is_end(self) -> bool {
        matches!(self, Self::Destroy | Self::DestroyBeside | Self::WholeEnds)
    }

    fn has_neighbour(self) -> bool {
        self != Self::AfterReboot
    }

    fn least_steps(self) -> usize {
        match self {
            Self::Make => 30,
            Self::Destroy => 20,
            _ => 6,
        }
    }

    fn is_untouched(node: &Node) {
        assert_eq!(node.cards.instances().0, [(2, 9, 0), (2, 19, 4)]);
    }

    async fn after_power_loss(self, before: &Before) -> Self {
        administer(&before.node);
        Self::AfterReboot
    }
}

#[tokio::test]
async fn death_at_every_step() {
    crash_matrix::death_at_every_step(&SCENARIOS).await;
}

#[tokio::test]
async fn every_step_failing_once() {
    crash_matrix::every_step_failing_once(&SCENARIOS, &[ErrorKind::StorageFull]).await;
}

#[tokio::test]
async fn every_call_of_the_driver_failing_once() {
    // The codes mean: unknown, lost, in use, no resources.
    let faults = [(999, false), (15, false), (19, false), (23, false), (999, true), (15, true)];
    crash_matrix::every_call_of_the_driver_failing_once(&SCENARIOS, &faults).await;
}

#[tokio::test]
async fn power_lost_at_every_step() {
    crash_matrix::power_lost_at_every_step(&SCENARIOS).await;
}

#[tokio::test]
async fn a_call_that_hangs_is_answered_and_its_work_goes_on() {
    for (function, is_end) in [
        ("nvmlDeviceCreateGpuInstanceWithPlacement", false),
        ("nvmlDeviceSetMigMode", false),
        ("nvmlGpuInstanceDestroy", true),
    ] {
        let mut node = Node::new(2);
        node.answer_at_the_latest = Duration::from_millis(700);
        let (mine, other) = (claim("mine"), claim("other"));
        allocate(&node, &mine, &["gpu-01-00-mig-1g10gb-0"]);
        allocate(&node, &other, &["gpu-02-00"]);
        let preparer = node.start().await;
        if is_end {
            prepare(&preparer, &mine).await.unwrap();
        }
        node.cards.slow_function(function, Duration::from_millis(4000));
        let work = async |preparer: &Preparer| {
            if is_end { unprepare(preparer, &mine).await } else { prepare(preparer, &mine).await.map(drop) }
        };
        let error = work(&preparer).await.unwrap_err();
        assert!(matches!(error, PrepareError::Unanswered { .. }), "{function}: {error}");
        // Other claims don't wait for the failed one.
        prepare(&preparer, &other).await.unwrap();
        let mut calls = 1;
        while let Err(error) = work(&preparer).await {
            assert!(matches!(error, PrepareError::Unanswered { .. }), "{function}: {error}");
            calls += 1;
        }
        assert!(calls >= 3, "{function}: {calls} calls");
        node.cards.heal();
        assert_eq!(node.settled().len(), 2 - usize::from(is_end));
    }
}

#[tokio::test]
async fn without_the_api_server_partitions_end_and_prepared_ones_are_told_again() {
    let node = Node::new(2);
    let (preparer, mine) = (node.start().await, claim("mine"));
    allocate(&node, &mine, &MINE);
    node.api.behave(Behaviour::Status(503, "away"));
    let error = prepare(&preparer, &mine).await.unwrap_err();
    assert!(matches!(error, PrepareError::Api { .. }), "{error}");
    assert!(node.settled().is_empty());
    node.api.behave(Behaviour::Good);
    let devices = prepare(&preparer, &mine).await.unwrap();
    node.api.behave(Behaviour::Status(503, "away"));
    drop(preparer);
    let preparer = node.start().await;
    assert_eq!(prepare(&preparer, &mine).await.unwrap(), devices);
    assert_eq!(node.settled().len(), 1);
    unprepare(&preparer, &mine).await.unwrap();
    assert!(node.settled().is_empty());
}

/// The plugin died between its intent and the instance. Then the administrator destroyed an earlier instance, and
/// made one at the same placement, with the id of the destroyed one from the driver. The new instance is not ours.
#[tokio::test]
async fn an_instance_by_an_id_that_was_there_before_is_somebody_elses() {
    for number in 1.. {
        let node = Node::new(1);
        node.cards.admin_mode(0, true);
        let theirs = node.cards.admin_instance((0, 19, 0), true);
        let mine = claim("mine");
        allocate(&node, &mine, &["gpu-01-00-mig-1g10gb-6"]);
        let (preparer, disk) = node.start_on(Some(Fault::Die(number, Moment::After))).await;
        if let Ok(preparer) = &preparer {
            let _ = prepare(preparer, &mine).await;
        }
        assert!(disk.is_reached(), "never an intent without its instance");
        let journal = node.record_path(&mine).parent().unwrap().with_file_name("hardware");
        let mut records = crate::support::names(&journal);
        // Ignore files still being written.
        records.retain(|name| !name.starts_with('.'));
        if records.is_empty()
            || node.cards.instances().0 != [(0, 19, 0)]
            || !node.cards.instances().1.is_empty()
        {
            continue;
        }
        let path = journal.join(&records[0]);
        let text = std::fs::read_to_string(&path).unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(find(&record, "present"), Some(&serde_json::json!([theirs])), "{record}");
        node.cards.admin_destroys(0, theirs);
        assert_eq!(node.cards.admin_instance((0, 19, 6), true), theirs);

        let _preparer = node.start().await;
        assert!(crate::support::names(&journal).is_empty());
        assert_eq!(node.cards.instances(), (vec![(0, 19, 6)], vec![]));
        return;
    }
}

/// The value of a key, at any depth.
fn find<'a>(value: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    let object = value.as_object()?;
    object.get(key).or_else(|| object.values().find_map(|value| find(value, key)))
}
