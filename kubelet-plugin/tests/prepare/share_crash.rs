//! Shares: death at every step of making and ending them, every step failing, every call of the driver failing, power lost
//! at every step. Shares of unrelated claims by MPS, of a partition too, and by time; and devices that one claim holds and
//! its pods share. Afterwards journal, daemons, compute modes, time-slices, partitions and claims say the same.

use std::io::ErrorKind;
use std::sync::Arc;

use serde_json::{Value, json};
use tessera_api::NodeConfig;
use tessera_kubelet_plugin::prepare::{ClaimReference, PrepareError, Preparer};
use tessera_nvml::ComputeMode;

use crate::support::{Fault, Moment, Node, claim, prepare, real_uuid, result, unprepare};

/// What is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// The first shares of three devices.
    FirstShares,
    /// Further ones.
    NextShares,
    /// The end of some of them.
    SharesLeave,
    /// The end of the last of them.
    LastSharesLeave,
    /// A claim's own cards and partition, shared by its pods.
    Own,
    /// Their end.
    OwnEnds,
    /// A claim that has one of the cards whole, with other limits, after one whose daemon nobody ended.
    OwnAfterDeath,
    /// A claim that was allocated other cards meanwhile.
    OwnMoves,
    /// The first start after the machine was started again.
    AfterReboot,
}

const SCENARIOS: [Scenario; 9] = [
    Scenario::FirstShares,
    Scenario::NextShares,
    Scenario::SharesLeave,
    Scenario::LastSharesLeave,
    Scenario::Own,
    Scenario::OwnEnds,
    Scenario::OwnAfterDeath,
    Scenario::OwnMoves,
    Scenario::AfterReboot,
];

impl Scenario {
    const fn is_own(self) -> bool {
        !matches!(
            self,
            Self::FirstShares
                | Self::NextShares
                | Self::SharesLeave
                | Self::LastSharesLeave
                | Self::AfterReboot
        )
    }

    const fn is_end(self) -> bool {
        matches!(self, Self::SharesLeave | Self::LastSharesLeave | Self::OwnEnds)
    }

    const fn has_neighbour(self) -> bool {
        matches!(self, Self::NextShares | Self::SharesLeave)
    }
}

/// A share by MPS of the first card, one by time of the second, and one by MPS of a partition of the third.
fn allocate_shares(node: &Node, claim: &ClaimReference, memory: &str) {
    let share = |request: &str, device: &str, number: u32, consumed: Value| {
        let mut share = result(request, device);
        share["shareID"] = json!(format!("5ba7e000-0000-4000-8000-{:08x}{number:04x}", claim.uid.len()));
        share["consumedCapacity"] = consumed;
        share
    };
    let mps = json!({"memory": memory, "compute": "25", "clients": "1"});
    node.api.put(
        claim,
        vec![
            share("mps", "gpu-01-00-mps", 1, mps.clone()),
            share("slice", "gpu-02-00-ts", 2, json!({"slots": "1"})),
            share("part", "gpu-03-00-mig-3g40gb-4-mps", 3, mps),
        ],
    );
}

fn sharing(strategy: Value) -> Value {
    json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuConfig", "sharing": strategy})
}

/// Two cards with one daemon, one shared by time, and a partition of a fourth.
fn allocate_own(node: &Node, claim: &ClaimReference, cards: [&str; 3]) {
    let mps = json!({"strategy": "MPS", "mps": {"pinnedDeviceMemoryLimit": "4Gi"}});
    let slicing = json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}});
    let mut of_partition = sharing(mps.clone());
    of_partition["kind"] = json!("MigDeviceConfig");
    let configs: [(&str, &[&str], Value); 3] = [
        ("FromClaim", &["pair"], sharing(mps)),
        ("FromClaim", &["slice"], sharing(slicing)),
        ("FromClaim", &["part"], of_partition),
    ];
    let results = vec![
        result("pair", cards[0]),
        result("pair", cards[1]),
        result("slice", cards[2]),
        result("part", "gpu-04-00-mig-1g10gb-6"),
    ];
    node.api.put_configured(claim, results, "gpu.tessera.dev", &configs);
}

fn allocate(node: &Node, scenario: Scenario, claim: &ClaimReference) {
    match scenario {
        Scenario::OwnAfterDeath | Scenario::OwnMoves => {
            allocate_own(node, claim, ["gpu-02-00", "gpu-05-00", "gpu-03-00"]);
        }
        _ if scenario.is_own() => allocate_own(node, claim, ["gpu-01-00", "gpu-02-00", "gpu-03-00"]),
        _ => allocate_shares(node, claim, "4Gi"),
    }
}

/// The administrator lets one process at a time onto two of the cards.
fn administer(node: &Node) {
    for card in [1, 2] {
        node.mps.as_ref().unwrap().administer(card, ComputeMode::ExclusiveProcess);
    }
}

