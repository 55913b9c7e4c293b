//! Shares: death at every step of making and ending them, every step failing, every driver call failing, power loss
//! at every step. Covers shares of unrelated claims by MPS (also of a partition) and by time, and devices of a single
//! claim shared by its pods. Afterwards journal, daemons, compute modes, time-slices, partitions and claims agree.

use std::io::ErrorKind;

use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;
use tessera_nvml::ComputeMode;

use crate::crash_matrix::{self, Before, Scenario as _};
use crate::support::{Fault, Moment, Node, claim, prepare, real_uuid, result, unprepare};

/// The interrupted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// The first shares of three devices.
    FirstShares,
    /// Further shares of them.
    NextShares,
    /// The end of some of the shares.
    SharesLeave,
    /// The end of the last shares.
    LastSharesLeave,
    /// A claim's own cards and partition, shared by its pods.
    Own,
    /// Unpreparing the claim.
    OwnEnds,
    /// A claim of one of the cards, with other limits, after a claim whose daemon nobody has ended.
    OwnAfterDeath,
    /// A claim meanwhile allocated other cards.
    OwnMoves,
    /// The first start after a reboot.
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

/// Two cards with one daemon, one card shared by time, and a partition of a fourth.
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

/// The administrator sets compute mode EXCLUSIVE_PROCESS on two of the cards.
fn administer(node: &Node) {
    for card in [1, 2] {
        node.mps.as_ref().unwrap().administer(card, ComputeMode::ExclusiveProcess);
    }
}

impl crash_matrix::Scenario for Scenario {
    async fn before(self) -> Before {
        let node = Node::sharing(5);
        let slicing = json!({"sharing": {"timeSlicing": {"replicas": 10, "interval": "Short"}}});
        node.offer(&slicing);
        administer(&node);
        let (mine, neighbour) = (claim("mine"), claim("neighbour"));
        allocate(&node, self, &mine);
        allocate_shares(&node, &neighbour, "8Gi");
        if self.is_own() {
            node.api.allocate(&neighbour, &[("gpu", "gpu-04-00-mig-1g10gb-0")]);
        }
        let preparer = node.start().await;
        if self.has_neighbour() {
            prepare(&preparer, &neighbour).await.unwrap();
        }
        match self {
            Self::FirstShares | Self::NextShares | Self::Own => {}
            Self::SharesLeave | Self::LastSharesLeave | Self::OwnEnds => {
                prepare(&preparer, &mine).await.unwrap();
            }
            Self::OwnMoves => {
                allocate_own(&node, &mine, ["gpu-01-00", "gpu-02-00", "gpu-03-00"]);
                prepare(&preparer, &mine).await.unwrap();
                allocate(&node, self, &mine);
            }
            Self::OwnAfterDeath => {
                drop(preparer);
                let dead = claim("dead");
                allocate_own(&node, &dead, ["gpu-01-00", "gpu-02-00", "gpu-03-00"]);
                let (preparer, disk) = node.start_on(None).await;
                let preparer = preparer.unwrap();
                prepare(&preparer, &dead).await.unwrap();
                // Its claim goes, but its changes to the cards stay, because mps-host does not answer.
                let pair = node.mps.as_ref().unwrap().daemons();
                assert_eq!(pair.len(), 2);
                // After two specs and the metadata of three requests are removed, and two names of half-written ones.
                disk.set(Some(Fault::Die(10, Moment::After)));
                unprepare(&preparer, &dead).await.unwrap_err();
                assert!(!node.mps.as_ref().unwrap().daemons().is_empty());
                node.api.delete(&dead);
            }
            Self::AfterReboot => {
                prepare(&preparer, &mine).await.unwrap();
                drop(preparer);
                node.boot("boot-2");
                administer(&node);
            }
        }
        Before { node, mine, neighbour }
    }

    fn is_end(self) -> bool {
        matches!(self, Self::SharesLeave | Self::LastSharesLeave | Self::OwnEnds)
    }

    fn has_neighbour(self) -> bool {
        matches!(self, Self::NextShares | Self::SharesLeave) || self.is_own()
    }

    fn least_steps(self) -> usize {
        match self {
            Self::FirstShares | Self::Own => 30,
            _ => 10,
        }
    }

    fn check_both(self, node: &Node) {
        if !self.is_own() {
            // Exactly the limits of the largest share.
            let limits = node.mps.as_ref().unwrap().limits(&real_uuid(0));
            assert_eq!(limits, Some((Some(8192), Some(25))));
        }
    }

    async fn after_power_loss(self, before: &Before) -> Self {
        let Before { node, neighbour, .. } = before;
        administer(node);
        let preparer = node.start().await;
        assert!(node.settled().is_empty());
        if !self.is_own() {
            return Self::AfterReboot;
        }
        prepare(&preparer, neighbour).await.unwrap();
        Self::Own
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn death_at_every_step() {
    crash_matrix::death_at_every_step(&SCENARIOS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_failing_once() {
    crash_matrix::every_step_failing_once(&SCENARIOS, &[ErrorKind::StorageFull]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_driver_failing_once() {
    let faults = [(999, false), (15, false), (999, true)];
    crash_matrix::every_call_of_the_driver_failing_once(&SCENARIOS, &faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_lost_at_every_step() {
    crash_matrix::power_lost_at_every_step(&SCENARIOS).await;
}

/// A damaged record is no reason to end shares possibly in use by the claim's containers.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_keeps_daemons_and_time_slices() {
    for scenario in [Scenario::LastSharesLeave, Scenario::OwnEnds] {
        let Before { node, mine, .. } = scenario.before().await;
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
