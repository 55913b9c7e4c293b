//! Partitions: death at every step of making and destroying them and at every boundary between, every step failing, every
//! call of the driver failing, calls that hang. Afterwards journal, cards, CDI specs and claims say the same, and nothing
//! of the administrator's was touched.

use std::io::ErrorKind;
use std::time::Duration;

use tessera_kubelet_plugin::prepare::{ClaimReference, PrepareError, Preparer};

use crate::support::{Behaviour, Fault, Moment, Node, claim, prepare, unprepare};

/// What is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Three partitions on two cards, both not in MIG mode.
    Make,
    /// The same beside a partition of another claim.
    MakeBeside,
    /// Their end, and that of the cards' mode.
    Destroy,
    /// Their end while another claim has a partition on one of the cards.
    DestroyBeside,
    /// A claim that was allocated other partitions meanwhile.
    Move,
    /// A claim for a whole card that its administrator has put into MIG mode.
    Whole,
    /// Its end.
    WholeEnds,
    /// The first start after the machine was started again.
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

/// A node before the scenario. On the third card, which its administrator has put into MIG mode, lies an instance of his,
/// and a GPU instance that he left without compute instance; on the fourth nothing.
async fn before(scenario: Scenario) -> (Node, ClaimReference, ClaimReference) {
    let node = Node::new(4);
    administer(&node);
    let (mine, neighbour) = (claim("mine"), claim("neighbour"));
    let beside = matches!(scenario, Scenario::MakeBeside | Scenario::DestroyBeside);
    allocate(&node, &mine, &MINE);
    allocate(
        &node,
        &neighbour,
        if beside { &["gpu-02-00-mig-1g10gb-0"] } else { &["gpu-03-00-mig-1g10gb-6"] },
    );
    let preparer = node.start().await;
    prepare(&preparer, &neighbour).await.unwrap();
    match scenario {
        Scenario::Make | Scenario::MakeBeside => {}
        Scenario::Destroy | Scenario::DestroyBeside => {
            prepare(&preparer, &mine).await.unwrap();
        }
        Scenario::Move => {
            prepare(&preparer, &mine).await.unwrap();
            allocate(&node, &mine, &["gpu-01-00-mig-3g40gb-0", "gpu-02-00-mig-7g80gb-0"]);
        }
        Scenario::Whole | Scenario::WholeEnds => {
            allocate(&node, &mine, &["gpu-04-00"]);
            if scenario == Scenario::WholeEnds {
                prepare(&preparer, &mine).await.unwrap();
            }
        }
        Scenario::AfterReboot => {
            prepare(&preparer, &mine).await.unwrap();
            drop(preparer);
            node.boot("boot-2");
            administer(&node);
        }
        Scenario::AfterDeath => {
            drop(preparer);
            let (preparer, disk) = node.start_on(None).await;
            let preparer = preparer.unwrap();
            disk.set(Some(Fault::Die(22, Moment::After)));
            prepare(&preparer, &mine).await.unwrap_err();
            assert!(node.record_path(&mine).exists() && !node.cards.instances().1.is_empty());
        }
    }
    (node, mine, neighbour)
}

fn administer(node: &Node) {
    for card in [2, 3] {
        node.cards.admin_mode(card, true);
    }
    node.cards.admin_instance((2, 9, 0), true);
    node.cards.admin_instance((2, 19, 4), false);
}

/// What the administrator has, which nobody may touch.
fn untouched(node: &Node) {
    assert_eq!(node.cards.instances().0, [(2, 9, 0), (2, 19, 4)]);
}

async fn happen(scenario: Scenario, preparer: &Preparer, mine: &ClaimReference) -> Result<(), PrepareError> {
    match scenario {
        Scenario::Destroy | Scenario::DestroyBeside | Scenario::WholeEnds => unprepare(preparer, mine).await,
        _ => prepare(preparer, mine).await.map(drop),
    }
}

