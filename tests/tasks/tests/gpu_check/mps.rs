//! `cargo xtask gpu-check --mps`, with the emulator's own `libcuda`.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::machine::{EmulatedMachine, gpu_emulator};
use crate::report;

/// The emulator's library, which is that of CUDA too.
fn libcuda() -> PathBuf {
    let directory = gpu_emulator().parent().unwrap();
    let built = [directory.join("libtessera_emulator.so"), directory.join("deps/libtessera_emulator.so")];
    let modified = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    built.into_iter().filter(|path| path.is_file()).max_by_key(modified).unwrap()
}

fn check(machine: &EmulatedMachine, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tessera-tasks"))
        .args(["gpu-check", "--mps", "--json", "--driver-root"])
        .arg(machine.root())
        .arg("--libcuda")
        .arg(libcuda())
        .env("GPU_EMULATOR_MACHINE", machine.root())
        .args(arguments)
        .output()
        .unwrap()
}

fn outcomes(report: &Value) -> Vec<(&str, &str)> {
    let trials = report["trials"].as_array().unwrap().iter();
    trials.map(|trial| (trial["what"].as_str().unwrap(), trial["outcome"].as_str().unwrap())).collect()
}

/// Whether a trial needs a mount, and so root.
fn is_mount(what: &str) -> bool {
    what.contains("read-only")
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether nothing of the check is left on a card.
fn is_untouched(machine: &EmulatedMachine) -> bool {
    let text = std::fs::read_to_string(machine.root().join("state/state.json")).unwrap();
    let card = serde_json::from_str::<Value>(&text).unwrap()["cards"][0].clone();
    card["processes"] == serde_json::json!([]) && card["computeMode"] == 0
}

#[test]
fn every_limit_holds_and_nothing_stays() {
    let machine = EmulatedMachine::with("hgx-h100-80gb", &["--cuda-version", "13.1"]);
    let output = check(&machine, &[]);
    let report = report(&output);
    let outcomes = outcomes(&report);
    let is_ok = |(what, outcome): &(&str, &str)| *outcome == "OK" || (is_mount(what) && !is_root());
    assert!(outcomes.len() > 15 && outcomes.iter().all(is_ok), "{report:#}");
    assert!(outcomes.iter().any(|(what, _)| is_mount(what)), "{report:#}");
    assert!(output.status.success());
    assert!(is_untouched(&machine));
}

#[test]
fn what_a_driver_does_not_know_is_not_tried() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let output = check(&machine, &[]);
    let report = report(&output);
    let mut not_tried: Vec<_> =
        outcomes(&report).into_iter().filter(|(_, outcome)| *outcome != "OK").collect();
    not_tried.retain(|(what, _)| !is_mount(what) || is_root());
    assert_eq!(not_tried, [("static SM partitions", "NOT TRIED")]);
    assert!(output.status.success());
}

/// Without a daemon between them, CUDA does not hold anybody to anything.
#[test]
fn a_limit_that_does_not_hold_fails() {
    let machine = EmulatedMachine::with("hgx-h100-80gb", &["--cuda-version", "13.1"]);
    // A control program whose orders for limits get lost.
    let bin = machine.root().join("bin");
    let real = bin.join("nvidia-cuda-mps-control-real");
    let stub = bin.join("nvidia-cuda-mps-control");
    std::fs::rename(&stub, &real).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ $# -gt 0 ]; then exec {real} \"$@\"; fi\ngrep -v _limit | {real}\n",
        real = real.display()
    );
    std::fs::write(&stub, script).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&stub, permissions).unwrap();
    let output = check(&machine, &[]);
    let report = report(&output);
    assert!(report["otherwise"].as_u64() > Some(0), "{report:#}");
    assert!(!output.status.success());
    assert!(is_untouched(&machine));
}

#[test]
fn what_is_missing_is_said() {
    let machine = EmulatedMachine::new("t4");
    let smi = machine.root().join("bin/nvidia-smi");
    assert!(Command::new(smi).args(["-i", "0", "-c", "EXCLUSIVE_PROCESS"]).status().unwrap().success());
    let said = |output: Output| {
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(check(&machine, &[])).contains("DEFAULT"));
    assert!(said(check(&machine, &["--card", "7"])).contains("no card 7"));
    let other = EmulatedMachine::new("t4");
    std::fs::remove_file(other.root().join("bin/nvidia-cuda-mps-control")).unwrap();
    assert!(said(check(&other, &[])).contains("nvidia-cuda-mps-control"));
}
