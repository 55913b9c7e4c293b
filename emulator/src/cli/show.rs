//! `gpu-emulator show`.

use serde_json::json;

use super::list::table;
use super::{Directory, Output, Target};

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
    if arguments.output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&json!({ "machine": machine, "state": state }))?);
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
                format!("{} % busy, {} processes", state.utilization_gpu, state.processes.len())
            },
        ]);
    }
    println!("{cards}");
    if !state.faults.is_empty() {
        let mut faults = table(&["FAULT", "CALL", "CARD", "EFFECT", "TIMES"]);
        for fault in &state.faults {
            faults.add_row([
                fault.number.to_string(),
                fault.call.clone().unwrap_or("every".into()),
                fault.card.map_or("every".into(), |card| card.to_string()),
                fault.effect.to_string(),
                fault.remaining.map_or("always".into(), |remaining| remaining.to_string()),
            ]);
        }
        println!("\n{faults}");
    }
    Ok(())
}
