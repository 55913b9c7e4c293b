//! An emulated machine for strangers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use thiserror::Error;

/// Why a machine could not be made or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// No temporary directory.
    #[error("cannot make a temporary directory: {0}")]
    Directory(#[source] std::io::Error),
    /// `gpu-emulator` cannot be started.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// Its path.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// `gpu-emulator` failed.
    #[error("gpu-emulator {arguments}: {error}")]
    Emulator {
        /// Its arguments.
        arguments: String,
        /// Its error text.
        error: String,
    },
    /// Its output is not valid.
    #[error("gpu-emulator {arguments} prints no JSON: {source}")]
    Json {
        /// Its arguments.
        arguments: String,
        /// The error.
        #[source]
        source: serde_json::Error,
    },
}

/// An emulated machine in a temporary directory.
#[derive(Debug)]
pub struct EmulatedMachine {
    programs: PathBuf,
    hardware: String,
    directory: TempDir,
}

/// Names of all machines of `gpu-emulator`.
///
/// # Errors
/// See [`MachineError`].
pub fn names(programs: &Path) -> Result<Vec<String>, MachineError> {
    let all = json(programs, &["hardware", "-o", "json"])?;
    let machines = all["machines"].as_array().cloned().unwrap_or_default();
    Ok(machines.iter().filter_map(|machine| machine["name"].as_str().map(str::to_owned)).collect())
}

fn emulator(programs: &Path, arguments: &[&str]) -> Result<String, MachineError> {
    let program = programs.join("gpu-emulator");
    let output = Command::new(&program)
        .args(arguments)
        .output()
        .map_err(|source| MachineError::Start { program, source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MachineError::Emulator { arguments: arguments.join(" "), error })
}

fn json(programs: &Path, arguments: &[&str]) -> Result<Value, MachineError> {
    let text = emulator(programs, arguments)?;
    serde_json::from_str(&text)
        .map_err(|source| MachineError::Json { arguments: arguments.join(" "), source })
}

impl EmulatedMachine {
    /// Makes a machine with the `gpu-emulator` in `programs`.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn create(programs: &Path, hardware: &str) -> Result<Self, MachineError> {
        let directory = tempfile::tempdir().map_err(MachineError::Directory)?;
        let machine = Self { programs: programs.to_owned(), hardware: hardware.to_owned(), directory };
        machine.tell(&["create"], &["--hardware", hardware, "--seed", "strangers"])?;
        Ok(machine)
    }

    /// Name of the machine.
    #[must_use]
    pub fn hardware(&self) -> &str {
        &self.hardware
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its NVML library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.directory().join("lib/libnvidia-ml.so.1")
    }

    /// Its description and state.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn facts(&self) -> Result<Value, MachineError> {
        json(&self.programs, &["show", &self.directory().display().to_string(), "-o", "json"])
    }

    /// Runs `gpu-emulator COMMAND… DIR ARGUMENTS…`.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn tell(&self, command: &[&str], arguments: &[&str]) -> Result<(), MachineError> {
        let directory = self.directory().display().to_string();
        let all: Vec<&str> = command.iter().chain([&directory.as_str()]).chain(arguments).copied().collect();
        emulator(&self.programs, &all).map(|_| ())
    }

    /// Makes the first card busy, so strangers read more than an idle machine, and takes its last link down, if
    /// any.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn let_something_happen(&self) -> Result<(), MachineError> {
        // This process, so clients looking up the process find one.
        let pid = std::process::id().to_string();
        self.tell(&["process", "add"], &["--card", "0", "--pid", &pid, "--memory-mib", "1234"])?;
        let readings = ["--gpu", "42", "--memory", "7", "--power-milliwatts", "55555", "--temperature", "61"];
        self.tell(&["utilization"], &[&["--card", "0"], &readings[..]].concat())?;
        let links = self.facts()?["machine"]["cards"][0]["links"].as_array().map_or(0, Vec::len);
        if links > 0 {
            self.tell(&["link"], &["--card", "0", "--link", &(links - 1).to_string(), "down"])?;
        }
        Ok(())
    }
}
