use serde_json::{Value, json};
use tessera_api::facts::GpuInstanceProfile;
use tessera_inventory::machine::Mig;
use tessera_nvml::Memory;

use super::*;
use crate::usage::look::{PartitionLook, Shares};

const CARD: &str = "0000:3b:00.0";

fn record(name: &str, pods: &[&str], devices: &[Value]) -> ClaimRecord {
    let pods: Vec<Value> = pods.iter().map(|pod| json!({"name": pod, "uid": pod})).collect();
    serde_json::from_value(json!({
        "version": 1, "namespace": "ns", "name": name, "uid": format!("uid-of-{name}"), "bootId": "b",
        "stage": "complete", "devices": devices, "pods": pods,
    }))
    .unwrap()
}

fn claimed(name: &str, more: Value) -> Value {
    let mut device = json!({
        "device": name, "card": CARD, "pool": "p", "request": "r", "cardUuid": "GPU-1", "minor": 0,
        "cdiDeviceId": format!("gpu.tessera.dev/claim=u-{name}"),
    });
    device.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    device
}

fn partition(profile: &str, gpu_instance: u32) -> Value {
    let instances = json!({"gpuInstance": gpu_instance, "computeInstance": 1, "uuid": "MIG-1"});
    json!({"profile": profile, "placement": {"start": 0, "size": 1}, "instances": instances})
}

/// A card of 80 GiB, 1 of them the driver's, with 7g and 1g.
fn card() -> Card {
    let profile = |name: &str, multiprocessors, gibibytes: u64| GpuInstanceProfile {
        name: name.into(),
        id: multiprocessors,
        compute_slices: 1,
        max_instances: 1,
        memory_bytes: gibibytes << 30,
        multiprocessors,
        copy_engines: 0,
        decoders: 0,
        encoders: 0,
        jpeg_engines: 0,
        ofa_engines: 0,
        placements: Vec::new(),
    };
    let profiles = vec![profile("7g.80gb", 128, 79), profile("1g.10gb", 16, 10), profile("3g.40gb", 64, 40)];
    Card {
        memory_bytes: Some(80 << 30),
        reserved_memory_bytes: 1 << 30,
        mig: Some(Mig { profiles, ..Mig::default() }),
        ..Card::new(CARD.parse().unwrap())
    }
}

fn process(pid: u32, gibibytes: u64, gpu_instance: Option<u32>) -> ProcessLook {
    ProcessLook {
        pid,
        memory_bytes: Some(gibibytes << 30),
        gpu_instance,
        compute_instance: gpu_instance.map(|_| 1),
        sm: gpu_instance.is_none().then_some(0.25),
    }
}

fn look(processes: Vec<ProcessLook>) -> Look {
    let memory = |used: u64| Some(Memory { total: 80 << 30, reserved: 0, used: used << 30, free: 0 });
    Look {
        memory: memory(20),
        activity: Shares { sm: Some(0.5), ..Shares::default() },
        processes: Some(processes),
        partitions: Some(vec![PartitionLook {
            gpu_instance: 7,
            memory: memory(3),
            activity: Shares { sm: Some(0.5), ..Shares::default() },
            ..PartitionLook::default()
        }]),
        ..Look::default()
    }
}

/// Claims by name with their devices, GiB, and the card's share; a process with the id n is of pod `pod-n`, from 90 on of nobody
/// known.
fn told(records: &[ClaimRecord], look: Look) -> (BTreeMap<String, Vec<DeviceReport>>, f64) {
    let (card, address) = (card(), CARD.parse().unwrap());
    let owner = |pid: u32| if pid < 90 { Owner::Pod(format!("pod-{pid}")) } else { Owner::Unknown };
    let (claims, allocated) =
        claims(records, &BTreeMap::from([(address, &card)]), &BTreeMap::from([(address, look)]), owner);
    let claims = claims.into_iter().map(|claim| (claim.name, claim.devices)).collect();
    (claims, allocated.get(&address).copied().unwrap_or_default())
}

fn gib(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes >> 30)
}

