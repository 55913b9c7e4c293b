//! Tests the emulator with NVML clients of other authors: they read an emulated machine, and their output is compared
//! with the facts from which the machine was made.
//!
//! [`go_nvml`] and [`nvidia_ctk`] need only Go, and run with the tests; [`nvidia_ml_py`] and [`nvtop`] need more, and
//! run with `cargo xtask strangers` ([`run`]).

pub mod charts;
pub mod expected;
pub mod go_nvml;
pub mod machine;
pub mod nvidia_ctk;
pub mod nvidia_ml_py;
pub mod nvtop;
pub mod partitions;

use std::{env, fs::File, path::Path};

use thiserror::Error;

pub use machine::{EmulatedMachine, MachineError};

use crate::{
    cache::CacheError,
    progress::Progress,
    tools::{Module, ToolError, Tools},
    workspace::{self, WorkspaceError},
};

/// Why a stranger could not run, or how its output differs from the machine's facts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StrangersError {
    /// A program of this repository is missing.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A Go tool could not be built.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There is no cache directory.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The emulated machine could not be made or changed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A stranger failed.
    #[error("{stranger} on {hardware}: {reason}")]
    Failed {
        /// The stranger.
        stranger: &'static str,
        /// The machine's hardware.
        hardware: String,
        /// Its error.
        reason: String,
    },
    /// A stranger's output differs from the machine's facts.
    #[error("{stranger} reads {hardware} otherwise than it was made:\n{}", .differences.join("\n"))]
    Different {
        /// The stranger.
        stranger: &'static str,
        /// The machine's hardware.
        hardware: String,
        /// The differences.
        differences: Vec<String>,
    },
    /// With `CI=true`: a stranger is missing.
    #[error("not all strangers are there, and with CI=true they must be:\n{}", .0.join("\n"))]
    NotFound(Vec<String>),
}

/// The reason why a stranger is missing, and how to install it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// A lock for downloads into a directory of the cache, one process at a time; held until dropped.
fn lock(directory: &Path) -> Result<File, NotFound> {
    let path = directory.with_extension("lock");
    let failed = |error: std::io::Error| NotFound(format!("cannot lock {}: {error}", path.display()));
    let file = File::create(&path).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Result of [`run`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of machines read.
    pub machines: usize,
    /// Strangers with results.
    pub strangers: Vec<&'static str>,
    /// Missing strangers, with the reason.
    pub not_found: Vec<String>,
}

/// Lets every stranger read every machine, and reports the progress to `report`.
///
/// # Errors
/// When a stranger fails or its output differs from the facts; with `CI=true` also when one is missing.
pub fn run(progress: &Progress, report: &mut dyn FnMut(&str)) -> Result<Summary, StrangersError> {
    let programs = workspace::build_programs()?;
    let tools = Tools::build(&[Module::StrangersGoNvml, Module::NvidiaContainerToolkit], progress)?;
    let mut summary = Summary::default();
    let python = nvidia_ml_py::Interpreter::find()?;
    let nvtop = nvtop::Nvtop::find()?;
    let names = machine::names(&programs)?;
    let first = names.first().map(|name| EmulatedMachine::create(&programs, name)).transpose()?;
    let ctk = first.as_ref().map_or(Ok(()), nvidia_ctk::available);
    for missing in [ctk.as_ref().err(), python.as_ref().err(), nvtop.as_ref().err()].into_iter().flatten() {
        report(&missing.0);
        summary.not_found.push(missing.0.clone());
    }
    if !summary.not_found.is_empty() && env::var("CI").as_deref() == Ok("true") {
        return Err(StrangersError::NotFound(summary.not_found));
    }
    summary.strangers = vec![go_nvml::NAME];
    summary.strangers.extend(ctk.is_ok().then_some(nvidia_ctk::NAME));
    summary.strangers.extend(python.is_ok().then_some(nvidia_ml_py::NAME));
    summary.strangers.extend(nvtop.is_ok().then_some(nvtop::NAME));
    for hardware in names {
        let machine = EmulatedMachine::create(&programs, &hardware)?;
        go_nvml::partition(&machine, &tools)?;
        if let Ok(python) = &python {
            python.partition(&machine)?;
        }
        machine.let_something_happen()?;
        go_nvml::check(&machine, &tools)?;
        if ctk.is_ok() {
            nvidia_ctk::check(&machine, &tools)?;
        }
        if let Ok(python) = &python {
            python.check(&machine)?;
        }
        if let Ok(nvtop) = &nvtop {
            nvtop.check(&machine)?;
        }
        report(&format!("{hardware}: {} agree", summary.strangers.join(", ")));
        summary.machines += 1;
    }
    Ok(summary)
}
