//! `gpu-emulator hardware`.

use comfy_table::{Table, presets};
use serde_json::json;

use super::Output;
use crate::hardware::{self, Board};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Also lists boards and topologies, which create takes in place of a machine's own.
    #[arg(long)]
    all: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut machines = Vec::new();
    for name in hardware::machine_names() {
        let (machine, sources) = hardware::hardware(name)?;
        let (board, board_sources) = hardware::board(&machine.board)?;
        let (topology, topology_sources) = hardware::topology(&machine.topology)?;
        let mig = board.mig_model.as_deref().map(hardware::mig_model).transpose()?;
        let (profiles, mig_sources) = mig.map(|(model, sources)| (model.profiles, sources)).unzip();
        machines.push(json!({
            "name": name,
            "alsoCalled": machine.also_called,
            "product": machine.product,
            "cards": topology.cards(),
            "board": machine.board,
            "card": board.name,
            "memoryMiB": board.memory_total_mib,
            "topology": machine.topology,
            "driverVersion": machine.driver_version,
            "migCapable": board.mig_capable,
            "migProfiles": profiles,
            "sources": {
                "machine": sources,
                "board": board_sources,
                "topology": topology_sources,
                "mig": mig_sources,
            },
        }));
    }
    if arguments.output == Output::Json {
        let mut all = json!({ "machines": machines });
        if arguments.all {
            all["boards"] = hardware::board_names().into();
            all["topologies"] = hardware::topology_names().into();
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    let mut table = table(&["NAME", "ALSO CALLED", "CARDS", "CARD", "MEMORY", "MIG", "MACHINE"]);
    for machine in &machines {
        let text = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
        table.add_row([
            text("name"),
            machine["alsoCalled"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            machine["cards"].to_string(),
            text("card"),
            format!("{} MiB", machine["memoryMiB"]),
            if machine["migCapable"] == true { "yes" } else { "no" }.to_owned(),
            text("product"),
        ]);
    }
    println!("{table}");
    if arguments.all {
        let mut boards = self::table(&["BOARD", "CARD"]);
        for name in hardware::board_names() {
            let (Board { name: card, .. }, _) = hardware::board(name)?;
            boards.add_row([name, &card]);
        }
        let mut topologies = self::table(&["TOPOLOGY", "CARDS", "MACHINE"]);
        for name in hardware::topology_names() {
            let (topology, _) = hardware::topology(name)?;
            topologies.add_row([name, &topology.cards().to_string(), &topology.product]);
        }
        println!("\n{boards}\n\n{topologies}");
    }
    Ok(())
}

/// A table without lines.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}
