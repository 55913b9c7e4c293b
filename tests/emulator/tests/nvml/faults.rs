//! Faults, delays and lost cards in a machine that runs.

use std::time::{Duration, Instant};

use crate::machine::{Machine, SUCCESS};

const GPU_IS_LOST: u32 = 15;

#[test]
fn a_fault_meets_its_card_as_often_as_it_was_ordered() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    let fault = ["--call", "nvmlDeviceGetUUID", "--card", "3", "--error", "GPU_IS_LOST", "--times", "2"];
    machine.emulator("fault", &fault);
    assert_eq!(nvml.uuid(3), Err(GPU_IS_LOST));
    assert!(nvml.uuid(2).is_ok());
    assert_eq!(nvml.uuid(3), Err(GPU_IS_LOST));
    assert!(nvml.uuid(3).is_ok());
    assert_eq!(machine.show()["state"]["faults"], serde_json::json!([]), "spent faults are gone");
}

#[test]
fn a_fault_meets_a_lookup_of_its_card_and_initialisation() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    machine.emulator("fault", &["--call", "nvmlDeviceGetHandleByIndex", "--card", "5", "--error", "UNKNOWN"]);
    machine.emulator("fault", &["--call", "nvmlInit", "--error", "DRIVER_NOT_LOADED", "--times", "1"]);
    let library = machine.library();
    // SAFETY: the signatures of nvml.h, and a valid place.
    unsafe {
        let init = library.get::<unsafe extern "C" fn() -> u32>(b"nvmlInit_v2").expect("it is there");
        let count =
            library.get::<unsafe extern "C" fn(*mut u32) -> u32>(b"nvmlUnitGetCount").expect("it is there");
        let mut value = 0;
        assert_eq!(init(), 9);
        assert_eq!(count(&raw mut value), 1, "what failed did not initialise");
        assert_eq!(init(), SUCCESS);
        let handle = library
            .get::<unsafe extern "C" fn(u32, *mut usize) -> u32>(b"nvmlDeviceGetHandleByIndex_v2")
            .expect("it is there");
        let mut card = 0;
        assert_eq!(handle(4, &raw mut card), SUCCESS);
        assert_eq!(handle(5, &raw mut card), 999);
    }
}

#[test]
fn a_delay_takes_its_time_and_then_works() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    machine.emulator("fault", &["--delay-ms", "700", "--card", "0"]);
    let timed = |card| {
        let device = nvml.card(7);
        assert!(!device.is_null());
        let started = Instant::now();
        nvml.uuid(card).expect("it works");
        started.elapsed()
    };
    assert!(timed(0) >= Duration::from_millis(1400), "the lookup and the call");
    assert!(timed(1) < Duration::from_millis(700));
    machine.emulator("restore", &[]);
    assert!(timed(0) < Duration::from_millis(700));
}

#[test]
fn a_lost_card_answers_nothing_and_the_others_all() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    let (lost, other) = (nvml.card(6), nvml.card(5));
    let uuid = nvml.uuid(6).expect("still there");
    machine.emulator("lose", &["--card", "6"]);
    // SAFETY: places are valid, and texts end in a zero byte.
    unsafe {
        let mut value = 0;
        assert_eq!(nvml.functions.nvmlDeviceGetIndex(lost, &raw mut value), GPU_IS_LOST);
        assert_eq!(nvml.functions.nvmlDeviceGetIndex(other, &raw mut value), SUCCESS);
        assert_eq!(nvml.functions.nvmlDeviceGetCount_v2(&raw mut value), SUCCESS);
        assert_eq!(value, 8, "it still counts");
        let mut handle = std::ptr::null_mut();
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByIndex_v2(6, &raw mut handle), GPU_IS_LOST);
        let uuid = std::ffi::CString::new(uuid).expect("no zero in it");
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle), GPU_IS_LOST);
    }
    machine.emulator("restore", &["--card", "6"]);
    assert!(nvml.uuid(6).is_ok());
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let refused = |arguments: &[&str], code, says: &str| {
        let output = machine.try_emulator("fault", arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    };
    refused(&["--call", "nvmlNothing", "--error", "3"], 1, "nvml.h");
    refused(&["--card", "1", "--error", "3"], 1, "numbered from 0");
    refused(&["--error", "NONSENSE"], 2, "GPU_IS_LOST");
    refused(&[], 2, "--error");
    assert_eq!(machine.show()["state"]["faults"], serde_json::json!([]));
}

#[test]
fn a_reboot_is_another_boot_and_forgets_what_a_driver_forgets() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    let boot =
        || std::fs::read_to_string(machine.path().join("proc/sys/kernel/random/boot_id")).expect("a boot id");
    let before = boot();
    // SAFETY: the place is valid.
    unsafe {
        assert_eq!(nvml.functions.nvmlDeviceSetComputeMode(device, 3), SUCCESS);
        let mut mode = 0;
        assert_eq!(nvml.functions.nvmlDeviceGetComputeMode(device, &raw mut mode), SUCCESS);
        assert_eq!(mode, 3);
        machine.emulator("reboot", &[]);
        assert_eq!(nvml.functions.nvmlDeviceGetComputeMode(device, &raw mut mode), SUCCESS);
        assert_eq!(mode, 0);
    }
    assert_ne!(boot(), before);
    assert_eq!(boot().trim().len(), 36);
}
