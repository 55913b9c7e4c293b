//! What goes wrong with drivers and cards.

use std::fs;

use tessera_nvml::{DriverRoot, FabricState, LIBRARY_NAME, Library, Nvml, NvmlError, OpenError, PciBusId};

use crate::machine::EmulatedMachine;

fn open(machine: &EmulatedMachine) -> Library {
    Library::open_below(&machine.root()).unwrap()
}

fn addresses(library: &Library) -> Vec<PciBusId> {
    library.addresses().unwrap().into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_driver_root_without_a_driver() {
    let empty = tempfile::tempdir().unwrap();
    let error = Library::open_below(empty.path()).unwrap_err();
    assert!(matches!(error, OpenError::NotFound { .. }), "{error}");
}

#[test]
fn a_broken_library() {
    let machine = EmulatedMachine::new("t4");
    let library = machine.root().join("lib").join(LIBRARY_NAME).canonicalize().unwrap();
    let whole = fs::read(&library).unwrap();
    fs::write(&library, &whole[..200]).unwrap();
    let error = Library::open_below(&machine.root()).unwrap_err();
    assert!(matches!(error, OpenError::NotLoadable { .. }), "{error}");
}

#[test]
fn cards_in_confidential_computing_say_whether_they_take_work() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let library = open(&machine);
    for (mode, accepts) in [("off", None), ("not-ready", Some(false)), ("ready", Some(true))] {
        machine.let_happen(&format!("conf-compute --mode {mode}"));
        assert_eq!(library.accepts_confidential_work(), Ok(accepts), "{mode}");
    }
    machine.let_happen("fault --call nvmlSystemGetConfComputeGpusReadyState --error UNKNOWN");
    assert!(library.accepts_confidential_work().is_err());
}

/// As NVML counts: cards are looked for by the first `nvmlInit` only.
#[test]
fn a_library_opened_beside_another_is_outdated_when_that_ends() {
    let machine = EmulatedMachine::new("a30-x2");
    let count = |library: &Library| library.addresses().unwrap().len();
    let anew = || {
        Library::open_anew_below(&DriverRoot::from(machine.root().as_path()), std::time::Duration::ZERO)
            .unwrap()
    };
    machine.let_happen("unplug --card 1");
    let hangs = open(&machine);
    assert!(!hangs.is_outdated(), "it has looked for cards itself");
    machine.let_happen("plug --card 1");
    let beside = anew();
    assert_eq!((count(&beside), beside.is_outdated()), (1, false), "opening it again would not help");
    drop(hangs);
    assert!(beside.is_outdated());
    drop(beside);
    let new = anew();
    assert_eq!((count(&new), new.is_outdated()), (2, false));
}

#[test]
fn a_driver_that_is_too_old() {
    let machine = EmulatedMachine::with("t4", &["--driver-version", "470.256.02"]);
    let error = Library::open_below(&machine.root()).unwrap_err();
    assert!(matches!(error, OpenError::TooOld { .. }), "{error}");
    assert!(error.to_string().contains("470.256.2"), "{error}");
}

#[test]
fn the_oldest_driver_that_will_do() {
    let machine = EmulatedMachine::with("hgx-h100-80gb", &["--driver-version", "535.54.03"]);
    let library = open(&machine);
    assert_eq!(library.driver_version().unwrap(), "535.54.03");
    for address in addresses(&library) {
        let card = library.card(address).unwrap();
        // This driver has the first form of nvmlDeviceGetGpuFabricInfo only.
        assert!(card.fabric.unwrap().is_some_and(|fabric| fabric.state == FabricState::Completed));
        assert!(card.memory.unwrap().is_some());
        assert_eq!(card.links.unwrap().iter().filter(|link| link.active).count(), 18);
    }
}

