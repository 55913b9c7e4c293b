//! Cost of devices of a node: the best sets of known machines, room for partitions, open cards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cards;
mod devices;
// Included by path, as its crate depends on emulated hardware and an API server.
#[path = "../../../../../tests/fakes/src/known_machines.rs"]
#[allow(dead_code, missing_docs)]
mod known_machines;
mod node;
mod packing;
mod partitions;

use tessera_api::NodeReport;
use tessera_inventory::Topology;

use known_machines::KnownMachine;

/// Report of the plugin on such a machine.
fn report(machine: &KnownMachine) -> NodeReport {
    let machine = machine.machine();
    let cards = machine.cards.iter().map(|card| (card.pci, Default::default())).collect();
    let mut report = NodeReport { cards, ..NodeReport::default() };
    Topology::new(&machine).write_to(&mut report);
    let text = serde_json::to_string(&report).unwrap();
    serde_json::from_str(&text).unwrap()
}
