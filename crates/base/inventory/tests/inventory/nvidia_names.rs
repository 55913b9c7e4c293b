//! The names of NVIDIA's DRA driver: what its manifests can refer to is there, of the same type and meaning.
//!
//! What it publishes: <https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu>, `cmd/gpu-kubelet-plugin/deviceinfo.go`
//! (`GpuInfo.Attributes`, `MigDeviceInfo.GetDevice`), `mig.go` (`CommonAttributesMig`, `CommonCapacitiesMig`) and
//! `partitions.go`, as of 0545e9e5.

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use tessera_api::health::{HealthClass, HealthFault};
use tessera_api::offer::{ConsumableShares, ConsumableSharesMode, Mps, TimeSliceInterval, TimeSlicing};
use tessera_inventory::machine::{ComputeInstance, GpuInstance, Health, Placement};
use tessera_inventory::pool::PoolOptions;
use tessera_inventory::{Machine, Pool};

use crate::mig_models;
use crate::pool::hgx_h100;

/// Attributes of whole cards and of partitions, with the type of their value.
const COMMON: [(&str, &str); 11] = [
    ("type", "string"),
    ("productName", "string"),
    ("brand", "string"),
    ("architecture", "string"),
    ("cudaComputeCapability", "version"),
    ("driverVersion", "version"),
    ("cudaDriverVersion", "version"),
    ("addressingMode", "string"),
    ("resource.kubernetes.io/pciBusID", "string"),
    ("resource.kubernetes.io/pcieRoot", "string"),
    ("resource.kubernetes.io/numaNode", "int"),
];
const OF_CARDS: [(&str, &str); 1] = [("uuid", "string")];
const OF_PARTITIONS: [(&str, &str); 2] = [("profile", "string"), ("parentUUID", "string")];
const CAPACITIES: [&str; 7] =
    ["memory", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"];

/// An HGX H100 with the partitions of its kind of card.
fn machine() -> Machine {
    let mut machine = hgx_h100();
    let mig = mig_models::named("H100-80GB").machine(1).cards[0].mig.clone();
    machine.cards.iter_mut().for_each(|card| card.mig.clone_from(&mig));
    machine
}

fn options() -> PoolOptions {
    let mut options = PoolOptions::new("gpu.nvidia.com");
    options.offers.others_mut().sharing.mps =
        Some(Mps { partitions: vec!["3g.40gb".to_owned()], ..Mps::default() });
    options.offers.others_mut().sharing.time_slicing =
        Some(TimeSlicing { replicas: 10, interval: TimeSliceInterval::Short });
    options
}

fn kind_of(value: &DeviceAttribute) -> &'static str {
    match value {
        DeviceAttribute { string: Some(_), .. } => "string",
        DeviceAttribute { version: Some(_), .. } => "version",
        DeviceAttribute { int: Some(_), .. } => "int",
        _ => "another",
    }
}

fn assert_has(device: &Device, attributes: &[(&str, &str)], capacities: &[&str]) {
    let published = device.attributes.as_ref().unwrap();
    for (name, kind) in attributes {
        assert_eq!(published.get(*name).map(kind_of), Some(*kind), "{}: {name}", device.name);
    }
    let published = device.capacity.as_ref().unwrap();
    for name in capacities {
        assert!(published.contains_key(*name), "{}: {name}", device.name);
    }
}

fn of_type(pool: &Pool, device_type: &str) -> Vec<Device> {
    let is_of_type =
        |device: &Device| device.attributes.as_ref().unwrap()["type"].string.as_deref() == Some(device_type);
    pool.devices().filter(is_of_type).collect()
}

#[test]
fn whole_cards_and_partitions_say_all_that_they_say_there() {
    let pool = Pool::new(&machine(), &options());
    let (cards, partitions) = (of_type(&pool, "gpu"), of_type(&pool, "mig"));
    assert_eq!((cards.len(), partitions.len()), (8, 8 * 18));
    for card in cards {
        assert_has(&card, &[COMMON.as_slice(), &OF_CARDS].concat(), &CAPACITIES);
    }
    for partition in partitions {
        assert_has(&partition, &[COMMON.as_slice(), &OF_PARTITIONS].concat(), &CAPACITIES);
        assert!(!partition.attributes.as_ref().unwrap().contains_key("uuid"), "it does not exist yet");
    }
}

