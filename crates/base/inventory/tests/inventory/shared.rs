//! Shares of cards and partitions as they are published.

use k8s_openapi::api::resource::v1::Device;
use proptest::prelude::*;
use tessera_api::Quantity;
use tessera_api::offer::{Mps, TimeSliceInterval, TimeSlicing};
use tessera_inventory::Warning;
use tessera_inventory::machine::{Card, ComputeCapability};
use tessera_inventory::pool::PoolOptions;
use tessera_inventory::{Machine, NoStaticPartitions, Pool};

use crate::api_limits::violations;
use crate::known_machines::address;
use crate::mig_models;
use crate::pool::{layout, options};

fn sharing(mps: Option<Mps>, replicas: Option<u32>) -> PoolOptions {
    let mut options = options();
    options.offers.others_mut().sharing.mps = mps;
    options.offers.others_mut().sharing.time_slicing =
        replicas.map(|replicas| TimeSlicing { replicas, interval: TimeSliceInterval::Short });
    options
}

fn device(pool: &Pool, name: &str) -> Device {
    pool.devices().find(|device| device.name == name).unwrap_or_else(|| panic!("{name} is not published"))
}

#[test]
fn nothing_is_shared_unasked() {
    let pool = Pool::new(&mig_models::named("H100-80GB").machine(2), &options());
    assert!(pool.devices().all(|device| device.allow_multiple_allocations.is_none()));
}

#[test]
fn a_card_shared_both_ways() {
    let pool =
        Pool::new(&mig_models::named("H100-80GB").machine(2), &sharing(Some(Mps::default()), Some(10)));
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings, []);
    let names: Vec<&str> = pool.device_names().map(|name| &**name).collect();
    let shared = ["gpu-10-00-mps", "gpu-10-00-ts", "gpu-11-00-mps", "gpu-11-00-ts"];
    assert_eq!(names[names.len() - 4..], shared, "after everything else");
    assert_eq!(layout(&pool).last(), Some(&("3-shared-0000", 4)));

    let mps = device(&pool, "gpu-10-00-mps");
    assert_eq!(mps.allow_multiple_allocations, Some(true));
    assert_eq!(
        serde_json::to_value(&mps.attributes).unwrap(),
        serde_json::json!({
            "type": {"string": "mps"},
            "parentUUID": {"string": "GPU-6d1e1f4a-0000-4000-8000-000000000000"},
            "productName": {"string": "NVIDIA H100-80GB"},
            "architecture": {"string": "Hopper"},
            "memoryMiB": {"int": 81559},
            "resource.kubernetes.io/pciBusID": {"string": "0000:10:00.0"},
        })
    );
    // 81559 MiB in steps of 128 MiB are 637; a quarter of the card is 159 of them.
    assert_eq!(
        serde_json::to_value(&mps.capacity).unwrap(),
        serde_json::json!({
            "memory": {"value": "81536Mi", "requestPolicy":
                {"default": "20352Mi", "validRange": {"min": "128Mi"}}},
            "compute": {"value": "100", "requestPolicy": {"default": "25", "validRange": {"min": "1", "step": "1"}}},
            "clients": {"value": "48", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}},
        })
    );
    let slices = device(&pool, "gpu-10-00-ts");
    assert_eq!(
        serde_json::to_value(&slices.capacity).unwrap(),
        serde_json::json!({
            "memory": {"value": "81559Mi", "requestPolicy": {"default": "8155Mi", "validRange": {"min": "1Mi"}}},
            "slots": {"value": "10", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}}},
        })
    );
    let whole = device(&pool, "gpu-10-00");
    for shared in [&mps, &slices] {
        assert_eq!(
            shared.consumes_counters, whole.consumes_counters,
            "one use of a card excludes the others"
        );
    }
}

