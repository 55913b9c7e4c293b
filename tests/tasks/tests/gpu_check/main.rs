//! `cargo xtask gpu-check` on emulated machines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod mps;

use tessera_fakes::machine;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use machine::{EmulatedMachine, hardware};

fn gpu_check(driver_root: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera-tasks"));
    command.args(["gpu-check", "--driver-root"]).arg(driver_root).args(arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&output.stderr)))
}

fn verdict<'report>(report: &'report Value, field: &str) -> &'report str {
    let fields = report["fields"].as_array().unwrap();
    fields.iter().find(|it| it["field"] == field).unwrap()["verdict"].as_str().unwrap()
}

#[test]
fn every_machine_agrees_with_its_nvidia_smi() {
    for name in hardware() {
        let machine = EmulatedMachine::new(&name);
        machine.let_happen("process add --card 0 --pid 4711");
        let output = gpu_check(&machine.root(), &["--json"]);
        let report = report(&output);
        let different: Vec<&Value> = report["fields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|field| field["verdict"] == "DIFFERENT")
            .collect();
        assert!(different.is_empty() && output.status.success(), "{name}: {different:#?}");
        for field in ["driver version", "UUID", "name", "memory, total", "MIG mode, current", "minor number"]
        {
            assert_eq!(verdict(&report, field), "OK", "{name}: {field}");
        }
    }
}

#[test]
fn a_difference_fails() {
    let machine = EmulatedMachine::new("t4");
    let smi = Command::new(machine.root().join("bin/nvidia-smi")).args(["-q", "-x"]).output().unwrap();
    let xml = String::from_utf8(smi.stdout).unwrap().replace("Tesla T4", "Tesla T5");
    let other = machine.root().join("other-smi");
    fs::write(&other, format!("#!/bin/sh\ncat <<'END'\n{xml}END\n")).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();

    let arguments = ["--json", "--nvidia-smi", other.to_str().unwrap()];
    let output = gpu_check(&machine.root(), &arguments);
    assert!(!output.status.success());
    let report = report(&output);
    assert_eq!((report["different"].as_u64(), verdict(&report, "name")), (Some(1), "DIFFERENT"));
    assert_eq!(verdict(&report, "UUID"), "OK");
}

#[test]
fn a_query_of_ours_that_fails_is_a_difference() {
    let machine = EmulatedMachine::new("a30-x2");
    machine.let_happen("fault --card 1 --call nvmlDeviceGetCpuAffinity --error UNKNOWN");
    let output = gpu_check(&machine.root(), &["--json"]);
    assert!(!output.status.success());
    assert_eq!(report(&output)["different"], 1);
}

#[test]
fn the_table_ends_with_the_sum() {
    let machine = EmulatedMachine::new("t4");
    let output = gpu_check(&machine.root(), &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Tesla T4") && text.trim_end().ends_with("not compared"), "{text}");
}

#[test]
fn without_a_card_it_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let output = gpu_check(empty.path(), &[]);
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("needs a machine with an NVIDIA card"), "{message}");
}
