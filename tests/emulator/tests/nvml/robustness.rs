//! Wrong sizes and versions, changes behind everybody's back, and speed.

use std::process::Command;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_v3_t, nvmlMemory_v2_t};

use crate::machine::{Machine, SUCCESS};

const INVALID_ARGUMENT: u32 = 2;
const INSUFFICIENT_SIZE: u32 = 7;
const ARGUMENT_VERSION_MISMATCH: u32 = 25;

#[test]
fn a_buffer_too_short_is_said_so_and_not_written_past() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    let mut buffer = [0x55_u8; 64];
    // SAFETY: the buffer is longer than each length.
    unsafe {
        let text = buffer.as_mut_ptr().cast();
        assert_eq!(nvml.functions.nvmlDeviceGetUUID(device, text, 40), INSUFFICIENT_SIZE);
        assert_eq!(buffer, [0x55; 64]);
        assert_eq!(nvml.functions.nvmlDeviceGetUUID(device, buffer.as_mut_ptr().cast(), 41), SUCCESS);
    }
    assert_eq!(buffer[40], 0);
    assert_eq!(buffer[41..], [0x55; 23]);
}

#[test]
fn lists_too_long_for_their_room_say_how_long_they_are() {
    let machine = Machine::create(&["--hardware", "t4"]);
    for pid in ["1", "2", "3"] {
        machine.emulator("process add", &["--card", "0", "--pid", pid]);
    }
    let nvml = machine.nvml();
    let device = nvml.card(0);
    let mut count = 0;
    // SAFETY: no room is claimed, and none is given.
    let code = unsafe {
        nvml.functions.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, std::ptr::null_mut())
    };
    assert_eq!((code, count), (INSUFFICIENT_SIZE, 3));
    machine.emulator("process remove", &["--card", "0", "--pid", "2"]);
    // SAFETY: as above.
    let code = unsafe {
        nvml.functions.nvmlDeviceGetGraphicsRunningProcesses_v3(device, &raw mut count, std::ptr::null_mut())
    };
    assert_eq!((code, count), (SUCCESS, 0), "none of that kind");
}

#[test]
fn a_card_that_another_process_has_open_is_not_reset() {
    let machine = Machine::create(&["--hardware", "a30-x2"]);
    let reset = || {
        let mut smi = Command::new(machine.path().join("bin/nvidia-smi"));
        let output = smi.args(["--gpu-reset", "-i", "0"]).output().expect("nvidia-smi runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let nvml = machine.nvml();
    let (code, said) = reset();
    assert_eq!(code, Some(19));
    assert!(said.contains("is currently in use by another process"), "{said}");
    // SAFETY: takes nothing.
    assert_eq!(unsafe { nvml.functions.nvmlShutdown() }, SUCCESS);
    assert_eq!(reset(), (Some(0), String::new()));
}

#[test]
fn structs_of_another_version_are_refused() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    // SAFETY: plain structs of integers, in valid places.
    unsafe {
        for version in [0, 1, size_of::<nvmlMemory_v2_t>() as u32 | 3 << 24, u32::MAX] {
            let mut memory: nvmlMemory_v2_t = std::mem::zeroed();
            memory.version = version;
            let code = nvml.functions.nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory);
            assert_eq!(code, ARGUMENT_VERSION_MISMATCH, "{version:#x}");
        }
        for version in [0, 1, size_of::<nvmlGpuFabricInfo_v3_t>() as u32 | 9 << 24, u32::MAX] {
            let mut fabric: nvmlGpuFabricInfo_v3_t = std::mem::zeroed();
            fabric.version = version;
            let code = nvml.functions.nvmlDeviceGetGpuFabricInfoV(device, (&raw mut fabric).cast());
            assert_eq!(code, ARGUMENT_VERSION_MISMATCH, "{version:#x}");
        }
    }
}

#[test]
fn handles_are_found_by_all_that_names_a_card() {
    let machine = Machine::create(&["--hardware", "gb200-tray"]);
    let facts = machine.show();
    let nvml = machine.nvml();
    let second = &facts["machine"]["cards"][1];
    let expected = nvml.card(1);
    let text = |value: &str| std::ffi::CString::new(value).expect("no zero in it");
    let mut found = std::ptr::null_mut();
    // SAFETY: texts end in a zero byte, and the place is valid.
    unsafe {
        let uuid = text(second["uuid"].as_str().expect("a UUID"));
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found), SUCCESS);
        assert_eq!(found, expected);
        let serial = text(second["serial"].as_str().expect("a serial"));
        assert_eq!(nvml.functions.nvmlDeviceGetHandleBySerial(serial.as_ptr(), &raw mut found), SUCCESS);
        assert_eq!(found, expected);
        for bus in ["00000009:01:00.0", "0009:01:00.0", "9:1:0.0", "0009:01:00"] {
            found = std::ptr::null_mut();
            let id = text(bus);
            let code = nvml.functions.nvmlDeviceGetHandleByPciBusId_v2(id.as_ptr(), &raw mut found);
            assert_eq!((code, found), (SUCCESS, expected), "{bus}");
        }
        let none = text("0000:01:00.0");
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByPciBusId_v2(none.as_ptr(), &raw mut found), 6);
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByIndex_v2(4, &raw mut found), INVALID_ARGUMENT);
    }
}

#[test]
fn a_change_whose_writer_died_before_it_said_so_is_seen() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    assert!(nvml.uuid(0).is_ok());
    let path = machine.path().join("state/state.json");
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("a state")).expect("JSON");
    state["cards"][0]["lost"] = true.into();
    let new = path.with_extension("killed");
    std::fs::write(&new, state.to_string()).expect("written");
    std::fs::rename(&new, &path).expect("replaced");
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut device = std::ptr::null_mut();
    // SAFETY: the place is valid.
    while unsafe { nvml.functions.nvmlDeviceGetHandleByIndex_v2(0, &raw mut device) } != 15 {
        assert!(Instant::now() < deadline, "never seen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_broken_state_does_not_break_who_runs() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    std::fs::write(machine.path().join("state/state.json"), b"{ not json").expect("written");
    std::thread::sleep(Duration::from_millis(300));
    assert!(nvml.uuid(0).is_ok(), "what was known is still known");
    let output = machine.try_emulator("lose", &["--card", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("state.json"));
}

#[test]
fn a_library_outside_a_machine_finds_no_driver() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let copy = elsewhere.path().join("libnvidia-ml.so.1");
    std::fs::copy(machine.path().join("lib/libnvidia-ml.so.1"), &copy).expect("copied");
    // SAFETY: the emulator's library, and the signature of nvml.h.
    unsafe {
        let library = libloading::Library::new(&copy).expect("it loads");
        let init = library.get::<unsafe extern "C" fn() -> u32>(b"nvmlInit_v2").expect("it is there");
        assert_eq!(init(), 9);
    }
}

#[test]
fn reading_again_reads_no_file_again() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    let started = Instant::now();
    for _ in 0..20_000 {
        let mut index = 0;
        // SAFETY: the place is valid.
        assert_eq!(unsafe { nvml.functions.nvmlDeviceGetIndex(device, &raw mut index) }, SUCCESS);
    }
    // Parsing the state takes some 100 µs even where nothing else runs, a call that does not some 1 µs.
    let call = started.elapsed() / 20_000;
    assert!(call < Duration::from_micros(50), "{call:?} a call");
}
