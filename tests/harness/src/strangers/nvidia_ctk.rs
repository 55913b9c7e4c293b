//! nvidia-ctk: NVIDIA's generator of CDI specs.

use std::{collections::BTreeMap, collections::BTreeSet, os::unix::fs::FileTypeExt, process::Command};

use serde_json::{Value, json};

use super::{EmulatedMachine, NotFound, StrangersError, expected};
use crate::tools::{Module, Tools};

/// Its name in messages.
pub const NAME: &str = "nvidia-ctk";

/// Major number of the driver's devices (Linux `Documentation/admin-guide/devices.txt`).
const MAJOR: u64 = 195;

/// Whether nvidia-ctk can run: cards without device nodes are refused, and only root can make nodes.
///
/// # Errors
/// [`NotFound`] where the machine's nodes are plain files.
pub fn available(machine: &EmulatedMachine) -> Result<(), NotFound> {
    if is_device(machine, "nvidiactl") {
        return Ok(());
    }
    Err(NotFound(format!("{NAME} needs device nodes, and only root may make them: run this as root")))
}

/// Compares the devices found by `nvidia-ctk cdi generate` with the machine's facts and files.
///
/// # Errors
/// See [`StrangersError`].
pub fn check(machine: &EmulatedMachine, tools: &Tools) -> Result<(), StrangersError> {
    let hardware = machine.hardware().to_owned();
    let spec = generate(machine, tools)?;
    let facts = machine.facts()?;
    let differences = expected::differences(&expectation(machine, &facts), &findings(&spec));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(StrangersError::Different { stranger: NAME, hardware, differences })
    }
}

/// The CDI spec generated for a machine, with nvidia-ctk itself as the program for hooks.
///
/// # Errors
/// [`StrangersError::Failed`]
pub fn generate(machine: &EmulatedMachine, tools: &Tools) -> Result<Value, StrangersError> {
    let hardware = machine.hardware().to_owned();
    let failed =
        |reason: String| StrangersError::Failed { stranger: NAME, hardware: hardware.clone(), reason };
    let program = tools.path(Module::NvidiaContainerToolkit, "nvidia-ctk")?;
    let root = machine.directory();
    let output = Command::new(&program)
        .args(["cdi", "generate", "--mode", "nvml", "--format", "json", "--nvidia-cdi-hook-path"])
        .arg(&program)
        .arg("--driver-root")
        .arg(root)
        .arg("--dev-root")
        .arg(root)
        // To use neither this computer's driver nor its configuration.
        .env("XDG_CONFIG_HOME", root)
        .output()
        .map_err(|error| failed(format!("it cannot be started: {error}")))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(failed(error.lines().last().unwrap_or("it failed").to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no JSON: {error}")))
}

/// Device nodes by path, with their numbers.
type Nodes = BTreeMap<String, Value>;

fn findings(spec: &Value) -> Value {
    let nodes = |edits: &Value| -> Nodes {
        let nodes = edits["deviceNodes"].as_array().cloned().unwrap_or_default();
        let number = |node: &Value, name: &str| node[name].as_u64().unwrap_or_default();
        nodes
            .iter()
            .map(|node| (text(&node["path"]), json!([number(node, "major"), number(node, "minor")])))
            .collect()
    };
    let devices = spec["devices"].as_array().cloned().unwrap_or_default();
    let by_name: BTreeMap<String, Nodes> =
        devices.iter().map(|device| (text(&device["name"]), nodes(&device["containerEdits"]))).collect();
    let mounts = spec["containerEdits"]["mounts"].as_array().cloned().unwrap_or_default();
    let hooks = spec["containerEdits"]["hooks"].as_array().cloned().unwrap_or_default();
    let links: BTreeSet<String> = hooks
        .iter()
        .flat_map(|hook| hook["args"].as_array().cloned().unwrap_or_default())
        .map(|argument| text(&argument))
        .filter(|argument| argument.contains("::"))
        .collect();
    json!({
        "devices": by_name,
        "common": nodes(&spec["containerEdits"]),
        "mounts": mounts.iter().map(|mount| text(&mount["containerPath"])).collect::<BTreeSet<_>>(),
        "links": links,
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn expectation(machine: &EmulatedMachine, facts: &Value) -> Value {
    let version = text(&facts["machine"]["driver"]["version"]);
    let cards = facts["machine"]["cards"].as_array().cloned().unwrap_or_default();
    let node = |name: &str, numbers: Value| (format!("/dev/{name}"), numbers);
    let mut by_name: BTreeMap<String, Nodes> = BTreeMap::new();
    for card in &cards {
        let minor = card["minor"].as_u64().unwrap_or_default();
        let nodes = Nodes::from([node(&format!("nvidia{minor}"), json!([MAJOR, minor]))]);
        by_name.insert(card["index"].to_string(), nodes.clone());
        by_name.insert(text(&card["uuid"]), nodes.clone());
        by_name.entry("all".to_owned()).or_default().extend(nodes);
    }
    // The kernel assigns nvidia-uvm's major number when the module is loaded, and lists the number in /proc/devices.
    let uvm = uvm_major(machine);
    let common = Nodes::from([
        node("nvidiactl", json!([MAJOR, 255])),
        node("nvidia-modeset", json!([MAJOR, 254])),
        node("nvidia-uvm", json!([uvm, 0])),
        node("nvidia-uvm-tools", json!([uvm, 1])),
    ]);
    let libraries = [
        ("cuda", "1"),
        ("cudadebugger", "1"),
        ("nvidia-cfg", "1"),
        ("nvidia-ml", "1"),
        ("nvidia-nvvm", "4"),
        ("nvidia-opencl", "1"),
        ("nvidia-ptxjitcompiler", "1"),
    ];
    let mut mounts: BTreeSet<String> =
        libraries.iter().map(|(name, _)| format!("/lib/lib{name}.so.{version}")).collect();
    let programs = ["nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
    mounts.extend(programs.map(|program| format!("/bin/{program}")));
    mounts.extend(
        ["gsp_ga10x.bin", "gsp_tu10x.bin"].map(|file| format!("/lib/firmware/nvidia/{version}/{file}")),
    );
    let mut links: BTreeSet<String> = libraries
        .iter()
        .map(|(name, number)| format!("lib{name}.so.{version}::/lib/lib{name}.so.{number}"))
        .collect();
    links.insert("libcuda.so.1::/lib/libcuda.so".to_owned());
    json!({ "devices": by_name, "common": common, "mounts": mounts, "links": links })
}

/// Whether a node of the machine is a device: without root a plain file stands in.
fn is_device(machine: &EmulatedMachine, name: &str) -> bool {
    let path = machine.directory().join("dev").join(name);
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

fn uvm_major(machine: &EmulatedMachine) -> u64 {
    let devices = std::fs::read_to_string(machine.directory().join("proc/devices")).unwrap_or_default();
    let line = devices.lines().find(|line| line.trim().ends_with(" nvidia-uvm")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