#[test]
fn a_card_and_a_partition_tell_of_themselves() {
    let whole = record("whole", &[], &[claimed("gpu-3b-00", json!({}))]);
    let (claims, allocated) = told(&[whole], look(Vec::new()));
    let device = &claims["whole"][0];
    assert_eq!((device.memory_granted >> 30, gib(device.memory_used)), (79, Some(20)));
    assert_eq!((device.sm_granted, device.sm_activity, allocated), (Some(1.0), Some(0.5), 1.0));

    let part = |name: &str, profile: &str| {
        let more = json!({"partition": partition(profile, 7)});
        record(name, &[], &[claimed("gpu-3b-00-mig-1g10gb-0", more)])
    };
    let (claims, allocated) = told(&[part("part", "1g.10gb")], look(Vec::new()));
    let device = &claims["part"][0];
    assert_eq!((device.memory_granted >> 30, gib(device.memory_used)), (10, Some(3)));
    assert_eq!((device.sm_granted, device.sm_activity), (Some(0.125), Some(0.0625)));
    assert_eq!(device.partition, Some(("1g.10gb".into(), Some(7))));
    assert!((allocated - 10.0 / 79.0).abs() < 1e-9);

    // A compute instance beside others in its GPU instance: measured by its processes.
    let processes =
        vec![process(1, 2, Some(7)), ProcessLook { compute_instance: Some(2), ..process(2, 1, Some(7)) }];
    let (claims, _) = told(&[part("narrow", "1c.3g.40gb")], look(processes));
    assert_eq!((gib(claims["narrow"][0].memory_used), claims["narrow"][0].sm_activity), (Some(2), None));
}

#[test]
fn shares_are_told_by_their_pods() {
    let share = |name: &str, pod: &str| {
        let mps = json!({"mps": {"memoryLimitMib": 1024, "memoryMib": 8192, "compute": 25}});
        record(name, &[pod], &[claimed("gpu-3b-00-mps", mps)])
    };
    let processes =
        || vec![process(1, 1, None), process(1, 2, None), process(2, 4, None), process(5, 9, None)];
    let both = [share("one", "pod-1"), share("two", "pod-2")];
    let (claims, allocated) = told(&both, look(processes()));
    let of = |name: &str| {
        let device = &claims[name][0];
        (device.memory_granted >> 30, device.sm_granted, gib(device.memory_used), device.sm_activity)
    };
    assert_eq!(of("one"), (8, Some(0.25), Some(3), Some(0.5)));
    assert_eq!(of("two"), (8, Some(0.25), Some(4), Some(0.25)));
    assert!((allocated - 16.0 / 79.0).abs() < 1e-9);

    let unknown = [processes(), vec![process(90, 1, None)]].concat();
    let (claims, _) = told(&both, look(unknown));
    assert_eq!((claims["one"][0].memory_used, claims["two"][0].sm_activity), (None, None));

    // The use of one device by two claims of one pod belongs to neither; nor does a claim without a pod have a known use.
    let one_pod = [share("one", "pod-1"), share("again", "pod-1"), share("two", "pod-2")];
    let (claims, _) = told(&one_pod, look(processes()));
    let used = ["one", "again", "two"].map(|name| gib(claims[name][0].memory_used));
    assert_eq!(used, [None, None, Some(4)]);
}

#[test]
fn nothing_is_told_twice() {
    let slice = || claimed("gpu-3b-00-ts", json!({"shareId": "s"}));
    let twice = record("twice", &["pod-1"], &[slice(), slice()]);
    let again = ClaimRecord { uid: "another".into(), ..twice.clone() };
    let admin = record("admin", &[], &[claimed("gpu-3b-00", json!({"adminAccess": true}))]);
    let (claims, allocated) = told(&[twice, again, admin], look(vec![process(1, 1, None)]));
    assert_eq!((claims["twice"].len(), claims["admin"].len(), allocated), (1, 0, 1.0));
    assert_eq!(claims["twice"][0].sm_granted, None);
}

#[test]
fn a_time_slice_has_the_memory_that_it_was_promised() {
    let slice = |name: &str, pod: &str, more: Value| record(name, &[pod], &[claimed("gpu-3b-00-ts", more)]);
    let promised = slice("promised", "pod-1", json!({"shareId": "s", "memoryMib": 20_480}));
    let before = slice("before", "pod-2", json!({"shareId": "t"}));
    let (claims, _) = told(&[promised, before], look(vec![process(1, 30, None), process(2, 4, None)]));
    let of = |name: &str| {
        let device = &claims[name][0];
        (device.memory_granted >> 30, device.is_unlimited, gib(device.memory_used))
    };
    assert_eq!(of("promised"), (20, true, Some(30)));
    assert_eq!(of("before"), (79, false, Some(4)), "of a version that promised nothing");
}

#[test]
fn a_card_that_does_not_answer_has_granted_what_it_has() {
    let whole = record("whole", &[], &[claimed("gpu-3b-00", json!({}))]);
    let (card, address) = (card(), CARD.parse().unwrap());
    let facts = BTreeMap::from([(address, &card)]);
    let (claims, allocated) = claims([&whole], &facts, &BTreeMap::new(), |_| Owner::Node);
    assert_eq!((claims[0].devices[0].memory_granted >> 30, claims[0].devices[0].memory_used), (79, None));
    assert_eq!(allocated[&address], 1.0);
    let (claims, _) = super::claims([&whole], &BTreeMap::new(), &BTreeMap::new(), |_| Owner::Node);
    assert_eq!(claims[0].devices[0].memory_granted, 0);
}
