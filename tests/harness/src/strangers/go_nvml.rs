//! go-nvml: the Go bindings used by NVIDIA's own Kubernetes software.

use std::process::Command;

use serde_json::Value;

use super::{EmulatedMachine, StrangersError, expected, partitions};
use crate::tools::{Module, Tools};

/// Its name in messages.
pub const NAME: &str = "go-nvml";

/// Compares all values read by go-nvml with the machine's facts.
///
/// # Errors
/// See [`StrangersError`].
pub fn check(machine: &EmulatedMachine, tools: &Tools) -> Result<(), StrangersError> {
    let mut command = Command::new(tools.path(Module::StrangersGoNvml, "strangers-go-nvml")?);
    command.arg(machine.library());
    compare(NAME, machine, &mut command)
}

/// Lets go-nvml partition the machine's first card, and compares the results with the tables.
///
/// # Errors
/// See [`StrangersError`].
pub fn partition(machine: &EmulatedMachine, tools: &Tools) -> Result<(), StrangersError> {
    let program = tools.path(Module::StrangersGoNvml, "strangers-go-nvml")?;
    partitions::check(NAME, machine, |steps| {
        document(NAME, machine, Command::new(&program).arg(machine.library()).arg(steps.to_string()))
    })
}

/// Runs a program and compares its printed document.
pub(super) fn compare(
    stranger: &'static str,
    machine: &EmulatedMachine,
    command: &mut Command,
) -> Result<(), StrangersError> {
    let hardware = machine.hardware().to_owned();
    let found = document(stranger, machine, command)?;
    let differences = expected::differences(&expected::document(&machine.facts()?), &found);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(StrangersError::Different { stranger, hardware, differences })
    }
}

/// Runs a program and returns its printed document.
pub(super) fn document(
    stranger: &'static str,
    machine: &EmulatedMachine,
    command: &mut Command,
) -> Result<Value, StrangersError> {
    let hardware = machine.hardware().to_owned();
    let failed = |reason: String| StrangersError::Failed { stranger, hardware: hardware.clone(), reason };
    let output = command.output().map_err(|error| failed(format!("it cannot be started: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no JSON: {error}")))
}
