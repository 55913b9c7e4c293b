//! `gpu-emulator show`.

use serde_json::{Value, json};

use super::list::table;
use super::{Directory, Output, Target};
use crate::machine::Machine;
use crate::mig;
use crate::state::{Moment, State};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    directory: Directory,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Target { store, machine } = Target::open(&arguments.directory.directory)?;
    let state = store.state()?;
    let devices = mig_devices(&machine, &state);
    if arguments.output == Output::Json {
        let all = json!({ "machine": machine, "state": state, "migDevices": devices });
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    println!(
        "{} ({}), driver {}, CUDA {}\n",
        machine.product, machine.hardware, machine.driver.version, machine.driver.cuda_version
    );
    let mut cards = table(&["CARD", "MINOR", "NAME", "PCI", "NUMA", "NVLINKS", "UUID", "STATE"]);
    for (card, state) in machine.cards.iter().zip(&state.cards) {
        let links = card.links.iter().filter(|link| link.remote.is_some()).count() - state.links_down.len();
        cards.add_row([
            card.index.to_string(),
            card.minor.to_string(),
            card.board.name.clone(),
            card.pci.to_string(),
            card.numa_node.map_or("-".to_owned(), |node| node.to_string()),
            links.to_string(),
            card.uuid.clone(),
            if state.lost {
                "lost".to_owned()
            } else {
                format!("{} % busy, {} processes", state.busy_percent(), state.processes.len())
            },
        ]);
    }
    println!("{cards}");
    partitions(&machine, &state);
    if !state.faults.is_empty() {
        let mut faults = table(&["FAULT", "CALL", "CARD", "EFFECT", "TIMES"]);
        for fault in &state.faults {
            faults.add_row([
                fault.number.to_string(),
                fault.call.clone().unwrap_or("every".into()),
                fault.card.map_or("every".into(), |card| card.to_string()),
                match fault.moment {
                    Moment::Before => fault.effect.to_string(),
                    Moment::After => format!("{}, after it was done", fault.effect),
                },
                fault.remaining.map_or("always".into(), |remaining| remaining.to_string()),
            ]);
        }
        println!("\n{faults}");
    }
    Ok(())
}

/// The MIG devices of all cards, as NVML reports them.
fn mig_devices(machine: &Machine, state: &State) -> Vec<Value> {
    let mut devices = Vec::new();
    for (card, state) in machine.cards.iter().zip(&state.cards) {
        for (index, (gpu, compute)) in state.mig.devices().enumerate() {
            let profile = card.mig.as_ref().and_then(|model| model.profile(gpu.profile));
            devices.push(json!({
                "card": card.index,
                "index": index,
                "uuid": mig::uuid(card, gpu, compute),
                "name": profile.map(|profile| mig::compute::name(profile, compute.size)),
                "gpuInstance": gpu.id,
                "computeInstance": compute.id,
            }));
        }
    }
    devices
}

/// MIG mode and partitions of the cards with MIG state.
fn partitions(machine: &Machine, state: &State) {
    let mut rows =
        table(&["CARD", "MIG MODE", "GPU INSTANCE", "PROFILE", "SLICES", "COMPUTE INSTANCE", "UUID"]);
    for (card, state) in machine.cards.iter().zip(&state.cards) {
        let mode = match (state.mig.enabled, state.mig.pending) {
            (false, false) => continue,
            (true, true) => "on",
            (false, true) => "off until reset",
            (true, false) => "on until reset",
        };
        let number = card.index.to_string();
        if state.mig.instances.is_empty() {
            rows.add_row([&number, mode, "none", "", "", "", ""]);
        }
        for gpu in &state.mig.instances {
            let profile = card.mig.as_ref().and_then(|model| model.profile(gpu.profile));
            let name = profile.map_or("?", |profile| profile.name.as_str());
            let (id, slices) = (gpu.id.to_string(), format!("{}:{}", gpu.start, gpu.size));
            let of_gpu = [number.as_str(), mode, &id, name, &slices];
            if gpu.compute_instances.is_empty() {
                rows.add_row(of_gpu.into_iter().chain(["none", ""]));
            }
            for compute in &gpu.compute_instances {
                let place = format!("{} at {}:{}", compute.id, compute.start, compute.size);
                let uuid = mig::uuid(card, gpu, compute);
                rows.add_row(of_gpu.into_iter().chain([place.as_str(), &uuid]));
            }
        }
    }
    if rows.row_count() > 0 {
        println!("\n{rows}");
    }
}
