//! The nodes with cards of ours, and which of them changed.

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{NodeReport, node_report};
use tessera_cluster::Cluster;
use tessera_inventory::Topology;

use crate::node_cards::{NodeCards, Parts};

/// A node's number in the fleet; it stays the same while the process lives.
pub(crate) type NodeIndex = u32;

/// The nodes with cards of ours.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    nodes: Vec<FleetNode>,
    by_name: HashMap<String, NodeIndex>,
    /// Nodes in the order in which they changed.
    changes: Vec<NodeIndex>,
    /// Number of changes that are no longer in `changes`.
    forgotten: usize,
}

/// A node with cards of ours.
#[derive(Debug)]
pub(crate) struct FleetNode {
    pub name: String,
    /// What its plugin reports, with the name of the slice that says it.
    pub report: Option<(String, NodeReport)>,
    /// How its cards are connected, by its report.
    pub topology: Option<Topology>,
    /// The use of its cards; `None` until somebody asks after a change.
    cards: Option<NodeCards>,
    /// What its devices take of their cards; `None` until somebody asks after a change of its slices.
    parts: Option<Parts>,
}

impl FleetNode {
    /// Whether pods are sent here.
    pub fn is_steered(&self) -> bool {
        let cards = self.report.iter().flat_map(|(_, report)| report.cards.values());
        cards.into_iter().any(|card| card.allocation != Allocation::Native)
    }
}

impl Fleet {
    /// Takes in what a slice says of its node. Text that is no report counts as none; its error is returned.
    pub fn apply_slice(&mut self, slice: &ResourceSlice, driver: &str) -> Result<(), serde_json::Error> {
        if slice.spec.driver != driver {
            return Ok(());
        }
        let Some(node) = slice.spec.node_name.as_deref() else { return Ok(()) };
        let annotations = slice.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get(node_report::ANNOTATION)) else {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            self.delete_slice(name, node);
            return Ok(());
        };
        let index = self.index_of(node);
        let name = slice.metadata.name.clone().unwrap_or_default();
        let (report, result) = match serde_json::from_str(text) {
            Ok(report) => (report, Ok(())),
            Err(error) => (NodeReport::default(), Err(error)),
        };
        let node = &mut self.nodes[index as usize];
        node.topology = Topology::from_report(&report);
        node.report = Some((name, report));
        result
    }

    /// Forgets what a slice that is gone said of its node.
    pub fn delete_slice(&mut self, slice: &str, node: &str) {
        let Some(index) = self.by_name.get(node) else { return };
        let node = &mut self.nodes[*index as usize];
        if node.report.as_ref().is_some_and(|(name, _)| name == slice) {
            (node.report, node.topology) = (None, None);
        }
    }

    fn index_of(&mut self, node: &str) -> NodeIndex {
        if let Some(index) = self.by_name.get(node) {
            return *index;
        }
        let index = self.nodes.len() as NodeIndex;
        let name = node.to_owned();
        self.nodes.push(FleetNode { name, report: None, topology: None, cards: None, parts: None });
        self.by_name.insert(node.to_owned(), index);
        index
    }

    /// A node changed. One without cards of ours does not matter.
    pub fn mark(&mut self, node: &str) {
        let Some(index) = self.by_name.get(node).copied() else { return };
        self.nodes[index as usize].cards = None;
        self.changes.push(index);
        if self.changes.len() > 4 * self.nodes.len() + 1024 {
            self.forgotten += self.changes.len();
            self.changes.clear();
        }
    }

    /// The devices of a node changed.
    pub fn mark_devices(&mut self, node: &str) {
        if let Some(index) = self.by_name.get(node) {
            self.nodes[*index as usize].parts = None;
        }
        self.mark(node);
    }

    /// All nodes changed.
    pub fn mark_all(&mut self) {
        for node in &mut self.nodes {
            (node.cards, node.parts) = (None, None);
        }
        self.forgotten += self.changes.len() + 1;
        self.changes.clear();
    }

    /// The point in time after the last change.
    pub fn now(&self) -> usize {
        self.forgotten + self.changes.len()
    }

    /// The nodes that changed since then; `None` where that is too long ago to tell.
    pub fn changed_since(&self, then: usize) -> Option<&[NodeIndex]> {
        self.changes.get(then.checked_sub(self.forgotten)?..)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node with this number.
    pub fn node(&self, index: NodeIndex) -> &FleetNode {
        &self.nodes[index as usize]
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &FleetNode> {
        self.nodes.iter()
    }

    /// The number of a node.
    pub fn find(&self, node: &str) -> Option<NodeIndex> {
        self.by_name.get(node).copied()
    }

    /// The use of a node's cards.
    pub fn cards(&mut self, index: NodeIndex, cluster: &Cluster, driver: &str) -> &NodeCards {
        let node = &mut self.nodes[index as usize];
        node.cards.get_or_insert_with(|| {
            let parts = node.parts.get_or_insert_with(|| Parts::of(cluster, &node.name, driver));
            NodeCards::of(cluster, &node.name, parts)
        })
    }
}
