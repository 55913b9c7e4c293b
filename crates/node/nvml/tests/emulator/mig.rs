//! MIG: what cards offer, and what can be made of them.

use serde_json::Value;
use tessera_nvml::{
    ComputeMode, GpuInstance, GpuInstanceProfile, Library, MigMode, Nvml, PciBusId, Placement,
};

use crate::machine::{EmulatedMachine, hardware};

fn open(machine: &EmulatedMachine) -> (Library, PciBusId) {
    let library = Library::open_below(&machine.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    (library, card)
}

fn profile(library: &Library, card: PciBusId, name: &str) -> GpuInstanceProfile {
    let profiles = library.gpu_instance_profiles(card).unwrap().unwrap();
    profiles.into_iter().find(|profile| profile.name == name).unwrap()
}

fn make(library: &Library, card: PciBusId, name: &str, start: u32) -> GpuInstance {
    let profile = profile(library, card, name);
    let placement = *profile.placements.iter().find(|placement| placement.start == start).unwrap();
    library.create_gpu_instance(card, profile.id, placement).unwrap()
}

/// What the emulator's data say of a card's profiles, by memory and then by name.
fn expected(facts: &Value) -> Vec<GpuInstanceProfile> {
    let number = |profile: &Value, field: &str| profile[field].as_u64().unwrap_or(0) as u32;
    let profile = |profile: &Value| GpuInstanceProfile {
        id: number(profile, "id"),
        name: profile["name"].as_str().unwrap().to_owned(),
        compute_slices: number(profile, "computeSlices"),
        max_instances: number(profile, "maxInstances"),
        memory_bytes: profile["memoryMiB"].as_u64().unwrap() << 20,
        multiprocessors: number(profile, "multiprocessors"),
        copy_engines: number(profile, "copyEngines"),
        decoders: number(profile, "decoders"),
        encoders: number(profile, "encoders"),
        jpeg_engines: number(profile, "jpegEngines"),
        ofa_engines: number(profile, "ofaEngines"),
        placements: profile["starts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|start| Placement {
                start: start.as_u64().unwrap() as u32,
                size: number(profile, "memorySlices"),
            })
            .collect(),
    };
    let mut profiles: Vec<_> = facts["mig"]["profiles"].as_array().unwrap().iter().map(profile).collect();
    profiles.sort_by(|one, other| (one.memory_bytes, &one.name).cmp(&(other.memory_bytes, &other.name)));
    profiles
}

/// Compared with the mode off: profiles don't depend on it.
fn profiles_are_as_the_data_say(arguments: &[&str]) {
    let mut with_mig = 0;
    for name in hardware() {
        let machine = EmulatedMachine::with(&name, arguments);
        let (library, card) = open(&machine);
        let facts = &machine.cards()[0];
        let found = library.gpu_instance_profiles(card).unwrap();
        if facts["mig"].is_null() {
            assert_eq!(found, None, "{name}");
            assert_eq!(library.gpu_instances(card), Ok(Vec::new()), "{name}");
        } else {
            assert_eq!(found.unwrap(), expected(facts), "{name} {arguments:?}");
            with_mig += 1;
        }
    }
    assert!(with_mig >= 6, "only {with_mig} machines have MIG");
}

#[test]
fn profiles_are_as_the_data_say_in_the_newest_form() {
    profiles_are_as_the_data_say(&[]);
}

#[test]
fn profiles_are_as_the_data_say_in_the_form_before() {
    profiles_are_as_the_data_say(&["--driver-version", "535.54.03"]);
}

/// That form has no names: NVIDIA's own rule makes them of sizes.
#[test]
fn profiles_are_as_the_data_say_in_the_first_form() {
    profiles_are_as_the_data_say(&["--without-function", "nvmlDeviceGetGpuInstanceProfileInfoV"]);
}

#[test]
fn a_partitions_life() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let (library, card) = open(&machine);
    assert_eq!(library.gpu_instances(card), Ok(Vec::new()), "with the mode off");
    let on = MigMode { current: true, pending: true };
    for _ in 0..2 {
        let switched = library.set_mig_mode(card, true).unwrap();
        assert_eq!((switched.mode, switched.not_active), (on, None));
    }
    assert_eq!(library.gpu_instances(card), Ok(Vec::new()));

    let gpu = make(&library, card, "1g.10gb", 6);
    assert_eq!((gpu.placement.start, gpu.placement.size, gpu.compute_instances.len()), (6, 1, 0));
    assert_eq!(
        library.gpu_instances(card),
        Ok(vec![gpu.clone()]),
        "without a compute instance it is there too"
    );

    let widths = library.compute_instance_profiles(card, gpu.id).unwrap();
    assert!(widths.iter().all(|width| width.compute_slices == 1) && !widths.is_empty());
    let compute = library.create_compute_instance(card, gpu.id, widths[0].id).unwrap();
    let uuid = compute.uuid.clone().unwrap();
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    let listed = library.gpu_instances(card).unwrap();
    assert_eq!(listed, [GpuInstance { compute_instances: vec![compute.clone()], ..gpu.clone() }]);

    let profile = profile(&library, card, "1g.10gb");
    let taken = library.create_gpu_instance(card, profile.id, gpu.placement).unwrap_err();
    assert!(taken.is_insufficient_resources(), "{taken}");
    let error = library.destroy_gpu_instance(card, gpu.id).unwrap_err();
    assert!(error.is_in_use(), "{error}");
    let switched = library.set_mig_mode(card, false).unwrap();
    assert!(switched.mode.current && switched.not_active.is_some_and(|error| error.is_in_use()));

    library.destroy_compute_instance(card, gpu.id, compute.id).unwrap();
    let error = library.destroy_compute_instance(card, gpu.id, compute.id).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    library.destroy_gpu_instance(card, gpu.id).unwrap();
    let error = library.destroy_gpu_instance(card, gpu.id).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(library.compute_instance_profiles(card, gpu.id).unwrap_err().is_not_found());
    let off = library.set_mig_mode(card, false).unwrap();
    assert_eq!((off.mode, off.not_active), (MigMode { current: false, pending: false }, None));
}

