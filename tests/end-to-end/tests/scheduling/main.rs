//! kube-scheduler's decisions on the published devices: random claims and releases by its own rules. Each partition is
//! made on the emulated hardware, and each refusal is compared with it.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod any_order;
mod node;
mod random;
mod scheduler;

use tessera_fakes::machine;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tessera_api::offer::{Mps, PartitioningMode, TimeSliceInterval, TimeSlicing};
use tessera_api::{DeviceName, Offer};

use node::EmulatedNode;
use random::Random;
use scheduler::{Granted, Scheduler};

const DRIVER: &str = "gpu.tessera.dev";

fn profile_is(profile: &str) -> String {
    format!("device.attributes[\"{DRIVER}\"].profile == \"{profile}\"")
}

/// On every machine with MIG, random claims come and go, one partition each: what the scheduler allocates can always be
/// made, and what it refuses could not.
#[test]
fn what_is_allocated_can_be_made_and_what_is_refused_can_not() {
    let mut seen = 0;
    for (seed, hardware) in machine::hardware().into_iter().enumerate() {
        let Some(mut node) = EmulatedNode::with_mig_on(&hardware) else { continue };
        seen += 1;
        let pool = node.pool(&Offer::default());
        let mut scheduler = Scheduler::new(&pool);
        let mut random = Random::new(seed as u64);
        let profiles = node.profile_names();
        let mut live: Vec<Granted> = Vec::new();
        let (mut refused, mut made) = (0, 0);
        for round in 0..200 {
            // Phases of filling up and of emptying.
            let departs = if round / 50 % 2 == 0 { 10 } else { 75 };
            if !live.is_empty() && random.below(100) < departs {
                let granted = live.swap_remove(random.below(live.len()));
                node.release(&granted.device);
                scheduler.release(&granted);
                continue;
            }
            let (class, selector) = match random.below(10) {
                0 => (DRIVER.to_owned(), None),
                1 => (format!("mig.{DRIVER}"), None),
                2 => {
                    let memory = random.below(80);
                    let selector = format!(
                        "device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"{memory}Gi\")) >= 0"
                    );
                    (format!("mig.{DRIVER}"), Some(selector))
                }
                _ => (format!("mig.{DRIVER}"), Some(profile_is(random.pick(profiles.as_slice()).as_str()))),
            };
            match scheduler.allocate(&class, selector.as_deref(), json!({})) {
                Some(granted) => {
                    made += 1;
                    node.make(&granted.device);
                    live.push(granted);
                }
                None => {
                    refused += 1;
                    for name in scheduler.candidates(&class, selector.as_deref()) {
                        assert!(!node.can_make(&name), "{hardware}: {name} was refused for {selector:?}");
                    }
                }
            }
            scheduler.check_sums();
        }
        assert!(refused > 3 && made > 20, "{hardware}: {refused} refused, {made} made");
    }
    assert!(seen >= 8, "only {seen} machines have MIG");
}

/// On every machine and for every number of clients that it can have, as many shares of default size fit on a card as
/// its node's configuration says.
#[test]
fn as_many_default_shares_fit_as_are_configured() {
    for hardware in machine::hardware() {
        let node = EmulatedNode::with_one_card(&hardware);
        // The only machine older than Volta.
        let clients = if hardware == "p4" { 16 } else { 48 };
        for default_shares in 1..=clients {
            let mut config = Offer { whole_cards: false, ..Offer::default() };
            config.partitioning.mode = PartitioningMode::None;
            config.sharing.mps = Some(Mps { default_shares, ..Mps::default() });
            let pool = node.pool(&config);
            assert_eq!(pool.devices().count(), 1, "{hardware}");
            let mut scheduler = Scheduler::new(&pool);
            let mut granted = 0;
            while scheduler.allocate(&format!("mps.{DRIVER}"), None, json!({})).is_some() {
                granted += 1;
            }
            scheduler.check_sums();
            assert!(granted >= default_shares, "{hardware}: {granted} of {default_shares} shares fit");
        }
    }
}

/// A request without a type gets a whole card, a partition where no card is whole, and a share only when nothing else is left.
#[test]
fn an_untyped_request_gets_a_whole_card() {
    let node = EmulatedNode::with_mig_on("hgx-h100-80gb").unwrap();
    let mut config = Offer::default();
    config.sharing.mps = Some(Mps::default());
    let pool = node.pool(&config);
    let mut scheduler = Scheduler::new(&pool);
    let of_driver = format!("device.driver == \"{DRIVER}\"");
    // Every card but one is partly in use.
    let profile = format!("device.attributes[\"{DRIVER}\"].profile == \"4g.40gb\"");
    let mig = format!("mig.{DRIVER}");
    for _ in 0..7 {
        assert!(scheduler.allocate(&mig, Some(&profile), json!({})).is_some());
    }
    let mut untyped = || scheduler.allocate("any", Some(&of_driver), json!({})).unwrap().name();
    assert!(matches!(untyped(), DeviceName::Card(_)));
    for _ in 0..7 * 3 {
        let name = untyped();
        assert_eq!(name.partition().unwrap().profile.as_str(), "1g10gb", "{name}");
    }
}

/// Who wants whatever has room says so.
#[test]
fn a_partition_else_a_card() {
    let example = include_str!("../../../../examples/partitions/partition-or-card.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(example).unwrap();
    let mut spec = objects[0]["spec"]["spec"].clone();
    for alternative in spec["devices"]["requests"][0]["firstAvailable"].as_array_mut().unwrap() {
        // As the API server fills in.
        alternative["allocationMode"] = json!("ExactCount");
        alternative["count"] = json!(1);
    }
    for (hardware, expected) in [("hgx-h100-80gb", "1g20gb"), ("l40s-x8", "a card")] {
        let node = EmulatedNode::with_one_card(hardware);
        let mut scheduler = Scheduler::new(&node.pool(&Offer::default()));
        let name = scheduler.allocate_spec(&spec).unwrap().name();
        let got = name.partition().map_or("a card", |partition| partition.profile.as_str());
        assert_eq!(got, expected, "{hardware}");
    }
}

/// Every selector is evaluated on every device: 8 cards with 18 partitions each, whole cards and shares.
#[test]
fn classes_cost_little_and_never_err() {
    let node = EmulatedNode::with_mig_on("hgx-h100-80gb").unwrap();
    let mut config = Offer::default();
    config.sharing.mps = Some(Mps::default());
    config.sharing.time_slicing = Some(TimeSlicing { replicas: 10, interval: TimeSliceInterval::Default });
    let pool = node.pool(&config);
    let mut counted = BTreeMap::new();
    for class in
        ["gpu.tessera.dev", "mig.gpu.tessera.dev", "mps.gpu.tessera.dev", "timeslice.gpu.tessera.dev"]
    {
        for device in pool.devices() {
            let seen = scheduler::as_cel_sees(&device);
            let mut all = true;
            for selector in scheduler::class_selectors(class) {
                let evaluation = selector.evaluate(&seen);
                all &= evaluation.result.unwrap();
                // Kubernetes stops at 1,000,000.
                assert!(evaluation.cost < 100, "{class} on {}: {}", device.name, evaluation.cost);
            }
            *counted.entry(class).or_insert(0) += u32::from(all);
        }
    }
    assert_eq!(counted.into_values().collect::<Vec<_>>(), [8, 144, 8, 8]);
}
