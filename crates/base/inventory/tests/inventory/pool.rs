//! Slices of known and random machines.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use proptest::prelude::*;
use tessera_api::DEFAULT_DRIVER_NAME;
use tessera_api::health::{HealthClass, HealthEffect, HealthFault};
use tessera_api::offer::{
    ConsumableShares, ConsumableSharesMode, Mps, PartitioningMode, TimeSliceInterval, TimeSlicing,
};
use tessera_inventory::machine::{Card, ComputeCapability, GpuInstanceProfile, Health, Mig, Placement};
use tessera_inventory::pool::{CardOffer, Contents, PoolOptions};
use tessera_inventory::{Machine, Pool};

use crate::any_machine;
use crate::api_limits::violations;
use crate::known_machines::{self, address};

pub fn options() -> PoolOptions {
    PoolOptions::new(DEFAULT_DRIVER_NAME)
}

/// Whole cards and nothing else.
pub fn whole_cards() -> PoolOptions {
    let mut options = options();
    options.offers.others_mut().partitioning.mode = PartitioningMode::None;
    options
}

/// Whole cards and time-slices of them.
pub fn with_time_slices() -> PoolOptions {
    let mut options = whole_cards();
    options.offers.others_mut().sharing.time_slicing =
        Some(TimeSlicing { replicas: 4, interval: TimeSliceInterval::Default });
    options
}

/// An HGX H100 with all facts.
pub fn hgx_h100() -> Machine {
    let mut machine = known_machines::named("hgx-h100").machine();
    machine.driver_version = Some("580.95.05".to_owned());
    machine.cuda_driver_version = Some(13_000);
    for (position, card) in (0u32..).zip(&mut machine.cards) {
        card.uuid = Some(format!("GPU-6d1e1f4a-0000-4000-8000-{position:012}"));
        card.index = Some(position);
        card.minor = Some(position);
        card.product_name = Some("NVIDIA H100 80GB HBM3".to_owned());
        card.brand = Some("Nvidia".to_owned());
        card.architecture = Some("Hopper".to_owned());
        card.compute_capability = Some(ComputeCapability { major: 9, minor: 0 });
        card.addressing_mode = Some("HMM".to_owned());
        card.memory_bytes = Some(85_520_809_984);
        card.mig_capable = Some(true);
        card.mig = Some(Mig { profiles: vec![whole_board(8)], ..Mig::default() });
        card.pcie_root = Some(format!("pci0000:{:02x}", 0x0f + position));
    }
    machine
}

/// The profile that takes a whole card of that many memory slices.
fn whole_board(memory_slices: u32) -> GpuInstanceProfile {
    GpuInstanceProfile {
        name: "7g.80gb".to_owned(),
        id: 0,
        compute_slices: 7,
        max_instances: 1,
        memory_bytes: 84_825_604_096,
        multiprocessors: 132,
        copy_engines: 8,
        decoders: 7,
        encoders: 0,
        jpeg_engines: 7,
        ofa_engines: 1,
        placements: vec![Placement { start: 0, size: memory_slices }],
    }
}

/// How the slices of a pool are called and how much is in each.
pub fn layout(pool: &Pool) -> Vec<(&str, usize)> {
    let size = |contents: &Contents| contents.device_names().len() + contents.shared_counters().len();
    pool.slices.iter().map(|slice| (slice.name_suffix.as_str(), size(&slice.contents))).collect()
}

fn attribute(device: &Device, name: &str) -> DeviceAttribute {
    device.attributes.as_ref().unwrap().get(name).unwrap_or_else(|| panic!("no {name}")).clone()
}