#[test]
fn a_card_without_mig_is_shared_too() {
    let mut card = Card::new(address(0));
    card.memory_bytes = Some(24 << 30);
    let pool = Pool::new(
        &Machine { cards: vec![card], ..Machine::default() },
        &sharing(Some(Mps::default()), Some(4)),
    );
    assert_eq!(violations(&pool), [""; 0]);
    let names: Vec<&str> = pool.device_names().map(|name| &**name).collect();
    assert_eq!(names, ["gpu-10-00", "gpu-10-00-mps", "gpu-10-00-ts"]);
}

#[test]
fn what_the_driver_keeps_is_not_shared_out() {
    let shared = |reserved: u64| {
        let mut card = Card::new(address(0));
        (card.memory_bytes, card.reserved_memory_bytes) = (Some(81_559 << 20), reserved);
        let machine = Machine { cards: vec![card], ..Machine::default() };
        let pool = Pool::new(&machine, &sharing(Some(Mps::default()), None));
        let of = |name: &str| pool.devices().find(|device| device.name == name)?.capacity?.remove("memory");
        let whole = of("gpu-10-00").unwrap().value.0;
        let mps = of("gpu-10-00-mps")
            .map(|memory| (memory.value.0, memory.request_policy.unwrap().default.unwrap().0));
        (whole, mps)
    };
    // Four times 20224 MiB are less than the 81079 that programs can have, and four times 20352 more.
    let (whole, mps) = shared(480 << 20);
    assert_eq!(whole, "81559Mi");
    assert_eq!(mps, Some(("81024Mi".to_owned(), "20224Mi".to_owned())));
    assert_eq!(shared(u64::MAX).1, None);
}

#[test]
fn a_time_slice_has_its_part_of_what_programs_can_have() {
    let memory = |memory_bytes, replicas| {
        let card = Card { memory_bytes, reserved_memory_bytes: 480 << 20, ..Card::new(address(0)) };
        let machine = Machine { cards: vec![card], ..Machine::default() };
        let pool = Pool::new(&machine, &sharing(None, Some(replicas)));
        assert_eq!(violations(&pool), [""; 0]);
        let memory = device(&pool, "gpu-10-00-ts").capacity.unwrap().remove("memory")?;
        Some((memory.value.0, memory.request_policy.unwrap().default.unwrap().0))
    };
    let of = |value: &str, default: &str| Some((value.to_owned(), default.to_owned()));
    assert_eq!(memory(Some(81_559 << 20), 4), of("81079Mi", "20269Mi"));
    assert_eq!(memory(Some(81_559 << 20), 1024), of("81079Mi", "79Mi"));
    assert_eq!(memory(Some(1000 << 20), 1024), None, "less than a MiB");
    assert_eq!(memory(None, 4), None);
}

fn clients(pool: &Pool, name: &str) -> String {
    device(pool, name).capacity.as_ref().unwrap()["clients"].value.0.clone()
}

#[test]
fn the_number_of_clients_is_the_hardwares() {
    for (major, cuda, limit, expected) in [
        (9, Some(13_000), None, "48"),
        (9, Some(13_010), None, "60"),
        (9, None, None, "48"),
        (6, Some(13_010), None, "16"),
        (9, Some(13_010), Some(20), "20"),
        (9, Some(13_000), Some(100), "48"),
    ] {
        let mut machine = mig_models::named("H100-80GB").machine(1);
        machine.cuda_driver_version = cuda;
        machine.cards[0].compute_capability = Some(ComputeCapability { major, minor: 0 });
        let mps = Mps { max_clients: limit, partitions: vec!["3g.40gb".into()], ..Mps::default() };
        let pool = Pool::new(&machine, &sharing(Some(mps), None));
        assert_eq!(clients(&pool, "gpu-10-00-mps"), expected);
        if limit.is_none() && major == 9 && cuda != Some(13_010) {
            assert_eq!(clients(&pool, "gpu-10-00-mig-3g40gb-4-mps"), "20", "3/7 of 48");
        }
    }
}

