//! Random interleavings of all events on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use proptest::prelude::*;
use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::prepare::Preparer;

use crate::support::{Disk, Fault, Moment, Node, claim, prepare, unprepare};

const CARDS: u8 = 3;
const CLAIMS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Concurrent calls for these claims to one of two instances, maybe with a fault.
    Calls { calls: Vec<(usize, bool)>, instance: usize, fault: Option<(usize, Kind)> },
    /// The scheduler, or somebody in its place, gives a claim these devices, or the claim is deleted from the API.
    Allocate { claim: usize, devices: BTreeSet<(u8, usize)> },
    /// An instance is stopped and started again.
    Restart { instance: usize },
    /// The machine is started again.
    Reboot,
}

/// Devices of a card for a claim: the whole card, or a partition.
const DEVICES: [&str; 6] =
    ["", "-mig-1g10gb-0", "-mig-1g10gb-5", "-mig-2g20gb-4", "-mig-3g40gb-0", "-mig-3g40gb-4"];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Die(Moment),
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    let moment = prop::sample::select(&Moment::ALL[..]);
    let kind = prop_oneof![moment.prop_map(Kind::Die), Just(Kind::Fail)];
    let calls = prop::collection::vec((0..CLAIMS, any::<bool>()), 1..4);
    prop_oneof![
        6 => (calls, 0..2_usize, prop::option::of((1..40_usize, kind)))
            .prop_map(|(calls, instance, fault)| Step::Calls { calls, instance, fault }),
        4 => (0..CLAIMS, prop::collection::btree_set((0..CARDS, 0..DEVICES.len()), 0..4))
            .prop_map(|(claim, devices)| Step::Allocate { claim, devices }),
        1 => (0..2_usize).prop_map(|instance| Step::Restart { instance }),
        1 => Just(Step::Reboot),
    ]
}

struct Run {
    node: Node,
    instances: Vec<(Preparer, Arc<Disk>)>,
    /// Claims and devices given to the kubelet and not returned.
    granted: BTreeMap<String, BTreeSet<String>>,
    boots: usize,
}

impl Run {
    async fn new() -> Self {
        let mut node = Node::new(CARDS);
        // Some steps have to wait, so keep waits short.
        node.answer_within = Duration::from_millis(30);
        let mut run = Self { node, instances: Vec::new(), granted: BTreeMap::new(), boots: 1 };
        for _ in 0..2 {
            let instance = run.instance().await;
            run.instances.push(instance);
        }
        run
    }

    async fn instance(&self) -> (Preparer, Arc<Disk>) {
        let (preparer, disk) = self.node.start_on(None).await;
        (preparer.unwrap(), disk)
    }

    async fn restart(&mut self, instance: usize) {
        self.instances[instance] = self.instance().await;
    }

    async fn happen(&mut self, step: Step) {
        match step {
            Step::Calls { calls, instance, fault } => {
                let (preparer, disk) = self.instances[instance].clone();
                disk.set(fault.map(|(number, kind)| match kind {
                    Kind::Die(moment) => Fault::Die(number, moment),
                    Kind::Fail => Fault::Fail(number, ErrorKind::StorageFull),
                }));
                let answers = calls.into_iter().map(|(number, is_prepare)| {
                    let (preparer, claim) = (preparer.clone(), claim(&number.to_string()));
                    async move {
                        if is_prepare {
                            let answer = prepare(&preparer, &claim).await.ok();
                            (
                                claim,
                                answer
                                    .map(|devices| devices.into_iter().map(|one| one.device_name).collect()),
                            )
                        } else {
                            let answer = unprepare(&preparer, &claim).await.ok();
                            (claim, answer.map(|()| BTreeSet::new()))
                        }
                    }
                });
                let answers: Vec<(ClaimReference, Option<BTreeSet<String>>)> = join_all(answers).await;
                let died = fault.is_some_and(|(_, kind)| matches!(kind, Kind::Die(_))) && disk.is_reached();
                if died {
                    // Its disk stays dead: a late thread must not write, because a dead process can't.
                    drop(preparer);
                    self.restart(instance).await;
                } else {
                    disk.set(None);
                }
                self.believe(answers);
            }
            Step::Allocate { claim: number, devices } => {
                let claim = claim(&number.to_string());
                if devices.is_empty() {
                    self.node.api.delete(&claim);
                } else {
                    let devices: Vec<String> = without_overlaps(devices)
                        .into_iter()
                        .map(|(card, part)| format!("gpu-0{}-00{}", card + 1, DEVICES[part]))
                        .collect();
                    let results: Vec<_> = devices.iter().map(|device| ("gpus", device.as_str())).collect();
                    self.node.api.allocate(&claim, &results);
                }
            }
            Step::Restart { instance } => self.restart(instance).await,
            Step::Reboot => {
                self.instances.clear();
                self.boots += 1;
                self.node.boot(&format!("boot-{}", self.boots));
                self.granted.clear();
                for _ in 0..2 {
                    let instance = self.instance().await;
                    self.instances.push(instance);
                }
            }
        }
    }

    /// Updates `granted`. With several concurrent calls for one claim their order is unknown: then the disk decides.
    fn believe(&mut self, answers: Vec<(ClaimReference, Option<BTreeSet<String>>)>) {
        let mut asked = BTreeMap::<String, usize>::new();
        for (claim, _) in &answers {
            *asked.entry(claim.uid.clone()).or_default() += 1;
        }
        for (claim, answer) in answers {
            let Some(devices) = answer else { continue };
            if asked[&claim.uid] > 1 || devices.is_empty() {
                self.granted.remove(&claim.uid);
            } else {
                self.granted.insert(claim.uid, devices);
            }
        }
    }

    /// Checks the invariants between any two steps.
    async fn check(&self) {
        let (preparer, _) = &self.instances[0];
        // Leftovers of a claim's failure are undone by the kubelet's next call, or otherwise by a sweep.
        preparer.sweep().await.unwrap();
        preparer.restore_specs().await.unwrap();
        // Fails itself for a card with two holders, an intent, or a spec without record or record without spec.
        let settled = self.node.settled();
        for (uid, devices) in &self.granted {
            // A failed or interrupted Prepare may have undone an earlier one of its claim, but never anything else.
            if let Some(recorded) = settled.get(uid) {
                assert_eq!(recorded, devices, "{uid}");
            }
        }
    }
}

/// Removes overlaps among one claim's own devices, which the scheduler never allocates.
fn without_overlaps(devices: BTreeSet<(u8, usize)>) -> Vec<(u8, usize)> {
    let slices = |part: usize| match part {
        0 => 0..8,
        1 => 0..1,
        2 => 5..6,
        3 => 4..6,
        4 => 0..4,
        _ => 4..8,
    };
    let mut kept: Vec<(u8, usize)> = Vec::new();
    for (card, part) in devices {
        let (mine, overlaps) = (slices(part), |other: std::ops::Range<u32>, mine: &std::ops::Range<u32>| {
            other.start < mine.end && mine.start < other.end
        });
        if !kept.iter().any(|(other, its)| *other == card && overlaps(slices(*its), &mine)) {
            kept.push((card, part));
        }
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_card_has_two_holders_and_nothing_leaks(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new().await;
            for step in steps {
                run.happen(step).await;
                run.check().await;
            }
            // At the end, everything can be undone.
            for number in 0..CLAIMS {
                unprepare(&run.instances[1].0, &claim(&number.to_string())).await.unwrap();
            }
            assert!(run.node.settled().is_empty());
        });
    }
}
