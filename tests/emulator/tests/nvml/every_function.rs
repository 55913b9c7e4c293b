//! All functions of nvml.h at once: whether they are there, and that none minds nonsense.

use std::collections::BTreeSet;

use tessera_emulator::directory::functions;

use crate::machine::Machine;

/// Any function of nvml.h, called with more arguments than it may have; it reads those it knows.
type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> u32;

/// Functions that are not of the form that is called here: they answer with a text, or change who is initialised.
const SPECIAL: &[&str] = &["nvmlErrorString", "nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"];

const DRIVER: &str = "580.105.08";

fn names() -> Vec<&'static str> {
    let lacking = functions::lacked_by(DRIVER);
    functions::all().map(|(name, _)| name).filter(|name| !lacking.contains(name)).collect()
}

/// Whether its first argument is a card, which is checked and never followed.
fn takes_a_card(name: &str) -> bool {
    let others = ["GetCount", "GetHandleBy", "DiscoverGpus", "DrainState", "RemoveGpu"];
    name.strip_prefix("nvmlDevice").is_some_and(|rest| !others.iter().any(|other| rest.contains(other)))
}

fn call(library: &libloading::Library, name: &str, first: usize) -> u32 {
    // SAFETY: the library has only functions of nvml.h, whose arguments are integers and pointers; nulls among them are what
    // is tested, and a card's handle is none that is followed.
    unsafe { library.get::<Any>(name.as_bytes()).expect("it is there")(first, 0, 0, 0, 0, 0, 0, 0) }
}

#[test]
fn every_function_of_the_header_is_there() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let library = machine.library();
    let names = names();
    assert!(names.len() > 380, "{}", names.len());
    for name in names {
        // SAFETY: only looked up, not called.
        unsafe { library.get::<Any>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn nothing_works_before_initialisation_and_after_shutdown() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let library = machine.library();
    let uninitialized = |when: &str| {
        for name in names().into_iter().filter(|name| !SPECIAL.contains(name)) {
            assert_eq!(call(&library, name, 0), 1, "{name} {when}");
        }
    };
    uninitialized("before nvmlInit");
    assert_eq!(call(&library, "nvmlInit_v2", 0), 0);
    assert_eq!(call(&library, "nvmlInit_v2", 0), 0);
    assert_eq!(call(&library, "nvmlShutdown", 0), 0);
    assert_ne!(call(&library, "nvmlUnitGetCount", 0), 1, "one user is left");
    assert_eq!(call(&library, "nvmlShutdown", 0), 0);
    uninitialized("after nvmlShutdown");
    assert_eq!(call(&library, "nvmlShutdown", 0), 1);
}

#[test]
fn no_function_minds_nulls() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let library = machine.library();
    assert_eq!(call(&library, "nvmlInit_v2", 0), 0);
    let mut card = 0_usize;
    assert_eq!(call(&library, "nvmlDeviceGetHandleByIndex_v2", 0), 2, "nowhere to put the handle");
    // SAFETY: the signature of nvml.h.
    let code = unsafe {
        library
            .get::<unsafe extern "C" fn(u32, *mut usize) -> u32>(b"nvmlDeviceGetHandleByIndex_v2")
            .expect("it is there")(0, &raw mut card)
    };
    assert_eq!(code, 0);
    let mut answers = BTreeSet::new();
    for name in names().into_iter().filter(|name| !SPECIAL.contains(name)) {
        let firsts: &[usize] = if takes_a_card(name) { &[0, 1, usize::MAX, card] } else { &[0] };
        for first in firsts.iter().copied() {
            let code = call(&library, name, first);
            answers.insert(code);
            let known = code == 0 || tessera_emulator::failure::Failure(code).name().is_some();
            assert!(known, "{name}({first:#x}, 0, …) answers {code}");
            assert_ne!(code, 999, "{name}({first:#x}, 0, …) does not know what it does");
        }
    }
    assert!(answers.contains(&2) && answers.contains(&3), "{answers:?}");
}

#[test]
fn a_driver_lacks_what_came_later() {
    let machine = Machine::create(&["--hardware", "t4", "--driver-version", "470.82.01"]);
    let library = machine.library();
    // SAFETY: only looked up, not called.
    let has = |name: &str| unsafe { library.get::<Any>(name.as_bytes()) }.is_ok();
    assert!(has("nvmlDeviceGetName"));
    assert!(!has("nvmlDeviceGetGpuFabricInfoV"));
    assert!(!has("nvmlDeviceGetNumaNodeId"));
}

#[test]
fn a_function_can_be_left_out() {
    let machine = Machine::create(&["--hardware", "t4", "--without-function", "nvmlDeviceGetMemoryInfo_v2"]);
    let library = machine.library();
    // SAFETY: only looked up, not called.
    let has = |name: &str| unsafe { library.get::<Any>(name.as_bytes()) }.is_ok();
    assert!(has("nvmlDeviceGetMemoryInfo"));
    assert!(!has("nvmlDeviceGetMemoryInfo_v2"));
    let other = tempfile::tempdir().expect("a temporary directory");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpu-emulator"))
        .arg("create")
        .arg(other.path().join("machine"))
        .args(["--hardware", "t4", "--without-function", "nvmlNothing"])
        .output()
        .expect("gpu-emulator runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nvmlNothing"));
}
