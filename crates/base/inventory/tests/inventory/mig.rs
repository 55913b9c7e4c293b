//! MIG partitions as they are published.

use k8s_openapi::api::resource::v1::{Counter, Device};
use tessera_api::offer::{ConsumableShares, ConsumableSharesMode, Mps, PartitioningMode, PlacementOrder};
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceName, Quantity};
use tessera_inventory::Warning;
use tessera_inventory::machine::{ComputeInstance, GpuInstance, GpuInstanceProfile, Placement};
use tessera_inventory::mig::placement_orders;
use tessera_inventory::pool::{Held, PoolOptions};
use tessera_inventory::{Machine, Pool};

use crate::api_limits::violations;
use crate::known_machines::address;
use crate::mig_models::{self, Model};
use crate::pool::layout;

/// All that cards can be divided into.
fn options() -> PoolOptions {
    let models = mig_models::all();
    let names = models.iter().flat_map(|model| &model.profiles).map(|profile| profile.name.clone());
    let mut options = PoolOptions::new(DEFAULT_DRIVER_NAME);
    options.offers.others_mut().partitioning.profiles = Some(names.collect());
    options
}

fn names(pool: &Pool) -> Vec<&str> {
    pool.device_names().map(|name| &**name).collect()
}

fn of_type(pool: &Pool, kind: &str) -> Vec<Device> {
    let is = |device: &Device| device.attributes.as_ref().unwrap()["type"].string.as_deref() == Some(kind);
    pool.devices().filter(is).collect()
}

#[test]
fn placements_are_tried_in_the_order_that_was_measured() {
    for model in mig_models::all() {
        let profiles: Vec<&GpuInstanceProfile> = model.profiles.iter().collect();
        for (rule, order) in [PlacementOrder::Balanced, PlacementOrder::HighestStart].into_iter().enumerate()
        {
            for (position, placements) in placement_orders(&profiles, order).iter().enumerate() {
                let starts: Vec<u32> = placements.iter().map(|placement| placement.start).collect();
                assert_eq!(
                    starts, model.orders[position][rule],
                    "{} {}",
                    model.name, profiles[position].name
                );
            }
        }
    }
}

#[test]
fn a_partition_says_what_the_driver_says() {
    let mut machine = mig_models::named("H100-80GB").machine(1);
    machine.driver_version = Some("580.95.05".to_owned());
    let pool = Pool::new(&machine, &options());
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings, []);
    let device = pool.devices().find(|device| device.name == "gpu-10-00-mig-1g10gb-me-4").unwrap();
    assert_eq!(
        serde_json::to_value(device).unwrap(),
        serde_json::json!({
            "name": "gpu-10-00-mig-1g10gb-me-4",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": "1g.10gb+me"},
                "parentUUID": {"string": "GPU-6d1e1f4a-0000-4000-8000-000000000000"},
                "productName": {"string": "NVIDIA H100-80GB"},
                "architecture": {"string": "Hopper"},
                "driverVersion": {"version": "580.95.5"},
                "memoryMiB": {"int": 9984},
                "resource.kubernetes.io/pciBusID": {"string": "0000:10:00.0"},
            },
            "capacity": {
                "memory": {"value": "9984Mi"},
                "multiprocessors": {"value": "16"},
            },
            "consumesCounters": [{
                "counterSet": "gpu-10-00-counter-set",
                "counters": {"memory-slice-4": {"value": "1"}, "instances-1g10gb-me": {"value": "1"}},
            }],
        })
    );
    let whole = pool.devices().next().unwrap();
    assert_eq!(whole.name, "gpu-10-00");
    let all = pool.counter_sets().next().unwrap().counters;
    assert_eq!(all.len(), 9);
    assert_eq!(whole.consumes_counters.unwrap()[0].counters, all);
}

