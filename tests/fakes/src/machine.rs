//! An emulated machine, made by the `gpu-emulator` of the same target directory. Tests use the emulator as users do:
//! through its programs and its library, never as a dependency.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// An emulated machine in its own directory, removed on drop.
pub struct EmulatedMachine {
    directory: TempDir,
    /// The emulator's description of the machine: its data file.
    pub facts: Value,
}

/// The emulator's own program, `gpu-emulator`, built first.
pub fn gpu_emulator() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        tessera_workspace::build_packages(&["tessera-emulator"]).unwrap().join("gpu-emulator")
    })
}

/// `mps-host`, built first.
pub fn mps_host() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| tessera_workspace::build_packages(&["tessera-mps-host"]).unwrap().join("mps-host"))
}

/// Every machine the emulator knows.
pub fn hardware() -> Vec<String> {
    let output = succeed(Command::new(gpu_emulator()).args(["hardware", "--output", "json"]));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let machines = list["machines"].as_array().unwrap();
    let names: Vec<String> =
        machines.iter().map(|machine| machine["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.len() >= 10, "the emulator lists too few machines: {names:?}");
    names
}

impl EmulatedMachine {
    /// A machine of this hardware, one of [`hardware`].
    pub fn new(hardware: &str) -> Self {
        Self::with(hardware, &[])
    }

    /// With further arguments of `gpu-emulator create`.
    pub fn with(hardware: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("machine");
        succeed(
            Command::new(gpu_emulator())
                .arg("create")
                .arg(&root)
                .args(["--hardware", hardware])
                .args(arguments),
        );
        let facts = std::fs::read(root.join("state/machine.json")).unwrap();
        EmulatedMachine { directory, facts: serde_json::from_slice(&facts).unwrap() }
    }

    /// The root directory for programs on the machine.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("machine")
    }

    /// Injects a fault or a change: `gpu-emulator fault DIR --card 3 …` for `fault --card 3 …`.
    pub fn let_happen(&self, what: &str) {
        let words: Vec<&str> = what.split_whitespace().collect();
        let command = words.iter().take_while(|word| !word.starts_with("--")).count();
        let mut emulator = Command::new(gpu_emulator());
        succeed(emulator.args(&words[..command]).arg(self.root()).args(&words[command..]));
    }

    /// The emulator's facts of each card.
    pub fn cards(&self) -> &[Value] {
        self.facts["cards"].as_array().unwrap()
    }
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