/// A node before the scenario.
async fn before(scenario: Scenario) -> (Node, ClaimReference, ClaimReference) {
    let node = Node::sharing(5);
    let slicing = json!({"sharing": {"timeSlicing": {"replicas": 10, "interval": "Short"}}});
    node.config.send_replace(Some(Arc::new(NodeConfig::decode(&slicing).unwrap())));
    administer(&node);
    let (mine, neighbour) = (claim("mine"), claim("neighbour"));
    allocate(&node, scenario, &mine);
    allocate_shares(&node, &neighbour, "8Gi");
    if scenario.is_own() {
        node.api.allocate(&neighbour, &[("gpu", "gpu-04-00-mig-1g10gb-0")]);
    }
    let preparer = node.start().await;
    if scenario.has_neighbour() || scenario.is_own() {
        prepare(&preparer, &neighbour).await.unwrap();
    }
    match scenario {
        Scenario::FirstShares | Scenario::NextShares | Scenario::Own => {}
        Scenario::SharesLeave | Scenario::LastSharesLeave | Scenario::OwnEnds => {
            prepare(&preparer, &mine).await.unwrap();
        }
        Scenario::OwnMoves => {
            allocate_own(&node, &mine, ["gpu-01-00", "gpu-02-00", "gpu-03-00"]);
            prepare(&preparer, &mine).await.unwrap();
            allocate(&node, scenario, &mine);
        }
        Scenario::OwnAfterDeath => {
            drop(preparer);
            let dead = claim("dead");
            allocate_own(&node, &dead, ["gpu-01-00", "gpu-02-00", "gpu-03-00"]);
            let (preparer, disk) = node.start_on(None).await;
            let preparer = preparer.unwrap();
            prepare(&preparer, &dead).await.unwrap();
            // Its claim goes, and what it had on the cards stays: mps-host does not answer.
            let pair = node.mps.as_ref().unwrap().daemons();
            assert_eq!(pair.len(), 2);
            disk.set(Some(Fault::Die(5, Moment::After)));
            unprepare(&preparer, &dead).await.unwrap_err();
            assert!(!node.mps.as_ref().unwrap().daemons().is_empty());
            node.api.delete(&dead);
        }
        Scenario::AfterReboot => {
            prepare(&preparer, &mine).await.unwrap();
            drop(preparer);
            node.boot("boot-2");
            administer(&node);
        }
    }
    (node, mine, neighbour)
}

async fn happen(scenario: Scenario, preparer: &Preparer, mine: &ClaimReference) -> Result<(), PrepareError> {
    if scenario.is_end() { unprepare(preparer, mine).await } else { prepare(preparer, mine).await.map(drop) }
}

/// After any fault: a new start converges, and all goes on as if nothing had been.
async fn check(node: &Node, scenario: Scenario, mine: &ClaimReference, neighbour: &ClaimReference) {
    let preparer = node.start().await;
    preparer.restore_specs().await.unwrap();
    // Fails itself where what claims, journal, daemons and cards say differs.
    let settled = node.settled();
    let has_neighbour = scenario.has_neighbour() || scenario.is_own();
    assert_eq!(settled.contains_key(&neighbour.uid), has_neighbour && scenario != Scenario::AfterReboot);

    prepare(&preparer, mine).await.unwrap();
    prepare(&preparer, neighbour).await.unwrap();
    assert_eq!(node.settled().len(), 2);
    if !scenario.is_own() {
        // No less than the largest share, and no more.
        let limits = node.mps.as_ref().unwrap().limits(&real_uuid(0));
        assert_eq!(limits, Some((Some(8192), Some(25))));
    }
    unprepare(&preparer, mine).await.unwrap();
    node.settled();
    unprepare(&preparer, neighbour).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
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
                Scenario::FirstShares | Scenario::Own => 30,
                _ => 10,
            };
            assert!(deaths >= least, "{scenario:?} {moment:?}: {deaths} steps");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
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
            assert_eq!(node.settled().contains_key(&mine.uid), !scenario.is_end(), "{scenario:?} {number}");
            drop(preparer);
            check(&node, scenario, &mine, &neighbour).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_driver_failing_once() {
    for scenario in SCENARIOS {
        for (code, has_effect) in [(999, false), (15, false), (999, true)] {
            for number in 1.. {
                let (node, mine, neighbour) = before(scenario).await;
                let preparer = node.start().await;
                node.cards.fail_call(number, code, has_effect);
                let first = happen(scenario, &preparer, &mine).await;
                if !node.cards.heal() {
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

#[tokio::test(flavor = "multi_thread")]
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
            let preparer = node.start().await;
            assert!(node.settled().is_empty());
            drop(preparer);
            let after = if scenario.is_own() { Scenario::Own } else { Scenario::AfterReboot };
            if after == Scenario::Own {
                let preparer = node.start().await;
                prepare(&preparer, &neighbour).await.unwrap();
            }
            check(&node, after, &mine, &neighbour).await;
        }
    }
}

/// A record that can't be read is no reason to end what containers of its claim may be using.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_keeps_daemons_and_time_slices() {
    for scenario in [Scenario::LastSharesLeave, Scenario::OwnEnds] {
        let (node, mine, _) = before(scenario).await;
        let (daemons, slice) = (node.mps.as_ref().unwrap().daemons(), node.time_slice(2));
        std::fs::write(node.record_path(&mine), "{").unwrap();
        let requests = node.mps.as_ref().unwrap().requests();
        let preparer = node.start().await;
        preparer.sweep().await.unwrap();
        assert_eq!(node.mps.as_ref().unwrap().daemons(), daemons, "{scenario:?}");
        assert_eq!(node.time_slice(2), slice);
        assert_eq!(node.mps.as_ref().unwrap().requests(), requests);
        unprepare(&preparer, &mine).await.unwrap();
        preparer.sweep().await.unwrap();
        assert!(!node.settled().contains_key(&mine.uid));
    }
}