#[test]
fn every_model_on_machines_of_any_size() {
    for model in mig_models::all() {
        let partitions: usize = model.profiles.iter().map(|profile| profile.placements.len()).sum();
        for cards in [1, 8, 9, 16] {
            let pool = Pool::new(&model.machine_in_mig_mode(cards), &options());
            let context = format!("{cards} × {}", model.name);
            assert_eq!(violations(&pool), [""; 0], "{context}");
            assert_eq!(pool.warnings, [], "{context}");
            let whole = if model.architecture == "Ampere" { 0 } else { cards };
            assert_eq!(pool.devices().count(), cards * partitions + whole, "{context}");
            let layout = layout(&pool);
            let sets = cards.div_ceil(8);
            for card in 0..cards {
                assert_eq!(
                    layout[sets + usize::from(whole > 0) + card],
                    (&*format!("2-partitions-{card:04}"), partitions),
                    "{context}"
                );
            }
            assert_eq!(layout.len(), sets + cards + usize::from(whole > 0), "{context}");
        }
    }
}

#[test]
fn whole_cards_come_first_and_shares_last() {
    let mut options = options();
    options.offers.others_mut().sharing.mps = Some(Mps::default());
    let pool = Pool::new(&mig_models::named("H100-80GB").machine(2), &options);
    let types = pool.devices().map(|device| device.attributes.unwrap()["type"].string.clone().unwrap());
    let mut types: Vec<String> = types.collect();
    types.dedup();
    assert_eq!(types, ["gpu", "mig", "mps"]);
    let mut suffixes: Vec<&str> =
        layout(&pool).into_iter().map(|(suffix, _)| &suffix[..suffix.len() - 5]).collect();
    suffixes.dedup();
    assert_eq!(suffixes, ["0-counters", "1-cards", "2-partitions", "3-shared"]);
}

#[test]
fn of_the_partitions_the_smallest_comes_first() {
    for model in mig_models::all() {
        let pool = Pool::new(&model.machine(1), &options());
        let memory: Vec<Quantity> = of_type(&pool, "mig")
            .iter()
            .map(|device| device.capacity.as_ref().unwrap()["memory"].value.0.parse().unwrap())
            .collect();
        assert!(memory.is_sorted(), "{}: {:?}", model.name, names(&pool));
    }
    let pool = Pool::new(&mig_models::named("A30-24GB").machine_in_mig_mode(1), &options());
    let expected = [
        "1g6gb-0",
        "1g6gb-1",
        "1g6gb-2",
        "1g6gb-3",
        "1g6gb-me-0",
        "1g6gb-me-1",
        "1g6gb-me-2",
        "1g6gb-me-3",
        "2g12gb-2",
        "2g12gb-0",
        "2g12gb-me-2",
        "2g12gb-me-0",
        "4g24gb-0",
    ];
    assert_eq!(names(&pool), expected.map(|name| format!("gpu-10-00-mig-{name}")));
}

/// What a card's counters let through, and what its driver would make, starting from every reachable set of instances.
#[test]
fn counters_admit_exactly_what_the_driver_can_make() {
    for model in mig_models::all() {
        let pool = Pool::new(&model.machine_in_mig_mode(1), &options());
        let counters = pool.counter_sets().next().unwrap().counters;
        let value = |counter: &Counter| counter.value.0.parse::<Quantity>().unwrap().as_integer().unwrap();
        let partitions = of_type(&pool, "mig").into_iter().map(|device| {
            let drawn = &device.consumes_counters.as_ref().unwrap()[0].counters;
            assert!(drawn.keys().all(|name| counters.contains_key(name)), "{drawn:?}");
            let (profile, placement) = instance_of(&model, &device);
            let draws = counters.keys().map(|name| drawn.get(name).map_or(0, value)).collect();
            Candidate { profile, placement, draws }
        });
        let mut search = Search { model: &model, partitions: partitions.collect(), sets: 0 };
        let left: Vec<i64> = counters.values().map(value).collect();
        search.extend(0, &mut Vec::new(), &left);
        assert!(search.sets > 20, "{}: only {} sets", model.name, search.sets);
    }
}

fn instance_of<'a>(model: &'a Model, device: &Device) -> (&'a GpuInstanceProfile, Placement) {
    let name: DeviceName = device.name.parse().unwrap();
    let profile = model.profile(device.attributes.as_ref().unwrap()["profile"].string.as_ref().unwrap());
    let start = name.partition().unwrap().start;
    (profile, *profile.placements.iter().find(|placement| placement.start == start).unwrap())
}

struct Candidate<'a> {
    profile: &'a GpuInstanceProfile,
    placement: Placement,
    /// What it draws of each counter.
    draws: Vec<i64>,
}

