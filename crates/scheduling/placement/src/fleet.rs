//! The nodes with our cards, and a log of their changes.

mod plain;
#[cfg(test)]
mod tests;
pub(crate) mod trial;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use tessera_api::gpu_pool::{Allocation, GatherMode, QueuePolicy};
use tessera_api::{DeviceName, NodeReport, PciBusId, managed, node_report};
use tessera_cluster::Cluster;
use tessera_inventory::Topology;

use crate::node_cards::{KnownParts, NodeCards, Parts};
use crate::time::Time;
use crate::value::{CardSets, KnownMachines, Packing, PlainNode};

/// A node's index in the fleet, stable until nothing of the node is left.
pub type NodeIndex = u32;

/// The nodes with our cards.
#[derive(Debug, Default)]
pub struct Fleet {
    nodes: Vec<FleetNode>,
    by_name: HashMap<String, NodeIndex>,
    /// Indices of removed nodes, reused because new nodes keep bringing new names.
    vacant: Vec<NodeIndex>,
    /// Changed nodes, oldest change first.
    changes: Vec<NodeIndex>,
    /// Number of changes already dropped from `changes`.
    forgotten: usize,
    /// Times when cards of nodes were tainted as managed, for cards not known to be handed over.
    handovers: BTreeSet<(Time, NodeIndex)>,
    /// Cards tainted up to this time are handed over.
    handed_over: Option<Time>,
    /// Nodes with cards tainted as managed.
    managed: BTreeSet<NodeIndex>,
    /// Nodes with avoided cards.
    avoiding: BTreeSet<NodeIndex>,
    /// Computed on demand; `None` after a change of a report or of devices.
    strict: Option<Strict>,
    machines: KnownMachines,
    known_parts: KnownParts,
    /// The learned demand.
    pub packing: Packing,
    /// Position in the log of changes up to which the plain nodes are current.
    plain_until: Option<usize>,
    /// The latest generation of any node.
    latest: u64,
}

/// Managed pools with a strict queue, and further facts of reports.
#[derive(Debug)]
pub struct Strict {
    /// Their names.
    pub pools: BTreeSet<String>,
    /// Names of the pools whose pods may move.
    pub moving: BTreeSet<String>,
    /// Whether every card belongs to such a pool.
    pub is_everything: bool,
    /// Whether kube-scheduler finds no device on any node: all belong to managed cards and are tainted.
    pub hides_everything: bool,
}

/// Time when the devices of a card were tainted.
#[derive(Debug, Default, Clone, Copy)]
struct Tainted {
    /// Latest time written by the API server, by its clock.
    added: Option<Time>,
    /// By our clock, never later than the observation: the API server's clock may be ahead.
    since: Time,
}

/// A node with our cards.
#[derive(Debug, Default)]
pub struct FleetNode {
    /// Name of the Node object.
    pub name: String,
    /// Changes with every change or trial of the node. No two states of the fleet's nodes share a generation.
    pub generation: u64,
    /// Report of its plugin, with the name of the slice carrying the report.
    pub report: Option<(String, NodeReport)>,
    /// Cards whose devices have the managed taint, by slice.
    tainted: BTreeMap<String, BTreeMap<PciBusId, Tainted>>,
    /// Cards withheld until the given time, because preparing them failed.
    avoided: BTreeMap<PciBusId, Time>,
    /// Links between its cards. Computed on demand; empty after a change of the report.
    topology: OnceCell<Option<Topology>>,
    /// Its links prepared for choosing sets of cards. Computed on demand; `None` after a change of the report.
    sets: Option<CardSets>,
    /// Use of its cards. Computed on demand; `None` after a change.
    cards: Option<NodeCards>,
    /// Parts of cards taken by each device. Computed on demand; `None` after a change of its slices.
    parts: Option<Arc<Parts>>,
    /// The node in plain numbers. Computed on demand; `None` after a change.
    plain: Option<PlainNode>,
}

impl FleetNode {
    /// Whether we choose this node for pods: some card is steered or managed.
    pub fn is_steered(&self) -> bool {
        let cards = self.report.iter().flat_map(|(_, report)| report.cards.values());
        cards.into_iter().any(|card| card.allocation != Allocation::Native)
    }

