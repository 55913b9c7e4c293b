//! Tessera's policy alone, without the product's rules on combinations of devices.

use tessera_placement::packing::{Demand, Node, NodeValuePacking, Place};

use super::Policy;
use crate::Random;

/// Node-value packing with a learned mix.
#[derive(Debug)]
pub struct TesseraBare(NodeValuePacking);

impl TesseraBare {
    /// On these nodes.
    pub fn new(nodes: &[Node]) -> Self {
        Self(NodeValuePacking::new(nodes))
    }
}

impl Policy for TesseraBare {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, _random: &mut Random) -> Option<Place> {
        self.0.choose(nodes, demand)
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, _demand: &Demand) {
        self.0.changed(nodes, place.node);
    }

    fn departed(&mut self, nodes: &[Node], place: &Place, _demand: &Demand) {
        self.0.departed();
        self.0.changed(nodes, place.node);
    }
}