#[test]
fn partitions_shared_by_mps() {
    let mps = Mps { cards: false, partitions: vec!["3g.40gb".into()], default_shares: 2, ..Mps::default() };
    let pool = Pool::new(&mig_models::named("H100-80GB").machine(1), &sharing(Some(mps), None));
    assert_eq!(violations(&pool), [""; 0]);
    let shared: Vec<String> = pool
        .devices()
        .filter(|device| device.allow_multiple_allocations == Some(true))
        .map(|device| device.name)
        .collect();
    assert_eq!(shared, ["gpu-10-00-mig-3g40gb-4-mps", "gpu-10-00-mig-3g40gb-0-mps"]);
    let (partition, share) = (device(&pool, "gpu-10-00-mig-3g40gb-4"), device(&pool, &shared[0]));
    assert_eq!(partition.consumes_counters, share.consumes_counters);
    assert_eq!(share.attributes.as_ref().unwrap()["profile"].string.as_deref(), Some("3g.40gb"));
    assert_eq!(share.capacity.as_ref().unwrap()["memory"].value.0, "40448Mi");
}

#[test]
fn all_of_an_rtx_pro_at_once() {
    let model = mig_models::named("RTX-PRO-6000-Blackwell-96GB");
    let partitions = model.profiles.iter().map(|profile| profile.name.clone()).collect();
    let mps = Mps { partitions, ..Mps::default() };
    for cards in [1, 8] {
        let pool = Pool::new(&model.machine(cards), &sharing(Some(mps.clone()), Some(10)));
        assert_eq!(violations(&pool), [""; 0]);
        assert_eq!(pool.devices().count(), cards * 63);
    }
}

#[test]
fn ampere_in_mig_mode_has_no_shares_of_the_card() {
    let model = mig_models::named("A100-80GB");
    let mps = Mps { partitions: vec!["3g.40gb".into()], ..Mps::default() };
    let pool = Pool::new(&model.machine_in_mig_mode(1), &sharing(Some(mps), Some(10)));
    let shared = pool.devices().filter(|device| device.allow_multiple_allocations == Some(true)).count();
    assert_eq!(shared, 2, "of the two 3g.40gb");
}

#[test]
fn shares_with_multiprocessors_of_their_own() {
    let mut machine = mig_models::named("H100-80GB").machine(1);
    machine.cuda_driver_version = Some(13_010);
    machine.cards[0].compute_capability = Some(ComputeCapability { major: 9, minor: 0 });
    machine.cards[0].cores = Some(16_896);
    let mps = Mps { static_partitions: true, partitions: vec!["3g.40gb".into()], ..Mps::default() };
    let pool = Pool::new(&machine, &sharing(Some(mps.clone()), None));
    assert_eq!(violations(&pool), [""; 0]);
    assert_eq!(pool.warnings, []);
    let says_so = |pool: &Pool, name| {
        device(pool, name).attributes.unwrap().get("staticPartitions").map(|value| value.bool)
    };
    let compute = |pool: &Pool, name| {
        serde_json::to_value(&device(pool, name).capacity.as_ref().unwrap()["compute"]).unwrap()
    };
    assert_eq!(says_so(&pool, "gpu-10-00-mps"), Some(Some(true)));
    assert_eq!(
        compute(&pool, "gpu-10-00-mps"),
        serde_json::json!({"value": "100", "requestPolicy": {"default": "25", "validRange": {"min": "12", "step": "1"}}})
    );
    let partition = "gpu-10-00-mig-3g40gb-4-mps";
    assert_eq!(says_so(&pool, partition), None, "partitions are shared as ever");
    assert_eq!(compute(&pool, partition)["requestPolicy"]["validRange"]["min"], "1");

    let pool = Pool::new(&machine, &sharing(Some(Mps { default_shares: 10, ..mps.clone() }), None));
    let fewer = Warning::FewerDefaultShares { card: address(0), shares: 10, compute: 12 };
    assert_eq!(pool.warnings, [fewer]);
    assert_eq!(compute(&pool, "gpu-10-00-mps")["requestPolicy"]["default"], "12");

    machine.cuda_driver_version = Some(13_000);
    let pool = Pool::new(&machine, &sharing(Some(mps), None));
    let reason = NoStaticPartitions::Driver;
    assert_eq!(pool.warnings, [Warning::NoStaticPartitions { card: address(0), reason }]);
    assert!(
        pool.device_names().all(|name| &**name != "gpu-10-00-mps"),
        "nothing weaker than what was asked for"
    );
}

