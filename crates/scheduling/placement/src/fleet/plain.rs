//! Nodes in plain numbers, with their values under the learned demand.

use tessera_api::PciBusId;
use tessera_cluster::Cluster;

use super::{Fleet, NodeIndex};
use crate::node_cards::{CardUse, NodeCards};
use crate::value::{PlainCard, PlainNode};

impl Fleet {
    /// Brings the plain numbers of all nodes up to date, and their values in line with the learned demand.
    pub fn refresh(&mut self, cluster: &Cluster, driver: &str) {
        let now = self.now();
        if self.plain_until != Some(now) {
            let changed = self.plain_until.and_then(|until| self.changed_since(until));
            let changed: Vec<NodeIndex> =
                changed.map_or_else(|| (0..self.nodes.len() as NodeIndex).collect(), <[_]>::to_vec);
            changed.into_iter().for_each(|index| self.make_plain(index, cluster, driver));
            self.plain_until = Some(now);
        }
        if self.packing.is_due() {
            let all = self.nodes.iter().filter_map(|node| node.plain.as_ref());
            if self.packing.look(all) {
                let all = self.nodes.iter_mut().filter_map(|node| node.plain.as_mut());
                all.for_each(|node| node.revalue(&self.packing));
            }
        }
    }

    /// Brings a node's plain numbers up to date.
    pub fn make_plain(&mut self, index: NodeIndex, cluster: &Cluster, driver: &str) {
        if self.nodes[index as usize].plain.is_some() {
            return;
        }
        self.cards(index, cluster, driver);
        let node = &mut self.nodes[index as usize];
        let object = cluster.objects().node(&node.name);
        let plain = object.map_or_else(PlainNode::default, |object| {
            let plain_card = |(address, card): (&PciBusId, &CardUse)| PlainCard {
                address: *address,
                model: self
                    .packing
                    .model(node.parts.as_ref().map_or("", |parts| parts.product_name(address))),
                free: card.free(node.avoided.contains_key(address)),
            };
            let cards: Vec<PlainCard> =
                node.cards.iter().flat_map(|cards| &cards.cards).map(plain_card).collect();
            self.packing.node(&cards, cluster.room(object))
        });
        node.plain = Some(plain);
    }

    /// A node in plain numbers, as of [`Self::refresh`].
    pub fn plain(&self, index: NodeIndex) -> &PlainNode {
        static NONE: PlainNode = PlainNode::NONE;
        self.nodes[index as usize].plain.as_ref().unwrap_or(&NONE)
    }

    /// Number of a card's model.
    pub fn model(&mut self, index: NodeIndex, card: &PciBusId) -> u8 {
        let parts = self.nodes[index as usize].parts.as_ref();
        self.packing.model(parts.map_or("", |parts| parts.product_name(card)))
    }

    /// Free thousandths of a node's cards in the state `after`, in the order of its plain numbers.
    pub fn free_after(&self, index: NodeIndex, after: &NodeCards) -> Box<[u16]> {
        let node = &self.nodes[index as usize];
        let free = |card: PciBusId| {
            after.cards.get(&card).map_or(0, |used| used.free(node.avoided.contains_key(&card)))
        };
        self.plain(index).cards().map(free).collect()
    }
}
