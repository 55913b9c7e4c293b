//! A fleet that need not exist, and a workload on it, as objects of Kubernetes: what our decision loop would make of it, and what
//! others would.
//!
//! ```text
//! NodeGroup (10xdgx-h100) ─> Machine (facts) ─> slices, as the plugin would publish them ─┐
//!                                                                                        ├─> Run ─> RunReport
//! Workload (a list, or manifests) ─> shapes of pods, and when each arrives and ends ──────┘
//! ```

mod groups;
mod holdings;
mod machine;
mod objects;
mod part;
mod run;
mod summary;
mod wish;
mod workload;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::PciBusId;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::Object;
use tessera_hardware::FactsError;

pub use groups::{GroupError, MOST_NODES, NodeGroup};
pub use holdings::{CardView, Holder, Holdings};
pub use objects::DRIVER;
pub use run::{FleetPolicy, PodOutcome, Run, RunReport, UnknownFleetPolicy};
pub use summary::{SPANS, Summary};
pub use wish::{Wish, WishError};
pub use workload::{Line, LineError, ListReader, MOST_PODS, Pods, Shape, Workload, time};

use part::Parts;

/// Nodes with their cards.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    nodes: Vec<FleetNode>,
    by_name: HashMap<String, usize>,
}

/// A node of the fleet.
#[derive(Clone, Debug)]
pub struct FleetNode {
    /// Its name.
    pub name: String,
    /// What it has, shared by all that are alike.
    kind: Arc<NodeKind>,
}

/// Nodes that are alike.
#[derive(Debug)]
struct NodeKind {
    labels: BTreeMap<String, String>,
    cpu_milli: u64,
    memory_mib: u64,
    /// Product names of the cards by address, in the order of addresses.
    cards: BTreeMap<PciBusId, String>,
    parts: Parts,
    /// What the plugin publishes, and its report, by who allocates.
    published: [objects::Published; 2],
}

/// Why there is no such fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The facts of a machine cannot be used.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// More nodes than are supported.
    #[error("the fleet has {0} nodes; up to {MOST_NODES} are supported")]
    TooLarge(usize),
    /// No nodes.
    #[error("the fleet has no nodes")]
    Empty,
}

impl Fleet {
    /// A fleet of these groups. Nodes are numbered through for each machine.
    ///
    /// # Errors
    /// It would be empty or too large.
    pub fn new(groups: &[NodeGroup]) -> Result<Self, FleetError> {
        let count: usize = groups.iter().map(|group| group.count).sum();
        if count > MOST_NODES {
            return Err(FleetError::TooLarge(count));
        }
        let mut fleet = Self::default();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for group in groups {
            let machine = machine::machine(&group.hardware, group.cards, group.mig_mode)?;
            let published = [Allocation::Managed, Allocation::Native]
                .map(|allocation| objects::publish(&machine, allocation));
            let cards = machine.cards_by_address();
            let cards = cards
                .into_iter()
                .map(|card| (card.pci, card.product_name.clone().unwrap_or_default()))
                .collect();
            let kind = Arc::new(NodeKind {
                labels: group.labels.clone(),
                cpu_milli: group.cpu_milli,
                memory_mib: group.memory_mib,
                parts: Parts::of(&published[1]),
                cards,
                published,
            });
            for _ in 0..group.count {
                let number = numbers.entry(&group.machine).or_default();
                *number += 1;
                // A name of a node may have dots, and machines of clouds do.
                let name = format!("{}-{number:04}", group.machine);
                fleet.by_name.insert(name.clone(), fleet.nodes.len());
                fleet.nodes.push(FleetNode { name, kind: Arc::clone(&kind) });
            }
        }
        if fleet.nodes.is_empty() { Err(FleetError::Empty) } else { Ok(fleet) }
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[FleetNode] {
        &self.nodes
    }

    /// Number of cards.
    #[must_use]
    pub fn cards(&self) -> usize {
        self.nodes.iter().map(|node| node.kind.cards.len()).sum()
    }

    /// Number of cards by product name.
    #[must_use]
    pub fn models(&self) -> BTreeMap<&str, usize> {
        let mut models = BTreeMap::new();
        for model in self.nodes.iter().flat_map(|node| node.kind.cards.values()) {
            *models.entry(model.as_str()).or_default() += 1;
        }
        models
    }

    /// Bytes of memory of so many percent of the card of which shares have least; `None` where no card is shared.
    fn share_memory(&self, percent: u32) -> Option<u64> {
        let least = self.nodes.iter().filter_map(|node| node.kind.parts.least_shared_memory()).min()?;
        Some(least * u64::from(percent) / 100)
    }

    /// The place of the node of this name.
    fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Classes, nodes and slices, as they would be in the API server; all cards of one pool with this allocation.
    pub fn objects(&self, allocation: Allocation) -> impl Iterator<Item = Object> + '_ {
        let of_node = move |node: &'_ FleetNode| {
            let slices = node.slices(allocation).into_iter().map(Object::from);
            std::iter::once(Object::from(node.object())).chain(slices).collect::<Vec<_>>()
        };
        objects::classes().into_iter().chain(self.nodes.iter().flat_map(of_node))
    }
}

impl FleetNode {
    /// The node.
    fn object(&self) -> Node {
        objects::node(&self.name, &self.kind.labels, self.kind.cpu_milli, self.kind.memory_mib)
    }

    /// What its plugin publishes.
    fn slices(&self, allocation: Allocation) -> Vec<ResourceSlice> {
        let place = usize::from(allocation != Allocation::Managed);
        self.kind.published[place].slices_of(&self.name)
    }

    /// The cards, by address, with their product names.
    #[must_use]
    pub fn cards(&self) -> &BTreeMap<PciBusId, String> {
        &self.kind.cards
    }
}