    /// Pools of its cards, with repetitions.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let cards = self.report.iter().flat_map(|(_, report)| report.cards.values());
        cards.filter_map(|card| card.pool.as_deref())
    }

    /// Links between its cards, from the report.
    pub fn topology(&self) -> Option<&Topology> {
        let of_report = || self.report.as_ref().and_then(|(_, report)| Topology::from_report(report));
        self.topology.get_or_init(of_report).as_ref()
    }

    /// Its cards, prepared for choosing sets; available after [`Fleet::find_sets`].
    pub fn sets(&self) -> Option<&CardSets> {
        self.sets.as_ref()
    }

    /// Parts of cards taken by its devices; available after [`Fleet::cards`].
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref()
    }

    /// As [`Self::parts`], beyond the next change.
    pub(crate) fn shared_parts(&self) -> Option<Arc<Parts>> {
        self.parts.clone()
    }

    /// Use of its cards; available after [`Fleet::cards`].
    pub(crate) fn used_cards(&self) -> Option<&NodeCards> {
        self.cards.as_ref()
    }

    /// Whether the card is currently withheld.
    pub fn is_avoided(&self, card: &PciBusId) -> bool {
        self.avoided.contains_key(card)
    }

    /// Whether the card belongs to a managed pool and has the managed taint.
    pub fn is_managed(&self, card: &PciBusId) -> bool {
        let report = self.report.as_ref().and_then(|(_, report)| report.cards.get(card));
        report.is_some_and(|card| card.allocation == Allocation::Managed)
            && self.tainted.values().any(|slice| slice.contains_key(card))
    }

    /// Whether all its devices belong to managed cards and are tainted, hiding them from kube-scheduler.
    fn is_hidden(&self, parts: &Parts) -> bool {
        parts.cards_of_all().is_some_and(|mut cards| cards.all(|card| self.is_managed(card)))
    }

    /// Cards this controller may allocate: in a managed pool, and tainted at `before` or earlier.
    pub fn managed_cards(&self, before: Time) -> BTreeSet<PciBusId> {
        self.handed_over(before).collect()
    }

    /// Whether this controller may allocate any card, as by [`Self::managed_cards`].
    pub(crate) fn has_managed_cards(&self, before: Time) -> bool {
        self.handed_over(before).next().is_some()
    }

    fn handed_over(&self, before: Time) -> impl Iterator<Item = PciBusId> {
        let cards = self.report.iter().flat_map(|(_, report)| &report.cards);
        let managed = cards.filter(|(_, card)| card.allocation == Allocation::Managed).map(|(card, _)| *card);
        managed.filter(move |card| {
            let mut times = self.tainted.values().filter_map(|slice| slice.get(card)).peekable();
            times.peek().is_some() && times.all(|tainted| tainted.since <= before)
        })
    }
}