#[test]
fn a_whole_card_says_everything() {
    let pool = Pool::new(&hgx_h100(), &whole_cards());
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings, []);
    let device = pool.devices().nth(3).unwrap();
    assert_eq!(device.name, "gpu-13-00");

    let written: BTreeMap<String, serde_json::Value> = device
        .attributes
        .as_ref()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), serde_json::to_value(value).unwrap()))
        .collect();
    let expected = serde_json::json!({
        "type": {"string": "gpu"},
        "uuid": {"string": "GPU-6d1e1f4a-0000-4000-8000-000000000003"},
        "index": {"int": 3},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "addressingMode": {"string": "HMM"},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "memoryMiB": {"int": 81559},
        "migCapable": {"bool": true},
        "timeSliceIntervals": {"bool": true},
        "nvlinkDomain": {"string": "0000:10:00.0"},
        "nvlinkCount": {"int": 18},
        "nvlinkGroup2": {"string": "0000:10:00.0"},
        "nvlinkGroup4": {"string": "0000:10:00.0"},
        "alignGroup2": {"string": "0000:12:00.0"},
        "alignGroup4": {"string": "0000:10:00.0"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:13:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:12"},
        "resource.kubernetes.io/numaNode": {"int": 0},
    });
    assert_eq!(serde_json::to_value(written).unwrap(), expected);

    let capacity = serde_json::to_value(device.capacity.as_ref().unwrap()).unwrap();
    let expected = serde_json::json!({
        "memory": {"value": "81559Mi"},
        "multiprocessors": {"value": "132"},
        "copyEngines": {"value": "8"},
        "decoders": {"value": "7"},
        "encoders": {"value": "0"},
        "jpegEngines": {"value": "7"},
        "ofaEngines": {"value": "1"},
    });
    assert_eq!(capacity, expected, "the card's memory, and of engines what the largest partition has");
    assert_eq!((&device.taints, &device.consumes_counters), (&None, &None));
    let shared = Pool::new(&hgx_h100(), &with_time_slices());
    let shared = shared.devices().find(|shared| shared.name == device.name).unwrap();
    assert_eq!(Device { consumes_counters: None, ..shared.clone() }, device);
    let consumption = &shared.consumes_counters.as_ref().unwrap()[0];
    assert_eq!(consumption.counter_set, "gpu-13-00-counter-set");
    let counters: Vec<&str> = consumption.counters.keys().map(String::as_str).collect();
    assert_eq!(counters, (0..8).map(|slice| format!("memory-slice-{slice}")).collect::<Vec<_>>());
}

#[test]
fn what_the_hardware_does_not_say_is_not_published() {
    let machine = Machine { cards: vec![Card::new(address(0))], ..Machine::default() };
    let pool = Pool::new(&machine, &whole_cards());
    assert_eq!(violations(&pool), [""; 0]);
    let device = pool.devices().next().unwrap();
    let names: Vec<&str> = device.attributes.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["resource.kubernetes.io/pciBusID", "type"]);
    assert_eq!((&device.capacity, &device.consumes_counters), (&None, &None));
    let shared = Pool::new(&machine, &with_time_slices());
    assert_eq!(shared.devices().next().unwrap().consumes_counters.as_ref().unwrap()[0].counters.len(), 1);
}

#[test]
fn slices_at_the_edges_of_the_limits() {
    for (count, sets, devices) in [
        (0, vec![], vec![]),
        (1, vec![1], vec![1]),
        (8, vec![8], vec![8]),
        (9, vec![8, 1], vec![9]),
        (16, vec![8, 8], vec![16]),
        (64, vec![8; 8], vec![64]),
        (65, [vec![8; 8], vec![1]].concat(), vec![64, 1]),
    ] {
        let card = &hgx_h100().cards[0];
        let cards = (0..count).map(|position| Card { pci: address(position), ..card.clone() }).collect();
        let machine = Machine { cards, ..hgx_h100() };
        let of_tier = |tier: &'static str, sizes: &[usize]| {
            let slices = sizes.iter().enumerate();
            slices.map(|(position, size)| (format!("{tier}-{position:04}"), *size)).collect::<Vec<_>>()
        };
        let shared =
            [of_tier("0-counters", &sets), of_tier("1-cards", &devices), of_tier("3-shared", &devices)];
        for (options, expected) in
            [(whole_cards(), of_tier("1-cards", &devices)), (with_time_slices(), shared.concat())]
        {
            let pool = Pool::new(&machine, &options);
            assert_eq!(violations(&pool), [""; 0], "{count} cards");
            let layout = layout(&pool).into_iter().map(|(name, size)| (name.to_owned(), size));
            assert_eq!(layout.collect::<Vec<_>>(), expected, "{count} cards");
        }
    }
}