struct Search<'a> {
    model: &'a Model,
    partitions: Vec<Candidate<'a>>,
    sets: u32,
}

impl<'a> Search<'a> {
    /// Tries to add each partition to `chosen`, and goes on with those from position `from`.
    fn extend(&mut self, from: usize, chosen: &mut Vec<(&'a GpuInstanceProfile, Placement)>, left: &[i64]) {
        self.sets += 1;
        for next in 0..self.partitions.len() {
            let Candidate { profile, placement, ref draws } = self.partitions[next];
            let left: Vec<i64> = left.iter().zip(draws).map(|(left, drawn)| left - drawn).collect();
            chosen.push((profile, placement));
            let possible = self.model.is_possible(chosen);
            assert_eq!(left.iter().all(|left| *left >= 0), possible, "{}: {chosen:?}", self.model.name);
            if possible && next >= from {
                self.extend(next + 1, chosen, &left);
            }
            chosen.pop();
        }
    }
}

#[test]
fn ampere_offers_what_its_mode_allows_and_later_cards_both() {
    let ampere = mig_models::named("A100-80GB");
    let off = Pool::new(&ampere.machine(1), &options());
    assert_eq!(names(&off), ["gpu-10-00"]);
    let on = Pool::new(&ampere.machine_in_mig_mode(1), &options());
    assert_eq!((of_type(&on, "mig").len(), of_type(&on, "gpu").len()), (25, 0));
    assert_eq!((on.counter_sets().count(), off.counter_sets().count()), (1, 0));

    let hopper = mig_models::named("H100-80GB");
    let pools =
        [hopper.machine(1), hopper.machine_in_mig_mode(1)].map(|machine| Pool::new(&machine, &options()));
    assert_eq!(pools[0].slices, pools[1].slices);
    assert_eq!((of_type(&pools[0], "mig").len(), of_type(&pools[0], "gpu").len()), (25, 1));
}

#[test]
fn a_card_in_mig_mode_without_profiles_is_nothing() {
    for model in ["A100-80GB", "H100-80GB"].map(mig_models::named) {
        let mut machine = model.machine_in_mig_mode(2);
        machine.cards[1].mig.as_mut().unwrap().profiles.clear();
        let pool = Pool::new(&machine, &options());
        assert_eq!(pool.warnings, [Warning::MigModeOn(address(1))]);
        assert!(names(&pool).iter().all(|name| name.starts_with("gpu-10-00")));
    }
}

/// A GPU instance of a profile with compute instances of these widths.
fn instance(model: &Model, id: u32, profile: &str, start: u32, widths: &[u32]) -> GpuInstance {
    let profile = model.profile(profile);
    let compute = |(position, width): (usize, &u32)| ComputeInstance {
        id: position as u32,
        profile_id: 0,
        placement: Placement { start: widths[..position].iter().sum(), size: *width },
        multiprocessors: None,
        uuid: Some(format!("MIG-{id}-{position}")),
    };
    GpuInstance {
        id,
        profile_id: profile.id,
        placement: Placement { start, size: profile.placements[0].size },
        compute_instances: widths.iter().enumerate().map(compute).collect(),
    }
}

fn with_instances(model: &Model, instances: Vec<GpuInstance>) -> Machine {
    let mut machine = model.machine_in_mig_mode(2);
    machine.cards[1].mig.as_mut().unwrap().instances = instances;
    machine
}

#[test]
fn a_card_partitioned_by_hand_is_what_it_is() {
    let model = mig_models::named("H100-80GB");
    let instances = vec![instance(&model, 2, "3g.40gb", 4, &[1, 1]), instance(&model, 5, "4g.40gb", 0, &[4])];
    let pool = Pool::new(&with_instances(&model, instances), &options());
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings, [Warning::PartitionedByHand(address(1))]);
    let by_hand: Vec<Device> = pool.devices().filter(|device| device.name.starts_with("gpu-11-00")).collect();
    let facts: Vec<_> = by_hand
        .iter()
        .map(|device| {
            let attributes = device.attributes.as_ref().unwrap();
            let text = |name: &str| attributes[name].string.clone().unwrap();
            (
                device.name.as_str(),
                text("profile"),
                text("uuid"),
                device.capacity.as_ref().unwrap()["memory"].value.0.clone(),
            )
        })
        .collect();
    let expected = [
        ("gpu-11-00-mig-1c3g40gb-4-gi2-ci0", "1c.3g.40gb", "MIG-2-0", "20224Mi"),
        ("gpu-11-00-mig-1c3g40gb-4-gi2-ci1", "1c.3g.40gb", "MIG-2-1", "20224Mi"),
        ("gpu-11-00-mig-4g40gb-0-gi5-ci0", "4g.40gb", "MIG-5-0", "40448Mi"),
    ];
    assert_eq!(
        facts,
        expected.map(|(name, profile, uuid, memory)| (
            name,
            profile.to_owned(),
            uuid.to_owned(),
            memory.to_owned()
        ))
    );
    assert!(names(&pool).contains(&"gpu-10-00"), "the other card is free");
    // All of them fit side by side.
    let value = |text: &str| text.parse::<Quantity>().unwrap();
    let set = pool.counter_sets().find(|set| set.name == "gpu-11-00-counter-set").unwrap();
    for (name, counter) in &set.counters {
        let drawn: i128 = by_hand
            .iter()
            .filter_map(|device| device.consumes_counters.as_ref().unwrap()[0].counters.get(name))
            .map(|counter| value(&counter.value.0).nanos())
            .sum();
        assert!(drawn <= value(&counter.value.0).nanos(), "{name}");
    }
}

