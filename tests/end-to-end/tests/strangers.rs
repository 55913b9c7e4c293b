//! NVML clients written by others read emulated machines correctly. Clients that need more than Rust and Go are run by
//! `cargo xtask strangers`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests have no #[test]")]

use std::collections::BTreeSet;

use serde_json::Value;
use tessera_harness::{
    progress::Progress,
    skip,
    strangers::{EmulatedMachine, StrangersError, go_nvml, machine, nvidia_ctk},
    tools::{Module, Tools},
    workspace,
};
use tessera_journal::LocalFileSystem;
use tessera_kubelet_plugin::cdi::{Roots, find_driver_files};

/// Runs a stranger on every machine, idle and busy.
fn with_every_machine(
    module: Module,
    available: impl Fn(&EmulatedMachine) -> bool,
    check: impl Fn(&EmulatedMachine, &Tools) -> Result<(), StrangersError>,
) -> Result<(), StrangersError> {
    let programs = workspace::build_programs()?;
    let tools = Tools::build(&[module], &Progress::silent())?;
    let names = machine::names(&programs)?;
    assert!(names.len() >= 10, "{names:?}");
    for hardware in names {
        let machine = EmulatedMachine::create(&programs, &hardware)?;
        if !available(&machine) {
            return Ok(());
        }
        check(&machine, &tools)?;
        machine.let_something_happen()?;
        check(&machine, &tools)?;
    }
    Ok(())
}

#[test]
fn go_nvml_reads_every_machine_as_it_was_made() {
    with_every_machine(Module::StrangersGoNvml, |_| true, go_nvml::check)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// What containers get of the driver without `nvidia-ctk` on the node is what they get with it.
#[test]
fn the_plugin_finds_what_nvidia_ctk_finds() {
    let test = "the_plugin_finds_what_nvidia_ctk_finds";
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let check = |machine: &EmulatedMachine, tools: &Tools| {
        let root = machine.directory();
        std::fs::create_dir_all(root.join("sbin")).expect("a directory");
        std::fs::write(root.join("sbin/ldconfig"), "").expect("the host's ldconfig");
        let theirs = nvidia_ctk::generate(machine, tools)?["containerEdits"].clone();
        let roots = Roots { driver: root.to_owned(), host_driver: root.to_owned(), ..Roots::default() };
        let facts = machine.facts()?;
        let version = facts["machine"]["driver"]["version"].as_str().expect("a version").to_owned();
        let hook = tools.path(Module::NvidiaContainerToolkit, "nvidia-ctk").expect("built");
        let disk = std::sync::Arc::new(LocalFileSystem);
        let cache = root.join("cache.json");
        let files = runtime.block_on(find_driver_files(&roots, &version, Some(&hook), &cache, disk));
        let ours = serde_json::to_value(files.edits).expect("JSON");
        assert_eq!(parts(&ours), parts(&theirs), "{}", machine.hardware());
        Ok(())
    };
    let available = |machine: &EmulatedMachine| skip::needs(test, nvidia_ctk::available(machine));
    with_every_machine(Module::NvidiaContainerToolkit, available, check)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Mounts, hooks and variables, in any order; without where ldconfig is, which differs for a root that is not the host's, and
/// without what each of both sets in addition.
fn parts(edits: &Value) -> BTreeSet<String> {
    let list = |name: &str| edits[name].as_array().cloned().unwrap_or_default();
    let mounts = list("mounts").into_iter().map(|mut mount| {
        // lib64 is a link to lib: one file has two names.
        let host =
            std::fs::canonicalize(mount["hostPath"].as_str().expect("a path")).expect("a file of the host");
        mount["hostPath"] = host.display().to_string().into();
        mount.to_string()
    });
    let hooks = list("hooks").into_iter().map(|mut hook| {
        let arguments = hook["args"].as_array_mut().expect("arguments");
        if let Some(at) = arguments.iter().position(|argument| argument == "--ldconfig-path") {
            arguments.drain(at..at + 2);
        }
        // The program's name: `nvidia-ctk hook` is nvidia-cdi-hook.
        arguments[0] = Value::Null;
        arguments.retain(|argument| argument != "hook");
        hook.to_string()
    });
    let variables = list("env").into_iter().map(|variable| variable.to_string());
    let variables = variables.filter(|variable| !variable.contains("NVIDIA_VISIBLE_DEVICES"));
    mounts.chain(hooks).chain(variables).collect()
}

#[test]
fn nvidia_ctk_finds_every_card_and_the_drivers_files() {
    let test = "nvidia_ctk_finds_every_card_and_the_drivers_files";
    let available = |machine: &EmulatedMachine| skip::needs(test, nvidia_ctk::available(machine));
    with_every_machine(Module::NvidiaContainerToolkit, available, nvidia_ctk::check)
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn go_nvml_partitions_every_machine_as_the_tables_say() {
    with_every_machine(
        Module::StrangersGoNvml,
        |_| true,
        |machine, tools| {
            // The second time the card is busy, and its mode does not switch.
            if machine.facts()?["state"]["cards"][0]["processes"] != serde_json::json!([]) {
                return Ok(());
            }
            go_nvml::partition(machine, tools)
        },
    )
    .unwrap_or_else(|error| panic!("{error}"));
}