#[test]
fn cards_are_published_in_the_order_of_their_links() {
    let machine = known_machines::named("dgx-1-v100-hybrid-cube-mesh").machine();
    let pool = Pool::new(&machine, &whole_cards());
    let names: Vec<&str> = pool.device_names().map(|name| &**name).collect();
    let expected = [0, 3, 2, 1, 5, 6, 7, 4].map(|position| format!("gpu-{:02x}-00", 0x10 + position));
    assert_eq!(names, expected);
    let groups: Vec<Option<String>> =
        pool.devices().map(|device| attribute(&device, "alignGroup2").string).collect();
    let expected = [0, 0, 1, 1, 5, 5, 4, 4].map(|position| Some(address(position).to_string()));
    assert_eq!(groups, expected);
}

#[test]
fn a_card_that_does_not_work_is_tainted() {
    let mut machine = hgx_h100();
    machine.cards[1].health = Health::Lost;
    machine.cards[2].faults = [HealthFault::xid(79, None), HealthFault::new(HealthClass::Thermal)].into();
    machine.cards[3].health = Health::Unhealthy { reason: "fell off; see log".to_owned() };
    let pool = Pool::new(&machine, &whole_cards());
    assert_eq!(violations(&pool), [""; 0]);
    let devices: Vec<Device> = pool.devices().collect();
    let taints: BTreeMap<&str, _> = devices
        .iter()
        .filter_map(|device| Some((device.name.as_str(), device.taints.as_ref()?)))
        .map(|(name, taints)| {
            (name, (taints[0].key.as_str(), taints[0].effect.as_str(), taints[0].value.as_deref()))
        })
        .collect();
    let key = "gpu.tessera.dev/unhealthy";
    assert_eq!(
        taints,
        BTreeMap::from([
            ("gpu-11-00", (key, "NoSchedule", Some("lost"))),
            ("gpu-12-00", (key, "NoSchedule", Some("xid-79"))),
            ("gpu-13-00", (key, "NoSchedule", None)),
        ])
    );
}

#[test]
fn a_fault_taints_what_it_concerns_as_the_policy_says() {
    let mut machine = hgx_h100();
    let slices = Placement { start: 2, size: 1 };
    machine.cards[1].faults =
        [HealthFault::xid(48, Some(slices)), HealthFault::new(HealthClass::Thermal)].into();
    let part = |id, name: &str, size: u32| GpuInstanceProfile {
        id,
        name: name.to_owned(),
        max_instances: 8 / size,
        memory_bytes: u64::from(size) * (10 << 30),
        compute_slices: size,
        placements: (0..8 / size).map(|place| Placement { start: place * size, size }).collect(),
        ..whole_board(8)
    };
    machine.cards[1].mig.as_mut().unwrap().profiles =
        vec![part(19, "1g.10gb", 1), part(14, "2g.20gb", 2), part(9, "4g.40gb", 4)];
    let mut options = options();
    options.health = options.health.with(HealthClass::Xid, HealthEffect::NoExecute);
    let tainted = |options: &PoolOptions| -> Vec<(String, String, Option<String>)> {
        let pool = Pool::new(&machine, options);
        assert_eq!(violations(&pool), [""; 0]);
        let taints = pool.devices().flat_map(|device| {
            let taints = device.taints.into_iter().flatten();
            taints.map(move |taint| (device.name.clone(), taint.effect, taint.value))
        });
        taints.collect()
    };
    let found = tainted(&options);
    assert!(
        found.iter().all(|(_, effect, value)| {
            (effect.as_str(), value.as_deref()) == ("NoExecute", Some("xid-48"))
        })
    );
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    let concerned =
        ["gpu-11-00", "gpu-11-00-mig-1g10gb-2", "gpu-11-00-mig-2g20gb-2", "gpu-11-00-mig-4g40gb-0"];
    assert_eq!(names, concerned);
    options.health = options.health.with(HealthClass::Xid, HealthEffect::Off);
    assert_eq!(tainted(&options), []);
    options.health = options.health.with(HealthClass::Thermal, HealthEffect::NoSchedule);
    assert!(tainted(&options).len() > found.len(), "heat concerns all of the card");
}

