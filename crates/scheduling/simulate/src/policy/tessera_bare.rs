//! Tessera's policy alone, without the product's rules on combinations of devices.

use tessera_placement::packing::{Demand, Node, NodeValuePacking, Place};

use super::Policy;
use crate::Random;

impl Policy for NodeValuePacking {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, _random: &mut Random) -> Option<Place> {
        self.choose(nodes, demand)
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, _demand: &Demand) {
        self.changed(nodes, place.node);
    }

    fn departed(&mut self, nodes: &[Node], place: &Place, _demand: &Demand) {
        self.departed();
        self.changed(nodes, place.node);
    }
}
