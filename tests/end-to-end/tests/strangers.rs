//! NVML clients written by others read emulated machines correctly. Clients that need more than Rust and Go are run by
//! `cargo xtask strangers`.

use tessera_harness::{
    progress::Progress,
    skip,
    strangers::{EmulatedMachine, StrangersError, go_nvml, machine, nvidia_ctk},
    tools::{Module, Tools},
    workspace,
};

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