#[test]
fn seven_partitions_have_seven_names_and_go_one_by_one() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let (library, card) = open(&machine);
    library.set_mig_mode(card, true).unwrap();
    let mut uuids = Vec::new();
    for start in 0..7 {
        let gpu = make(&library, card, "1g.10gb", start);
        let width = library.compute_instance_profiles(card, gpu.id).unwrap()[0];
        uuids.push(library.create_compute_instance(card, gpu.id, width.id).unwrap().uuid.unwrap());
    }
    let mut listed = library.gpu_instances(card).unwrap();
    listed.sort_by_key(|instance| instance.placement.start);
    let named: Vec<String> =
        listed.iter().map(|instance| instance.compute_instances[0].uuid.clone().unwrap()).collect();
    assert_eq!(named, uuids);
    uuids.sort();
    uuids.dedup();
    assert_eq!(uuids.len(), 7);
    for (gone, instance) in listed.iter().enumerate() {
        library.destroy_compute_instance(card, instance.id, instance.compute_instances[0].id).unwrap();
        library.destroy_gpu_instance(card, instance.id).unwrap();
        let left = library.gpu_instances(card).unwrap();
        assert_eq!(left.len(), 6 - gone);
        assert!(left.iter().all(|left| left.compute_instances[0].uuid.is_some()));
    }
}

#[test]
fn compute_instances_of_each_width() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let (library, card) = open(&machine);
    library.set_mig_mode(card, true).unwrap();
    let gpu = make(&library, card, "7g.80gb", 0);
    let widths = library.compute_instance_profiles(card, gpu.id).unwrap();
    let slices: Vec<u32> = widths.iter().map(|width| width.compute_slices).collect();
    assert!(slices.is_sorted() && slices.contains(&7) && slices.contains(&1), "{slices:?}");
    for width in &widths {
        let made = library.create_compute_instance(card, gpu.id, width.id).unwrap();
        assert_eq!((made.profile_id, made.placement.size), (width.id, width.compute_slices));
        library.destroy_compute_instance(card, gpu.id, made.id).unwrap();
    }
    let three = widths.iter().find(|width| width.compute_slices == 3).unwrap();
    for _ in 0..three.max_instances {
        library.create_compute_instance(card, gpu.id, three.id).unwrap();
    }
    assert!(library.create_compute_instance(card, gpu.id, three.id).unwrap_err().is_insufficient_resources());
    let found = library.gpu_instances(card).unwrap();
    assert_eq!(found[0].compute_instances.len(), three.max_instances as usize);
}

#[test]
fn a_card_that_needs_a_reset_waits_for_it() {
    let machine = EmulatedMachine::new("hgx-a100-80gb");
    let (library, card) = open(&machine);
    let switched = library.set_mig_mode(card, true).unwrap();
    assert_eq!(switched.mode, MigMode { current: false, pending: true });
    assert_eq!(switched.not_active, None);
    assert_eq!(library.gpu_instances(card), Ok(Vec::new()));
    let back = library.set_mig_mode(card, false).unwrap();
    assert_eq!((back.mode, back.not_active), (MigMode { current: false, pending: false }, None));
}

#[test]
fn clients_keep_the_mode() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let (library, card) = open(&machine);
    machine.let_happen("process add --card 0 --pid 4711");
    let switched = library.set_mig_mode(card, true).unwrap();
    assert!(!switched.mode.current && switched.not_active.is_some_and(|error| error.is_in_use()));
}

#[test]
fn a_card_without_mig() {
    let machine = EmulatedMachine::new("t4");
    let (library, card) = open(&machine);
    assert!(library.set_mig_mode(card, true).unwrap_err().is_unsupported());
    assert!(library.create_gpu_instance(card, 0, Placement { start: 0, size: 1 }).is_err());
}

#[test]
fn the_compute_mode_is_set() {
    let machine = EmulatedMachine::new("t4");
    let (library, card) = open(&machine);
    for mode in [ComputeMode::ExclusiveProcess, ComputeMode::Prohibited, ComputeMode::Default] {
        library.set_compute_mode(card, mode).unwrap();
        assert_eq!(library.card(card).unwrap().compute_mode, Ok(Some(mode)));
    }
    machine.let_happen("fault --call nvmlDeviceSetComputeMode --error NO_PERMISSION --times 1");
    assert!(library.set_compute_mode(card, ComputeMode::Default).unwrap_err().is_no_permission());
}