#[test]
fn a_card_too_small_to_share_says_so() {
    let mut machine = mig_models::named("H100-80GB").machine(1);
    machine.cards[0].memory_bytes = Some(400 << 20);
    let pool = Pool::new(&machine, &sharing(Some(Mps::default()), None));
    assert_eq!(pool.warnings, [Warning::NotShared { card: address(0), memory: Some(400 << 20) }]);
    machine.cards[0].memory_bytes = None;
    let pool = Pool::new(&machine, &sharing(Some(Mps::default()), None));
    assert_eq!(pool.warnings, [Warning::NotShared { card: address(0), memory: None }]);
}

proptest! {
    /// So many shares that ask for nothing always fit, by memory and by compute.
    #[test]
    fn default_shares_always_fit(memory in 1u64 << 27..1 << 42, default_shares in 1u32..=100) {
        let mut card = Card::new(address(0));
        card.memory_bytes = Some(memory);
        let machine = Machine { cards: vec![card], ..Machine::default() };
        let mps = Mps { default_shares, ..Mps::default() };
        let pool = Pool::new(&machine, &sharing(Some(mps), None));
        prop_assert_eq!(violations(&pool), [""; 0]);
        let shared = pool.devices().find(|device| device.name.ends_with("-mps"));
        // Each is a client, of which there are 48.
        let default_shares = default_shares.min(48);
        prop_assert_eq!(shared.is_some(), memory / u64::from(default_shares) >= 128 << 20 && memory >= 256 << 20);
        for name in shared.iter().flat_map(|_| ["memory", "compute"]) {
            let capacity = &shared.as_ref().unwrap().capacity.as_ref().unwrap()[name];
            let value = |text: &str| text.parse::<Quantity>().unwrap().as_integer().unwrap();
            let default = value(&capacity.request_policy.as_ref().unwrap().default.as_ref().unwrap().0);
            prop_assert!(default * i64::from(default_shares) <= value(&capacity.value.0));
            let of_card = if name == "memory" { memory as i64 } else { 100 };
            let step = if name == "memory" { 128 << 20 } else { 1 };
            prop_assert_eq!(default, of_card / i64::from(default_shares) / step * step);
        }
    }
}

#[test]
fn a_card_without_lengths_of_time_slices_says_so_where_one_is_asked_for() {
    let pascal = |major, minor| {
        let mut card = Card::new(address(0));
        card.compute_capability = Some(ComputeCapability { major, minor });
        Machine { cards: vec![card], ..Machine::default() }
    };
    let mut options = sharing(None, Some(10));
    for (capability, is_shared) in
        [((3, 7), false), ((6, 0), true), ((6, 1), false), ((6, 2), false), ((7, 0), true)]
    {
        let pool = Pool::new(&pascal(capability.0, capability.1), &options);
        let named = pool.devices().any(|device| device.name == "gpu-10-00-ts");
        assert_eq!(named, is_shared, "{capability:?}");
        for device in pool.devices().filter(|device| device.name != "gpu-10-00-mps") {
            let said = device.attributes.as_ref().unwrap()["timeSliceIntervals"].bool;
            assert_eq!(said, Some(is_shared), "{capability:?}: a selector can tell");
        }
        let warnings: Vec<String> = pool.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), usize::from(!is_shared), "{capability:?}: {warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains("Short") && warning.contains("0000:10:00.0")));
    }
    options.offers.others_mut().sharing.time_slicing.as_mut().unwrap().interval = TimeSliceInterval::Default;
    let pool = Pool::new(&pascal(6, 1), &options);
    let slices = device(&pool, "gpu-10-00-ts");
    assert_eq!(slices.allow_multiple_allocations, Some(true));
    assert_eq!(slices.attributes.as_ref().unwrap()["timeSliceIntervals"].bool, Some(false));
    assert_eq!(pool.warnings, []);
}
