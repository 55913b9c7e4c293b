//! A trace as a fleet: its nodes with the slices that the plugin would publish, its demands as shapes of pods.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{CELDeviceSelector, DeviceSelector};
use tessera_api::{PciBusId, attribute};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_inventory::pool::Held;
use tessera_placement::packing::{Cards, Demand, MAX_MODELS, ModelSet, Node};

use super::workload::Ask;
use super::{Fleet, Pools, Shape, objects};

/// Memory of a card in bytes. The traces lack the size; a share requests the same fraction of memory as of the card.
const CARD_MEMORY: u64 = 16 << 30;

/// Name of the node at this index of the trace.
pub(crate) fn node_name(index: usize) -> String {
    format!("n{index:06}")
}

fn model_name(model: u8) -> String {
    format!("m{model}")
}

fn card(index: usize, model: u8) -> Card {
    // Nodes have at most 16 cards, and device 0 and function 0 are on every bus.
    #[allow(clippy::expect_used, reason = "a good address")]
    let address = PciBusId::new(0, index as u8 + 1, 0, 0).expect("an address");
    Card {
        index: Some(index as u32),
        product_name: Some(model_name(model)),
        memory_bytes: Some(CARD_MEMORY),
        ..Card::new(address)
    }
}

impl Fleet {
    /// These empty nodes of a trace, without a limit of pods, with all cards offered whole and in shares.
    pub(crate) fn of_trace(nodes: &[Node]) -> Self {
        let (mut fleet, pools) = (Self::default(), Pools::simulated());
        let kubernetes = fleet.kubernetes.to_string();
        let mut kinds = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let (cpu_milli, memory_mib) = (node.cpu_milli_in_all(), node.memory_mib_in_all());
            let key = (node.model(), node.cards().len(), cpu_milli, memory_mib);
            let kind = kinds.entry(key).or_insert_with(|| {
                let mut object = objects::node(&Default::default(), cpu_milli, memory_mib);
                let allocatable = object.status.as_mut().and_then(|status| status.allocatable.as_mut());
                allocatable.into_iter().for_each(|allocatable| drop(allocatable.remove("pods")));
                let cards = (0..node.cards().len()).map(|index| card(index, node.model()));
                let machine = Arc::new(Machine { cards: cards.collect(), ..Machine::default() });
                let labels = Default::default();
                let resolution =
                    pools.resolve(&fleet.driver, &labels, &machine, &kubernetes, &mut Default::default());
                Arc::new(fleet.kind("trace", object, &resolution, &Held::default()))
            });
            let (kind, name) = (Arc::clone(kind), node_name(index));
            fleet.push(name.clone(), name, kind);
        }
        fleet
    }

    /// The cards with these addresses on the node of this name.
    pub(crate) fn cards_of(&self, node: &str, addresses: &[PciBusId]) -> Option<(usize, Cards)> {
        let index = self.index(node)?;
        let all = self.nodes[index].cards();
        let place = |address: &PciBusId| all.keys().position(|card| card == address);
        Some((index, addresses.iter().map(place).collect::<Option<Cards>>()?))
    }

    /// Pods with this demand of a trace on this fleet.
    pub(crate) fn shape_of(&self, demand: &Demand) -> Shape {
        let ask = match demand.is_share() {
            true => Ask::Share(demand.size() as u32),
            false => Ask::Cards(u32::from(demand.cards())),
        };
        let mut shape = ask.shape(self, None, (demand.cpu_milli(), demand.memory_mib()));
        if demand.cards() == 0 {
            shape.claims.clear();
            shape.pod.spec.get_or_insert_default().resource_claims = None;
        }
        if demand.models() != ModelSet::ANY {
            let wanted = (0..MAX_MODELS).filter(|model| demand.models().has(*model));
            let names: Vec<String> = wanted.map(|model| format!("'{}'", model_name(model))).collect();
            let (driver, name) = (&self.driver, attribute::PRODUCT_NAME);
            let expression = format!("device.attributes['{driver}'].{name} in [{}]", names.join(", "));
            let selector = DeviceSelector { cel: Some(CELDeviceSelector { expression }) };
            let devices = shape.claims.iter_mut().filter_map(|(_, claim)| claim.devices.as_mut());
            for exactly in devices.flat_map(|devices| devices.requests.iter_mut().flatten()) {
                exactly.exactly.get_or_insert_default().selectors = Some(vec![selector.clone()]);
            }
        }
        shape
    }
}