impl Fleet {
    /// Applies a slice to its node. An unreadable report counts as an empty one, and its error is returned.
    pub fn apply_slice(
        &mut self,
        now: Time,
        slice: &ResourceSlice,
        driver: &str,
    ) -> Result<(), serde_json::Error> {
        if slice.spec.driver != driver {
            return Ok(());
        }
        let Some(node) = slice.spec.node_name.as_deref() else { return Ok(()) };
        self.apply_taints(now, slice, node);
        let annotations = slice.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get(node_report::ANNOTATION)) else {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            self.forget_report(name, node);
            return Ok(());
        };
        let index = self.index_of(node);
        let name = slice.metadata.name.clone().unwrap_or_default();
        let (report, result) = match serde_json::from_str(text) {
            Ok(report) => (report, Ok(())),
            Err(error) => (NodeReport::default(), Err(error)),
        };
        let node = &mut self.nodes[index as usize];
        (node.topology, node.sets) = (OnceCell::new(), None);
        node.report = Some((name, report));
        self.strict = None;
        result
    }

    /// Records the times when cards were tainted as managed.
    fn apply_taints(&mut self, now: Time, slice: &ResourceSlice, node: &str) {
        let name = slice.metadata.name.clone().unwrap_or_default();
        let known = self.by_name.get(node).and_then(|index| self.nodes[*index as usize].tainted.get(&name));
        let mut cards: BTreeMap<PciBusId, Tainted> = BTreeMap::new();
        for device in slice.spec.devices.iter().flatten() {
            let Some(added) = managed_since(device) else { continue };
            let Ok(device) = device.name.parse::<DeviceName>() else { continue };
            let tainted = cards.entry(device.card()).or_default();
            tainted.added = tainted.added.max(added);
        }
        for (card, tainted) in &mut cards {
            let known = known.and_then(|cards| cards.get(card)).filter(|known| known.added == tainted.added);
            tainted.since = known.map_or(tainted.added.unwrap_or(now).min(now), |known| known.since);
        }
        if cards.is_empty() && known.is_none() {
            return;
        }
        let index = self.index_of(node);
        let times = cards.values().map(|tainted| tainted.since);
        let is_new = |since: &Time| self.handed_over.is_none_or(|until| *since > until);
        self.handovers.extend(times.filter(is_new).map(|since| (since, index)));
        if cards.is_empty() {
            self.forget_taints(&name, index);
        } else {
            self.nodes[index as usize].tainted.insert(name, cards);
            self.managed.insert(index);
        }
    }

    fn forget_taints(&mut self, slice: &str, index: NodeIndex) {
        let tainted = &mut self.nodes[index as usize].tainted;
        tainted.remove(slice);
        if tainted.is_empty() {
            self.managed.remove(&index);
        }
    }

    /// Withholds these cards until the given time.
    pub fn avoid(&mut self, node: &str, cards: &[PciBusId], until: Time) {
        let Some(index) = self.by_name.get(node).copied() else { return };
        let avoided = &mut self.nodes[index as usize].avoided;
        avoided.extend(cards.iter().map(|card| (*card, until)));
        if !avoided.is_empty() {
            self.avoiding.insert(index);
            self.mark(node);
        }
    }

    /// Releases cards withheld up to `now`.
    pub fn forget_avoided(&mut self, now: Time) {
        for index in self.avoiding.clone() {
            let node = &mut self.nodes[index as usize];
            let before = node.avoided.len();
            node.avoided.retain(|_, until| *until > now);
            if node.avoided.is_empty() {
                self.avoiding.remove(&index);
            }
            if node.avoided.len() < before {
                let name = node.name.clone();
                self.mark(&name);
                self.vacate(index);
            }
        }
    }

    /// Managed pools with a strict queue, and properties shared by all cards.
    pub fn strict(&mut self, cluster: &Cluster, driver: &str) -> &Strict {
        let (nodes, known_parts) = (&mut self.nodes, &mut self.known_parts);
        self.strict.get_or_insert_with(|| {
            let mut strict = Strict {
                pools: BTreeSet::new(),
                moving: BTreeSet::new(),
                is_everything: true,
                hides_everything: true,
            };
            for node in nodes {
                let parts =
                    node.parts.get_or_insert_with(|| known_parts.of_node(cluster, &node.name, driver));
                let parts = Arc::clone(parts);
                strict.hides_everything &= node.is_hidden(&parts);
                let cards = || node.report.iter().flat_map(|(_, report)| report.cards.values());
                if cards().next().is_none() {
                    strict.is_everything &= cluster.inventory().devices_of_node(&node.name).next().is_none();
                }
                for card in cards() {
                    let gather = card.placement.gather.as_ref();
                    if gather.is_some_and(|gather| gather.mode == GatherMode::Move) {
                        strict.moving.extend(card.pool.clone());
                    }
                    let is_strict =
                        card.allocation == Allocation::Managed && card.placement.queue == QueuePolicy::Strict;
                    match card.pool.clone().filter(|_| is_strict) {
                        Some(pool) => {
                            strict.pools.insert(pool);
                        }
                        None => strict.is_everything = false,
                    }
                }
            }
            strict.is_everything &= !strict.pools.is_empty();
            strict
        })
    }

    /// Whether any card has the managed taint.
    pub fn has_managed(&self) -> bool {
        !self.managed.is_empty()
    }

    /// Nodes with cards tainted as managed.
    pub fn managed_nodes(&self) -> impl Iterator<Item = &FleetNode> {
        self.managed.iter().map(|index| &self.nodes[*index as usize])
    }

    /// Earliest taint time of cards not known to be handed over.
    pub fn next_handover(&self) -> Option<Time> {
        self.handovers.first().map(|(since, _)| *since)
    }

    /// Marks cards tainted up to `then` as handed over.
    pub fn hand_over(&mut self, then: Time) {
        self.handed_over = self.handed_over.max(Some(then));
        while let Some((since, index)) = self.handovers.first().copied()
            && since <= then
        {
            self.handovers.pop_first();
            let name = self.nodes[index as usize].name.clone();
            self.mark(&name);
        }
    }

    /// Forgets the report and the taints from a deleted slice.
    pub fn delete_slice(&mut self, slice: &str, node: &str) {
        self.forget_report(slice, node);
        if let Some(index) = self.by_name.get(node).copied() {
            self.forget_taints(slice, index);
            self.vacate(index);
        }
    }

    fn forget_report(&mut self, slice: &str, node: &str) {
        let Some(index) = self.by_name.get(node) else { return };
        let node = &mut self.nodes[*index as usize];
        if node.report.as_ref().is_some_and(|(name, _)| name == slice) {
            (node.report, node.topology, node.sets) = (None, OnceCell::new(), None);
            self.strict = None;
        }
    }

    /// Adds a node, also one whose plugin reports nothing.
    pub fn add(&mut self, node: &str) -> NodeIndex {
        self.index_of(node)
    }

    fn index_of(&mut self, node: &str) -> NodeIndex {
        if let Some(index) = self.by_name.get(node) {
            return *index;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(FleetNode::default());
            self.nodes.len() as NodeIndex - 1
        });
        node.clone_into(&mut self.nodes[index as usize].name);
        self.packing.forget_shapes();
        self.by_name.insert(node.to_owned(), index);
        // The index may have belonged to another node.
        self.mark(node);
        index
    }

    /// Forgets a node without report, taint or avoided card. Keeps the generation, so that results cached for the index do not hold
    /// for the next node with this index.
    fn vacate(&mut self, index: NodeIndex) {
        let node = &self.nodes[index as usize];
        if node.report.is_some() || !node.tainted.is_empty() || !node.avoided.is_empty() {
            return;
        }
        let name = node.name.clone();
        if self.by_name.get(&name) != Some(&index) {
            return;
        }
        self.mark(&name);
        self.by_name.remove(&name);
        self.handovers.retain(|(_, other)| *other != index);
        let generation = self.nodes[index as usize].generation;
        self.nodes[index as usize] = FleetNode { generation, ..FleetNode::default() };
        self.vacant.push(index);
    }

    /// Records a change of the node; a node without our cards is ignored.
    pub fn mark(&mut self, node: &str) {
        let Some(index) = self.by_name.get(node).copied() else { return };
        self.latest += 1;
        let changed = &mut self.nodes[index as usize];
        (changed.cards, changed.plain) = (None, None);
        changed.generation = self.latest;
        self.changes.push(index);
        if self.changes.len() > 8 * self.nodes.len() + 2048 {
            let oldest = self.changes.len() / 2;
            self.forgotten += oldest;
            self.changes.drain(..oldest);
        }
    }

    /// Records a change of the node's devices.
    pub fn mark_devices(&mut self, node: &str) {
        self.strict = None;
        if let Some(index) = self.by_name.get(node) {
            self.nodes[*index as usize].parts = None;
        }
        self.mark(node);
    }

    /// Records a change of all nodes.
    pub fn mark_all(&mut self) {
        for node in &mut self.nodes {
            (node.cards, node.parts, node.plain) = (None, None, None);
            self.latest += 1;
            node.generation = self.latest;
        }
        self.packing.forget_shapes();
        self.forgotten += self.changes.len() + 1;
        self.changes.clear();
    }

    /// Current position in the log of changes.
    pub fn now(&self) -> usize {
        self.forgotten + self.changes.len()
    }

    /// Nodes changed since this position; `None` if the log no longer reaches back to it.
    pub fn changed_since(&self, then: usize) -> Option<&[NodeIndex]> {
        self.changes.get(then.checked_sub(self.forgotten)?..)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the fleet never had a node with our cards.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Prepares [`FleetNode::sets`], if the node has a report.
    pub fn find_sets(&mut self, index: NodeIndex) {
        let node = &mut self.nodes[index as usize];
        if let Some((_, report)) = node.report.as_ref().filter(|_| node.sets.is_none()) {
            node.sets = CardSets::of_known(report, &mut self.machines);
        }
    }

    /// Use of a node's cards.
    pub fn cards(&mut self, index: NodeIndex, cluster: &Cluster, driver: &str) -> &NodeCards {
        let node = &mut self.nodes[index as usize];
        node.cards.get_or_insert_with(|| {
            let parts =
                node.parts.get_or_insert_with(|| self.known_parts.of_node(cluster, &node.name, driver));
            NodeCards::of(cluster, &node.name, parts)
        })
    }
}

/// Time when the device was tainted as managed, if tainted; the inner option is empty if the API server wrote no time.
fn managed_since(device: &Device) -> Option<Option<Time>> {
    let taint = device.taints.iter().flatten().find(|taint| taint.key == managed::TAINT_KEY)?;
    let added = taint.time_added.as_ref().map(|added| added.0.as_second());
    Some(added.and_then(|added| u64::try_from(added).ok()).map(Time::from_secs))
}
