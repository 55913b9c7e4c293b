//! `gpu-emulator` and the stub `nvidia-smi`, as people and scripts use them.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output};

fn emulator(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-emulator")).args(arguments).output().expect("gpu-emulator runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a machine in `directory`.
fn create(directory: &Path, arguments: &[&str]) -> String {
    let path = directory.display().to_string();
    let output = emulator(&[&["create", &path], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    path
}

fn smi(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(directory.join("bin/nvidia-smi")).args(arguments).output().expect("nvidia-smi runs")
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = text(&emulator(&["--help"]).stdout);
    for part in ["Examples:", "LD_LIBRARY_PATH", "Exit status"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in
        ["create", "fault", "xid", "lose", "restore", "process", "utilization", "reboot", "show", "link"]
    {
        let output = emulator(&[command, "--help"]);
        assert!(output.status.success(), "{command}");
    }
}

#[test]
fn every_machine_is_listed_with_its_sources() {
    let listed = text(&emulator(&["hardware"]).stdout);
    let json: serde_json::Value =
        serde_json::from_slice(&emulator(&["hardware", "-o", "json"]).stdout).expect("JSON");
    for machine in json["machines"].as_array().expect("machines") {
        let name = machine["name"].as_str().expect("a name");
        assert!(listed.contains(name), "{name}");
        let sources = machine["sources"]["board"].as_object().expect("sources");
        assert!(sources.contains_key("memoryTotalMiB"), "{name}");
    }
}

#[test]
fn what_cannot_be_made_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    let refused = |arguments: &[&str], says: &str| {
        let output = emulator(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(!directory.path().join("state").exists(), "nothing is left behind");
    };
    refused(&["create", &path, "--hardware", "hgx"], "hgx-h100-80gb");
    refused(&["create", &path, "--hardware", "t4", "--cards", "65"], "between 1 and 64");
    refused(&["create", &path, "--hardware", "t4", "--driver-version", "new"], "580.105.08");
    refused(&["create", &path, "--hardware", "t4", "--driver-version", "333.1"], "--cuda-version");
    refused(&["create", &path, "--hardware", "t4", "--clique", "1"], "NVLink fabric");
    refused(&["create", &path, "--hardware", "gb200-tray", "--cluster-uuid", "x"], "UUID such as");
    refused(&["create", "/proc/nowhere", "--hardware", "t4"], "/proc/nowhere");
    refused(&["show", &path], "gpu-emulator create");
    create(directory.path(), &["--hardware", "t4"]);
    let again = emulator(&["create", &path, "--hardware", "t4"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("holds an emulated machine already"));
}

#[test]
fn a_creation_that_was_cut_short_can_be_done_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create(directory.path(), &["--hardware", "t4"]);
    std::fs::remove_file(directory.path().join("state/machine.json")).expect("removed");
    create(directory.path(), &["--hardware", "hgx-h100-80gb"]);
    assert_eq!(text(&smi(directory.path(), &["-L"]).stdout).lines().count(), 8);
}

#[test]
fn nodes_are_devices_with_the_drivers_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create(directory.path(), &["--hardware", "hgx-a100-80gb"]);
    let node = directory.path().join("dev/nvidia7");
    let kind = node.metadata().expect("it is there").file_type();
    // Without root they are plain files, which creation says.
    if rustix::process::geteuid().is_root() {
        assert!(kind.is_char_device());
        let device = rustix::fs::stat(&node).expect("it is there").st_rdev;
        assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (195, 7));
    } else {
        assert!(kind.is_file());
    }
}

#[test]
fn two_seeds_make_two_machines() {
    let uuids = |seed: &str| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        create(directory.path(), &["--hardware", "hgx-h100-80gb", "--seed", seed]);
        text(&smi(directory.path(), &["-L"]).stdout)
    };
    assert_eq!(uuids("a"), uuids("a"));
    assert_ne!(uuids("a"), uuids("b"));
}

#[test]
fn the_stub_prints_what_scripts_ask_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = create(directory.path(), &["--hardware", "l40s-x8"]);
    assert!(
        emulator(&["process", "add", &path, "--card", "1", "--pid", "4711", "--memory-mib", "100"])
            .status
            .success()
    );
    let fields =
        ["--query-gpu=index,name,memory.used,memory.total,mig.mode.current", "--format=csv,noheader"];
    let rows = text(&smi(directory.path(), &fields).stdout);
    assert_eq!(rows.lines().nth(1), Some("1, NVIDIA L40S, 100 MiB, 46068 MiB, [N/A]"));
    let one =
        text(&smi(directory.path(), &["-i", "3", "--query-gpu=uuid,pci.bus_id", "--format=csv"]).stdout);
    assert_eq!(one.lines().count(), 2, "{one}");
    assert!(one.starts_with("uuid, pci.bus_id\nGPU-"), "{one}");
    let xml = text(&smi(directory.path(), &["-q", "-x"]).stdout);
    assert_eq!(xml.matches("<gpu id=").count(), 8);
    assert!(xml.contains("<total>46068 MiB</total>") && xml.contains("<pid>4711</pid>"), "{xml}");
    let table = text(&smi(directory.path(), &[]).stdout);
    assert!(table.contains("4711") && table.contains("Driver Version: 580.105.08"), "{table}");
    let width = table.lines().map(str::len).max();
    assert!(table.lines().all(|line| Some(line.len()) == width), "{table}");
    let unknown = smi(directory.path(), &["--query-gpu=colour", "--format=csv"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("colour"));
}

#[test]
fn the_stub_says_what_the_library_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = create(directory.path(), &["--hardware", "t4"]);
    assert!(emulator(&["lose", &path, "--card", "0"]).status.success());
    let output = smi(directory.path(), &["-L"]);
    assert_eq!(output.status.code(), Some(15));
    assert!(text(&output.stderr).contains("GPU is lost"));
    std::fs::remove_dir_all(directory.path().join("state")).expect("removed");
    assert_eq!(smi(directory.path(), &["-L"]).status.code(), Some(9), "no driver");
}