/// After any fault: a new start converges, and all goes on as if nothing had been.
async fn check(node: &Node, scenario: Scenario, mine: &ClaimReference, neighbour: &ClaimReference) {
    let preparer = node.start().await;
    preparer.restore_specs().await.unwrap();
    // Fails itself where journal, cards, CDI specs and claims differ.
    let settled = node.settled();
    assert_eq!(settled.contains_key(&neighbour.uid), scenario != Scenario::AfterReboot);
    untouched(node);

    prepare(&preparer, mine).await.unwrap();
    prepare(&preparer, neighbour).await.unwrap();
    assert_eq!(node.settled().len(), 2);
    unprepare(&preparer, mine).await.unwrap();
    unprepare(&preparer, neighbour).await.unwrap();
    assert!(node.settled().is_empty());
    assert!(node.cards.instances().1.is_empty());
    untouched(node);
}

#[tokio::test]
async fn death_at_every_step() {
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
            let least = match scenario {
                Scenario::Make => 30,
                Scenario::Destroy => 20,
                _ => 6,
            };
            assert!(deaths >= least, "{scenario:?} {moment:?}: {deaths} steps");
        }
    }
}

#[tokio::test]
async fn every_step_failing_once() {
    for scenario in SCENARIOS {
        for number in 1.. {
            let (node, mine, neighbour) = before(scenario).await;
            let (preparer, disk) = node.start_on(Some(Fault::Fail(number, ErrorKind::StorageFull))).await;
            let Ok(preparer) = preparer else {
                check(&node, scenario, &mine, &neighbour).await;
                continue;
            };
            let first = happen(scenario, &preparer, &mine).await;
            if !disk.is_reached() {
                first.unwrap();
                break;
            }
            // The process lives: a retry, as the kubelet's, succeeds without a start.
            happen(scenario, &preparer, &mine).await.unwrap();
            preparer.sweep().await.unwrap();
            preparer.restore_specs().await.unwrap();
            let ends = matches!(scenario, Scenario::Destroy | Scenario::DestroyBeside | Scenario::WholeEnds);
            assert_eq!(node.settled().contains_key(&mine.uid), !ends, "{scenario:?} {number}");
            drop(preparer);
            check(&node, scenario, &mine, &neighbour).await;
        }
    }
}

#[tokio::test]
async fn every_call_of_the_driver_failing_once() {
    // Unknown, lost, in use, no resources; the last two had their effect all the same.
    let faults = [(999, false), (15, false), (19, false), (23, false), (999, true), (15, true)];
    for scenario in SCENARIOS {
        for (code, has_effect) in faults {
            for number in 1.. {
                let (node, mine, neighbour) = before(scenario).await;
                let preparer = node.start().await;
                node.cards.fail_call(number, code, has_effect);
                let first = happen(scenario, &preparer, &mine).await;
                let is_reached = node.cards.heal();
                untouched(&node);
                if !is_reached {
                    first.unwrap();
                    break;
                }
                happen(scenario, &preparer, &mine).await.unwrap();
                preparer.sweep().await.unwrap();
                preparer.restore_specs().await.unwrap();
                node.settled();
                drop(preparer);
                check(&node, scenario, &mine, &neighbour).await;
            }
        }
    }
}

#[tokio::test]
async fn power_lost_at_every_step() {
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
            administer(&node);
            check(&node, Scenario::AfterReboot, &mine, &neighbour).await;
        }
    }
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
        // Nothing else waits for it.
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

/// The plugin died between its intent and the instance. Then the administrator destroyed what was there before, and made an
/// instance of his own at the very place, to which the driver gave the id that his old one had: it is not ours.
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
        let records = crate::support::names(&journal);
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
        let again = node.cards.admin_instance((0, 19, 6), true);
        let text =
            text.replace(&format!("\"present\":[{theirs}]"), &format!("\"present\":[{theirs},{again}]"));
        std::fs::write(&path, text).unwrap();

        let _preparer = node.start().await;
        assert!(crate::support::names(&journal).is_empty());
        assert_eq!(node.cards.instances(), (vec![(0, 19, 6)], vec![]));
        return;
    }
}

/// The value of a key, wherever it is.
fn find<'a>(value: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    let object = value.as_object()?;
    object.get(key).or_else(|| object.values().find_map(|value| find(value, key)))
}