#[test]
fn a_driver_that_refuses_to_start() {
    for (error, advice) in [
        ("DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("LIB_RM_VERSION_MISMATCH", "reboot"),
        ("NO_PERMISSION", "root"),
        ("UNKNOWN", "nvidia-smi"),
    ] {
        let machine = EmulatedMachine::new("t4");
        machine.let_happen(&format!("fault --call nvmlInit --error {error} --times 1"));
        let message = Library::open_below(&machine.root()).unwrap_err().to_string();
        assert!(message.contains("does not start") && message.contains(advice), "{message}");
        Library::open_below(&machine.root()).expect("the next attempt succeeds");
    }
}

#[test]
fn a_driver_that_sees_no_card() {
    let machine = EmulatedMachine::new("t4");
    machine.let_happen("fault --call nvmlInit --error GPU_NOT_FOUND");
    let error = Library::open_below(&machine.root()).unwrap_err();
    assert!(matches!(error, OpenError::NoCards { .. }), "{error}");
}

#[test]
fn a_driver_that_does_not_tell_its_version_is_used() {
    let machine = EmulatedMachine::new("t4");
    machine.let_happen("fault --call nvmlSystemGetDriverVersion --error UNKNOWN");
    let library = open(&machine);
    assert!(library.driver_version().is_err());
    assert_eq!(addresses(&library).len(), 1);
}

#[test]
fn one_failing_query_costs_one_fact_of_one_card() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let library = open(&machine);
    let addresses = addresses(&library);
    let (third, fourth) = (library.card(addresses[3]).unwrap(), library.card(addresses[4]).unwrap());
    for (call, fact) in [
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetIndex", "index"),
        ("nvmlDeviceGetMinorNumber", "minor"),
        ("nvmlDeviceGetBrand", "brand"),
        ("nvmlDeviceGetArchitecture", "architecture"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetNumGpuCores", "cores"),
        ("nvmlDeviceGetMemoryInfo", "memory"),
        ("nvmlDeviceGetMigMode", "mig"),
        ("nvmlDeviceGetComputeMode", "compute_mode"),
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlDeviceGetNumaNodeId", "memory_numa_node"),
        ("nvmlDeviceGetCpuAffinity", "cpu_affinity"),
        ("nvmlDeviceGetNvLinkState", "links"),
        ("nvmlDeviceGetGpuFabricInfoV", "fabric"),
    ] {
        machine.let_happen(&format!("fault --card 3 --call {call} --error UNKNOWN"));
        let mut broken = library.card(addresses[3]).unwrap();
        macro_rules! restore {
            ($($field:ident)*) => {
                match fact {
                    $(stringify!($field) => {
                        let error = broken.$field.unwrap_err();
                        assert!(matches!(error, NvmlError::Call { code: 999, .. }), "{call}: {error}");
                        broken.$field = third.$field.clone();
                    })*
                    _ => panic!("no field {fact}"),
                }
            };
        }
        restore!(name uuid index minor brand architecture compute_capability cores memory mig compute_mode addressing_mode
                 memory_numa_node cpu_affinity links fabric);
        assert_eq!(broken, third, "{call} costs more than {fact}");
        assert_eq!(library.card(addresses[4]).unwrap(), fourth, "{call} costs another card something");
        machine.let_happen("restore");
    }
}

#[test]
fn a_lost_card_is_told_and_comes_back() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let library = open(&machine);
    let all = addresses(&library);
    let whole = library.identify(all[2]).unwrap();

    machine.let_happen("lose --card 2");
    let error = library.identify(all[2]).unwrap_err();
    assert!(error.is_card_gone(), "{error}");
    assert!(library.card(all[2]).unwrap_err().is_card_gone());
    assert!(library.pair(all[1], all[2]).unwrap_err().is_card_gone());
    let reachable: Vec<PciBusId> = library.addresses().unwrap().into_iter().flatten().collect();
    assert!(reachable.len() >= 7 && all.iter().filter(|it| **it != all[2]).all(|it| reachable.contains(it)));
    assert!(library.identify(all[3]).is_ok());

    machine.let_happen("restore");
    assert_eq!(library.identify(all[2]).unwrap(), whole);
}

#[test]
fn no_card_at_an_address() {
    let machine = EmulatedMachine::new("t4");
    let error = open(&machine).identify(PciBusId::new(9, 9, 9, 0).unwrap()).unwrap_err();
    assert!(error.is_card_gone(), "{error}");
}

#[test]
fn functions_that_the_driver_lacks() {
    let machine = EmulatedMachine::with(
        "hgx-h100-80gb",
        &[
            "--without-function",
            "nvmlDeviceGetGpuFabricInfoV",
            "--without-function",
            "nvmlDeviceGetAddressingMode",
            "--without-function",
            "nvmlDeviceGetName",
        ],
    );
    let library = open(&machine);
    let card = library.card(addresses(&library)[0]).unwrap();
    assert_eq!(
        card.fabric.unwrap().map(|fabric| fabric.state),
        Some(FabricState::Completed),
        "the older call"
    );
    assert_eq!(card.addressing_mode, Ok(None));
    assert_eq!(card.name, Err(NvmlError::MissingFunction { function: "nvmlDeviceGetName" }));
    assert!(card.uuid.is_ok());
}
