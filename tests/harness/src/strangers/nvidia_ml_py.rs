//! nvidia-ml-py: NVIDIA's Python bindings.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{EmulatedMachine, NotFound, StrangersError, go_nvml, partitions};
use crate::{cache, workspace};

/// Its name in messages.
pub const NAME: &str = "nvidia-ml-py";

/// A Python with nvidia-ml-py, in a virtual environment in the cache.
#[derive(Debug)]
pub struct Interpreter {
    python: PathBuf,
}

fn folder() -> PathBuf {
    workspace::root().join("tests/strangers")
}

impl Interpreter {
    /// Finds nvidia-ml-py, or installs it if there is a Python 3 with `venv` and the package can be downloaded.
    ///
    /// # Errors
    /// [`StrangersError::Cache`] where there is no cache.
    pub fn find() -> Result<Result<Self, NotFound>, StrangersError> {
        let requirements = folder().join("requirements.txt");
        let version = fs::read_to_string(&requirements).unwrap_or_default().trim().replace("==", "-");
        let environment = cache::cache_directory()?.join(version);
        let _lock = match super::lock(&environment) {
            Ok(lock) => lock,
            Err(reason) => return Ok(Err(reason)),
        };
        let python = environment.join("bin/python");
        if !works(&python)
            && let Err(reason) = make(&environment, &requirements)
        {
            return Ok(Err(NotFound(format!(
                "{NAME} is not there: {reason}. It needs a python3 with its venv module (on Debian: apt-get install \
                 python3-venv) and the Python package index"
            ))));
        }
        Ok(Ok(Self { python }))
    }

    fn command(&self, machine: &EmulatedMachine) -> Command {
        let mut command = Command::new(&self.python);
        command
            .arg("-B")
            .arg(folder().join("nvidia_ml_py.py"))
            .env("LD_LIBRARY_PATH", machine.directory().join("lib"));
        command
    }

    /// Lets nvidia-ml-py partition the machine's first card, and compares the results with the tables.
    ///
    /// # Errors
    /// See [`StrangersError`].
    pub fn partition(&self, machine: &EmulatedMachine) -> Result<(), StrangersError> {
        partitions::check(NAME, machine, |steps| {
            go_nvml::document(NAME, machine, self.command(machine).arg(steps.to_string()))
        })
    }

    /// Compares all values read by nvidia-ml-py with the machine's facts.
    ///
    /// # Errors
    /// See [`StrangersError`].
    pub fn check(&self, machine: &EmulatedMachine) -> Result<(), StrangersError> {
        go_nvml::compare(NAME, machine, &mut self.command(machine))
    }
}

fn works(python: &Path) -> bool {
    let imported = Command::new(python).args(["-c", "import pynvml"]).output();
    imported.is_ok_and(|output| output.status.success())
}

fn make(environment: &Path, requirements: &Path) -> Result<(), String> {
    let run = |command: &mut Command| -> Result<(), String> {
        let output: Output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.trim().lines().last().unwrap_or("it failed").to_owned();
        if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {last}")) }
    };
    let python = env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(environment))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    run(Command::new(environment.join("bin/python")).args(install).arg(requirements))
}