#[test]
fn what_does_not_fit_is_left_out_with_a_warning() {
    let mut machine = hgx_h100();
    machine.driver_version = Some("unknown".to_owned());
    machine.cards.truncate(2);
    machine.cards[0].product_name = Some("x".repeat(65));
    machine.cards[0].brand = Some("a\nb".to_owned());
    machine.cards[0].memory_bytes = Some(u64::MAX);
    machine.cards[0].mig.as_mut().unwrap().profiles = vec![whole_board(33)];
    machine.cards.push(machine.cards[1].clone());
    let pool = Pool::new(&machine, &whole_cards());
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.devices().count(), 2);
    let device = pool.devices().next().unwrap();
    for name in ["productName", "brand", "memoryMiB", "driverVersion"] {
        assert!(!device.attributes.as_ref().unwrap().contains_key(name), "{name}");
    }
    let said: Vec<String> = pool.warnings.iter().map(ToString::to_string).collect();
    for part in [
        "productName",
        "brand",
        "18446744073709551615 bytes",
        "33 memory slices",
        "\"unknown\"",
        "0000:11:00.0",
    ] {
        assert_eq!(said.iter().filter(|warning| warning.contains(part)).count(), 1, "{part}: {said:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_machine_gives_valid_slices(
        machine in any_machine::machines(20),
        shares: bool,
        at_once in prop::sample::select(vec![
            None,
            Some(ConsumableShares { mode: ConsumableSharesMode::Memory, shares: None }),
            Some(ConsumableShares { mode: ConsumableSharesMode::Shares, shares: Some(8) }),
        ]),
    ) {
        let mut options = options();
        // The longest attribute that a pool can add to each device.
        let named = CardOffer { pool: Some("p".repeat(63)), ..CardOffer::default() };
        if shares {
            let partitions = machine.cards.iter().flat_map(|card| &card.mig).flat_map(|mig| &mig.profiles);
            let partitions = partitions.map(|profile| profile.name.clone()).collect();
            options.offers.others_mut().sharing.mps = Some(Mps { partitions, ..Mps::default() });
            options.offers.others_mut().sharing.time_slicing =
                Some(TimeSlicing { replicas: 7, interval: TimeSliceInterval::Default });
        }
        options.offers.others_mut().sharing.consumable_shares = at_once;
        for card in &machine.cards {
            let offer = options.offers.of(card.pci).offer.clone();
            options.offers.set(card.pci, CardOffer { offer, ..named.clone() });
        }
        let pool = Pool::new(&machine, &options);
        prop_assert!(pool.devices().all(|device| device.attributes.as_ref().is_some_and(|all| all.contains_key("gpuPool"))));
        prop_assert_eq!(violations(&pool), [""; 0]);
        let without_mig = machine.cards_by_address().iter().filter(|card| card.mig.is_none()).count();
        prop_assert!(pool.devices().count() >= without_mig);
        // Warnings are for a log: bounded, on one line.
        for warning in &pool.warnings {
            let text = warning.to_string();
            prop_assert!(text.len() < 2000 && !text.contains('\n'), "{}", text);
        }
    }

    #[test]
    fn the_order_of_enumeration_changes_nothing(
        (machine, shuffled) in any_machine::machines(10).prop_flat_map(|machine| {
            let cards = Just(machine.cards.clone()).prop_shuffle();
            (Just(machine), cards)
        })
    ) {
        let pool = Pool::new(&machine, &options());
        let other = Pool::new(&Machine { cards: shuffled, ..machine }, &options());
        prop_assert_eq!(pool, other);
    }
}