#[test]
fn instances_that_nothing_can_use_are_named() {
    let model = mig_models::named("H100-80GB");
    let mut unknown = instance(&model, 3, "1g.10gb", 1, &[1]);
    unknown.profile_id = 99;
    let mut hidden = instance(&model, 4, "1g.10gb", 2, &[1]);
    hidden.compute_instances[0].uuid = None;
    let instances = vec![instance(&model, 2, "1g.10gb", 0, &[]), unknown, hidden];
    let pool = Pool::new(&with_instances(&model, instances), &options());
    assert_eq!(violations(&pool), [""; 0]);
    assert!(names(&pool).iter().all(|name| name.starts_with("gpu-10-00")));
    let unusable: Vec<u32> = pool
        .warnings
        .iter()
        .filter_map(|warning| match warning {
            Warning::UnusableInstance { gpu_instance, .. } => Some(*gpu_instance),
            _ => None,
        })
        .collect();
    assert_eq!(unusable, [2, 3, 4]);
}

#[test]
fn a_held_partition_stays_when_its_card_is_taken_over() {
    let model = mig_models::named("H100-80GB");
    let before = Pool::new(&model.machine(2), &options());
    let held = Held::new(&before.slices, |name| name == "gpu-11-00-mig-1g10gb-6");
    let machine = with_instances(&model, vec![instance(&model, 2, "4g.40gb", 0, &[4])]);
    let after = Pool::new(&machine, &PoolOptions { held, ..options() });
    assert_eq!(violations(&after), [""; 0]);
    let layout = layout(&after);
    assert_eq!(layout[3], ("2-partitions-0001", 2), "{layout:?}");
    let device = after.devices().find(|device| device.name == "gpu-11-00-mig-1g10gb-6").unwrap();
    assert_eq!(device.taints.as_ref().unwrap()[0].key, "gpu.tessera.dev/not-offered");
    assert_eq!(after.counter_sets().collect::<Vec<_>>(), before.counter_sets().collect::<Vec<_>>());
}

/// Published by the last release, to which every profile was one of many.
#[test]
fn a_held_partition_of_a_profile_that_nobody_names_stays_as_it_was() {
    let machine = mig_models::named("H100-80GB").machine(1);
    let mut before = options();
    before.offers.others_mut().sharing.mps =
        Some(Mps { partitions: vec!["1g.10gb+me".to_owned()], ..Mps::default() });
    let before = Pool::new(&machine, &before);
    let named = |pool: &Pool, name: &str| pool.devices().find(|device| device.name == name);
    for held in ["gpu-10-00-mig-1g10gb-me-4", "gpu-10-00-mig-1g10gb-me-4-mps"] {
        let default = PoolOptions::new(DEFAULT_DRIVER_NAME);
        let after = Pool::new(
            &machine,
            &PoolOptions { held: Held::new(&before.slices, |name| name == held), ..default },
        );
        assert_eq!((after.warnings.as_slice(), violations(&after)), (&[][..], vec![]), "{held}");
        let mut device = named(&after, held).unwrap();
        assert_eq!(device.taints.take().unwrap()[0].key, "gpu.tessera.dev/not-offered");
        assert_eq!(Some(device), named(&before, held));
        assert_eq!(after.counter_sets().collect::<Vec<_>>(), before.counter_sets().collect::<Vec<_>>());
        // What else the card offers does not wait for it.
        let others = of_type(&after, "mig").iter().filter(|device| device.name != held).count();
        assert_eq!(others, 18);
    }
}