#[test]
fn partitions_that_exist_have_a_uuid_and_say_where_they_lie() {
    let mut machine = machine();
    let mig = machine.cards[0].mig.as_mut().unwrap();
    let profile = mig.profiles.iter().find(|profile| profile.name == "3g.40gb").unwrap();
    let compute = ComputeInstance {
        id: 0,
        profile_id: 2,
        placement: Placement { start: 0, size: 3 },
        multiprocessors: None,
        uuid: Some("MIG-5b696ac1-c323-589e-a082-e6045e980bf4".to_owned()),
    };
    let instance = GpuInstance {
        id: 2,
        profile_id: profile.id,
        placement: Placement { start: 4, size: 4 },
        compute_instances: vec![compute],
    };
    (mig.mode, mig.instances) = (true, vec![instance]);
    let pool = Pool::new(&machine, &options());
    let partitions = of_type(&pool, "mig");
    let partition = partitions.iter().find(|device| device.name.contains("-gi2-")).unwrap();
    let slices = ["memorySlice4", "memorySlice5", "memorySlice6", "memorySlice7"];
    assert_has(
        partition,
        &[COMMON.as_slice(), &OF_PARTITIONS, &OF_CARDS].concat(),
        &[CAPACITIES.as_slice(), &slices].concat(),
    );
    let capacities = partition.capacity.as_ref().unwrap();
    assert_eq!(capacities.keys().filter(|name| name.starts_with("memorySlice")).count(), 4);
    assert_eq!(capacities["memorySlice4"].value.0, "1");
    assert_eq!(crate::api_limits::violations(&pool), [""; 0]);
}

/// Their classes ask for nothing but the type.
#[test]
fn shares_are_of_no_type_that_they_have() {
    let pool = Pool::new(&machine(), &options());
    let shared = |device: &Device| device.allow_multiple_allocations == Some(true);
    for device_type in ["gpu", "mig", "vfio"] {
        assert_eq!(
            of_type(&pool, device_type).iter().filter(|device| shared(device)).count(),
            0,
            "{device_type}"
        );
    }
    assert_eq!(pool.devices().filter(shared).count(), 8 * (1 + 2 + 1));
}

/// What its driver publishes with its values `unlimited`, `memory` and a number.
#[test]
fn devices_that_several_claims_have_at_once_have_its_capacities() {
    for (mode, shares, memory) in [
        (ConsumableSharesMode::Unlimited, None, ("0", "0")),
        (ConsumableSharesMode::Memory, None, ("81559Mi", "1Mi")),
        (ConsumableSharesMode::Shares, Some(8), ("0", "0")),
    ] {
        let mut options = PoolOptions::new("gpu.nvidia.com");
        options.offers.others_mut().sharing.consumable_shares = Some(ConsumableShares { mode, shares });
        let pool = Pool::new(&machine(), &options);
        assert_eq!(crate::api_limits::violations(&pool), [""; 0]);
        assert!(pool.devices().all(|device| device.allow_multiple_allocations == Some(true)));
        let card = of_type(&pool, "gpu").swap_remove(0);
        let capacities = card.capacity.as_ref().unwrap();
        let of = |name: &str| {
            let policy = capacities[name].request_policy.as_ref().unwrap();
            let least = &policy.valid_range.as_ref().unwrap().min;
            (policy.default.as_ref().unwrap().0.as_str(), least.0.as_str())
        };
        assert_eq!(of("memory"), memory, "{mode:?}");
        // A claim that asks for no engines leaves them to the others.
        assert_eq!(of("multiprocessors"), ("0", "0"));
        assert_eq!(capacities.contains_key("shares"), shares.is_some());
        if shares.is_some() {
            assert_eq!((of("shares"), capacities["shares"].value.0.as_str()), (("1", "1"), "8"));
        }
    }
}

#[test]
fn tolerations_written_for_it_match() {
    let mut machine = machine();
    machine.cards[1].health = Health::Lost;
    machine.cards[2].faults = [HealthFault::xid(79, None)].into();
    machine.cards[3].faults = [HealthFault::new(HealthClass::EccUncorrectable)].into();
    let pool = Pool::new(&machine, &PoolOptions::new("gpu.nvidia.com"));
    let mut taints: Vec<(String, String)> = of_type(&pool, "gpu")
        .iter()
        .flat_map(|device| device.taints.iter().flatten())
        .map(|taint| (taint.key.clone(), taint.value.clone().unwrap_or_default()))
        .collect();
    taints.sort();
    let of = |key: &str, value: &str| (format!("gpu.nvidia.com/{key}"), value.to_owned());
    assert_eq!(taints, [of("gpu-lost", ""), of("unhealthy", "ecc-uncorrectable"), of("xid", "79")]);
}
