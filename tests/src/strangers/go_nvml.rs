//! go-nvml: the Go bindings that NVIDIA's own Kubernetes software uses.

use std::process::Command;

use super::{EmulatedMachine, StrangersError, expected};
use crate::tools::{Module, Tools};

/// Its name in messages.
pub const NAME: &str = "go-nvml";

/// Compares all that go-nvml reads with the machine's facts.
///
/// # Errors
/// See [`StrangersError`].
pub fn check(machine: &EmulatedMachine, tools: &Tools) -> Result<(), StrangersError> {
    let mut command = Command::new(tools.path(Module::StrangersGoNvml, "strangers-go-nvml")?);
    command.arg(machine.library());
    compare(NAME, machine, &mut command)
}

/// Runs a program that prints a document, and compares that.
pub(super) fn compare(
    stranger: &'static str,
    machine: &EmulatedMachine,
    command: &mut Command,
) -> Result<(), StrangersError> {
    let hardware = machine.hardware().to_owned();
    let failed = |reason: String| StrangersError::Failed { stranger, hardware: hardware.clone(), reason };
    let output = command.output().map_err(|error| failed(format!("it cannot be started: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let found =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no JSON: {error}")))?;
    let differences = expected::differences(&expected::document(&machine.facts()?), &found);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(StrangersError::Different { stranger, hardware, differences })
    }
}