#[test]
fn engines_are_capacities_where_nvidia_has_them() {
    let machine = mig_models::named("H100-80GB").machine(1);
    let has_engines = |options: &PoolOptions| {
        let pool = Pool::new(&machine, options);
        let has = |device: &&Device| device.capacity.as_ref().unwrap().contains_key("copyEngines");
        (of_type(&pool, "mig").iter().filter(has).count(), of_type(&pool, "gpu").iter().filter(has).count())
    };
    assert_eq!(has_engines(&PoolOptions::new(DEFAULT_DRIVER_NAME)), (0, 1));
    assert_eq!(has_engines(&PoolOptions::new("gpu.nvidia.com")), (18, 1));
    let mut shared = PoolOptions::new(DEFAULT_DRIVER_NAME);
    let mode = ConsumableSharesMode::Unlimited;
    shared.offers.others_mut().sharing.consumable_shares = Some(ConsumableShares { mode, shares: None });
    assert_eq!(has_engines(&shared), (18, 1));
}

#[test]
fn a_card_that_does_not_work_taints_its_partitions() {
    let mut machine = mig_models::named("H100-80GB").machine(2);
    machine.cards[0].health = tessera_inventory::machine::Health::Lost;
    let pool = Pool::new(&machine, &options());
    for device in pool.devices() {
        assert_eq!(device.taints.is_some(), device.name.starts_with("gpu-10-00"), "{}", device.name);
    }
}

#[test]
fn the_configuration_narrows_what_is_offered() {
    let model = mig_models::named("H100-80GB");
    let pool = |change: fn(&mut PoolOptions)| {
        let mut options = options();
        change(&mut options);
        Pool::new(&model.machine(1), &options)
    };
    let some = pool(|options| {
        options.offers.others_mut().partitioning.profiles = Some(vec!["1g.10gb+me".into(), "9g.1gb".into()])
    });
    assert_eq!((of_type(&some, "mig").len(), of_type(&some, "gpu").len()), (7, 1));
    let none = pool(|options| options.offers.others_mut().partitioning.mode = PartitioningMode::None);
    assert_eq!(names(&none), ["gpu-10-00"]);
    let parts = pool(|options| options.offers.others_mut().whole_cards = false);
    assert_eq!((of_type(&parts, "mig").len(), of_type(&parts, "gpu").len()), (25, 0));
    // What others made is there whether we would make it or not.
    let machine = with_instances(&model, vec![instance(&model, 2, "4g.40gb", 0, &[4])]);
    let mut options = options();
    options.offers.others_mut().partitioning.mode = PartitioningMode::None;
    assert_eq!(names(&Pool::new(&machine, &options)), ["gpu-10-00", "gpu-11-00-mig-4g40gb-0-gi2-ci0"]);
    let highest = pool(|options| {
        options.offers.others_mut().partitioning.placement_order = PlacementOrder::HighestStart
    });
    assert_eq!(names(&highest)[1], "gpu-10-00-mig-1g10gb-6");
}

#[test]
fn profiles_without_a_usable_name_are_left_out() {
    let mut model = mig_models::named("H100-80GB");
    model.profiles[2].name = "1g.10gb".to_owned();
    model.profiles[3].name = "MIG 2g".to_owned();
    model.profiles[4].placements.clear();
    let pool = Pool::new(&model.machine(1), &options());
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings.iter().filter(|warning| matches!(warning, Warning::Profile { .. })).count(), 3);
    assert_eq!(of_type(&pool, "mig").len(), 7 + 7 + 1 + 1);
}
