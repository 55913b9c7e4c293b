//! A simulated fleet and a workload for it, as Kubernetes objects. The workload is placed by our decision loop or by other
//! schedulers' policies.
//!
//! ```text
//! NodeGroup (10xdgx-h100) ─> Machine (facts) ─┬─> slices, as the plugin would publish them ─┐
//! Pools (GpuPools) ───────────────────────────┘                                            ├─> Run ─> RunReport
//! Workload (a list, manifests) ─> shapes of pods, and when each arrives and ends ──────────────────────┘
//! ```

mod cluster;
mod demands;
mod groups;
mod holdings;
mod machine;
mod objects;
mod part;
mod pools;
mod quotas;
mod run;
mod summary;
mod teams;
mod trace;
mod wish;
mod workload;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use tessera_api::gpu_pool::Allocation;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{PciBusId, Quantity};
use tessera_cluster::{Asker, Object};
use tessera_decide::{Decider, Observation, PoolSummary};
use tessera_hardware::FactsError;
use tessera_inventory::Warning;
use tessera_inventory::gpu_pools::Resolution;
use tessera_inventory::pool::Held;

pub use demands::Demands;
pub use groups::{GroupError, MOST_NODES, NodeGroup};
pub use holdings::{CardView, Holder, Holdings};
pub use objects::DRIVER;
pub use pools::Pools;
pub use quotas::Quotas;
pub use run::{PodOutcome, Run, RunReport};
pub use summary::{SPANS, Summary};
pub use teams::{AmountReport, TeamReport, TeamsReport, Waits};
pub use tessera_inventory::layout::LayoutFile;
pub(crate) use trace::node_name;
pub use wish::{Wish, WishError};
pub use workload::{
    JobSet, LeaderWorkerSet, LineError, List, ListReader, MOST_PODS, Manifest, ManifestError, Pods, Shape,
    Workload, is_of_cards, time,
};

use crate::control::share_ids;
use part::Parts;

/// Nodes with their cards.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The DRA driver.
    driver: String,
    /// Whether the fleet was read from a cluster, which has DeviceClasses of its own.
    is_of_cluster: bool,
    kubernetes: KubernetesVersion,
    nodes: Vec<FleetNode>,
    by_name: HashMap<String, usize>,
    /// Index of the node of each pool of devices.
    of_pool: HashMap<String, usize>,
    /// Slices of other drivers, and DeviceTaintRules.
    others: Vec<Object>,
    warnings: BTreeSet<String>,
}

/// A node of the fleet.
#[derive(Clone, Debug)]
pub struct FleetNode {
    /// The node's name.
    pub name: String,
    /// The node's hardware and slices, shared by all nodes of the same kind.
    kind: Arc<NodeKind>,
}

/// Nodes of the same kind.
#[derive(Debug)]
struct NodeKind {
    /// One of the nodes, without its name.
    node: Node,
    cpu_milli: u64,
    memory_mib: u64,
    /// Product names of the cards by PCI address.
    cards: BTreeMap<PciBusId, String>,
    parts: Parts,
    /// Slices and node report of the plugin: for managed, then for native allocation.
    published: [objects::Published; 2],
}

/// Why a fleet cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The facts of a machine are invalid.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// More nodes than are supported.
    #[error("the fleet has {0} nodes; up to {MOST_NODES} are supported")]
    TooLarge(usize),
    /// No nodes.
    #[error("the fleet has no nodes")]
    Empty,
    /// A ResourceSlice names a missing Node.
    #[error("there is no Node {0}, but a ResourceSlice has its cards: give the nodes, too")]
    NoNode(String),
    /// The effect of GpuPools on a node is unknown.
    #[error(
        "GpuPools on node {node}: {reason}; other offers of its cards are unknown. Describe the fleet with --nodes"
    )]
    Unknown {
        /// Name of the node.
        node: String,
        /// The missing information.
        reason: String,
    },
    /// A cluster without cards.
    #[error("there is no ResourceSlice of {0}: no node publishes a card")]
    NoSlices(String),
}

impl Default for Fleet {
    /// Without nodes.
    fn default() -> Self {
        Self {
            driver: DRIVER.to_owned(),
            is_of_cluster: false,
            kubernetes: KubernetesVersion::default(),
            nodes: Vec::new(),
            by_name: HashMap::new(),
            of_pool: HashMap::new(),
            others: Vec::new(),
            warnings: BTreeSet::new(),
        }
    }
}

impl Fleet {
    /// An empty fleet for this driver name.
    #[must_use]
    pub fn of_driver(driver: &str) -> Self {
        Self { driver: driver.to_owned(), ..Self::default() }
    }

    /// A fleet of these groups, with all cards offered whole, in partitions on demand and in shares. Node numbers run through all
    /// groups of the same machine.
    ///
    /// # Errors
    /// The fleet would be empty or too large.
    pub fn new(groups: &[NodeGroup]) -> Result<Self, FleetError> {
        Self::with_pools(groups, &Pools::simulated())
    }

    /// A fleet of these groups, with their cards offered by these pools.
    ///
    /// # Errors
    /// The fleet would be empty or too large.
    pub fn with_pools(groups: &[NodeGroup], pools: &Pools) -> Result<Self, FleetError> {
        let mut fleet = Self::default();
        fleet.add(groups, pools)?;
        if fleet.nodes.is_empty() { Err(FleetError::Empty) } else { Ok(fleet) }
    }

    /// The same fleet with kube-scheduler of this release instead of the newest known one.
    #[must_use]
    pub fn scheduled_by(self, kubernetes: KubernetesVersion) -> Self {
        Self { kubernetes, ..self }
    }

    /// Evaluates claims as kube-scheduler of the fleet's release would.
    fn asker(&self) -> Asker {
        Asker::new(share_ids()).answered_as(self.kubernetes)
    }

    /// Adds nodes, with their cards offered by these pools.
    ///
    /// # Errors
    /// The fleet would be too large.
    pub fn add(&mut self, groups: &[NodeGroup], pools: &Pools) -> Result<(), FleetError> {
        let count: usize = groups.iter().map(|group| group.count).sum::<usize>() + self.nodes.len();
        if count > MOST_NODES {
            return Err(FleetError::TooLarge(count));
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for group in groups {
            let machine = Arc::new(machine::machine(&group.hardware, group.cards, group.mig_mode)?);
            let node = objects::node(&group.labels, group.cpu_milli, group.memory_mib);
            let mut kinds: HashMap<Vec<bool>, Arc<NodeKind>> = HashMap::new();
            for _ in 0..group.count {
                let number = numbers.entry(&group.machine).or_default();
                // A node name may contain dots, and names of cloud machines do.
                let name = loop {
                    *number += 1;
                    let name = format!("{}-{number:04}", group.machine);
                    if !self.by_name.contains_key(&name) {
                        break name;
                    }
                };
                let labels = objects::labels(&node, &name);
                let kind = kinds.entry(pools.selecting(&labels)).or_insert_with(|| {
                    let mut warnings = BTreeSet::new();
                    let kubernetes = self.kubernetes.to_string();
                    let resolution =
                        pools.resolve(&self.driver, &labels, &machine, &kubernetes, &mut warnings);
                    self.warnings
                        .extend(warnings.iter().map(|warning| format!("{}: {warning}", group.machine)));
                    Arc::new(self.kind(&group.machine, node.clone(), &resolution, &Held::default()))
                });
                let kind = Arc::clone(kind);
                self.push(name.clone(), name, kind);
            }
        }
        Ok(())
    }

    /// Adds a node with its pool of devices.
    fn push(&mut self, pool: String, name: String, kind: Arc<NodeKind>) {
        self.of_pool.insert(pool, self.nodes.len());
        self.by_name.insert(name.clone(), self.nodes.len());
        self.nodes.push(FleetNode { name, kind });
    }

    /// The kind of a node with these resolved pools. Warnings begin with `of`.
    fn kind(&mut self, of: &str, node: Node, resolution: &Resolution, held: &Held) -> NodeKind {
        let published = [Allocation::Managed, Allocation::Native].map(|allocation| {
            let (published, warnings) = objects::publish(&self.driver, resolution, allocation, held);
            // Warnings about partitions made by hand do not apply: the simulated layouts created these partitions.
            let warnings =
                warnings.iter().filter(|warning| !matches!(warning, Warning::PartitionedByHand(_)));
            self.warnings.extend(warnings.map(|warning| format!("{of}: {warning}")));
            published
        });
        let cards = resolution.machine.cards_by_address().into_iter();
        let cards = cards.map(|card| (card.pci, card.product_name.clone().unwrap_or_default()));
        NodeKind::new(node, cards.collect(), published)
    }

    /// Offers that cannot be made as configured, with the reason.
    #[must_use]
    pub fn warnings(&self) -> &BTreeSet<String> {
        &self.warnings
    }

    /// Summary of each GpuPool, by name.
    #[must_use]
    pub fn pools(&self) -> BTreeMap<String, PoolSummary> {
        let mut decider = Decider::new(&self.driver, share_ids());
        for object in self.objects(Allocation::Managed) {
            // The slices are the plugin's own, so all quantities in them are valid.
            let _ = decider.observe(Duration::ZERO, Observation::Applied(Box::new(object)));
        }
        decider.pools()
    }

    /// Name of the DRA driver.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.driver
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

    /// `percent` of the memory, in bytes, of the smallest shared card; `None` if no card is shared.
    fn share_memory(&self, percent: u32) -> Option<u64> {
        let least = self.nodes.iter().filter_map(|node| node.kind.parts.least_shared_memory()).min()?;
        Some(least * u64::from(percent) / 100)
    }

    /// The index of the node of this name.
    fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// DeviceClasses present without being given: those of the chart and, unless the fleet was read from a cluster with its own classes,
    /// the classes for the extended resources of NVIDIA's device plugin.
    fn classes(&self) -> Vec<DeviceClass> {
        let mut classes = objects::classes(&self.driver);
        if !self.is_of_cluster {
            let profiles: BTreeSet<&str> =
                self.nodes.iter().flat_map(|node| node.kind.parts.profiles()).collect();
            classes.extend(objects::extended_classes(&self.driver, profiles.into_iter()));
        }
        classes
    }

    /// Classes, nodes and slices as in the API server, with this allocation for all cards.
    pub fn objects(&self, allocation: Allocation) -> impl Iterator<Item = Object> + '_ {
        let of_node = move |node: &'_ FleetNode| {
            let slices = node.slices(&self.driver, allocation).into_iter().map(Object::from);
            std::iter::once(Object::from(node.object())).chain(slices).collect::<Vec<_>>()
        };
        objects::classes(&self.driver)
            .into_iter()
            .map(Object::from)
            .chain(self.nodes.iter().flat_map(of_node))
            .chain(self.others.iter().cloned())
    }
}

impl NodeKind {
    fn new(node: Node, cards: BTreeMap<PciBusId, String>, published: [objects::Published; 2]) -> Self {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let amount = |resource: &str, unit: i128| {
            let quantity = allocatable.and_then(|all| Quantity::parse(&all.get(resource)?.0).ok());
            quantity.and_then(|quantity| u64::try_from(quantity.nanos() / unit).ok()).unwrap_or(0)
        };
        let (cpu_milli, memory_mib) = (amount("cpu", 1_000_000), amount("memory", 1_000_000_000 << 20));
        Self { cpu_milli, memory_mib, cards, parts: Parts::of(&published[1]), published, node }
    }
}

impl FleetNode {
    /// The Node object.
    fn object(&self) -> Node {
        let mut node = self.kind.node.clone();
        node.metadata.labels = Some(objects::labels(&node, &self.name));
        node.metadata.name = Some(self.name.clone());
        node
    }

    /// The slices published by the node's plugin.
    fn slices(&self, driver: &str, allocation: Allocation) -> Vec<ResourceSlice> {
        let place = usize::from(allocation != Allocation::Managed);
        self.kind.published[place].slices_of(driver, &self.name)
    }

    /// The report of the node's plugin, for managed allocation, as JSON.
    fn report(&self) -> &str {
        &self.kind.published[0].report
    }

    /// Product names of the cards, by PCI address.
    #[must_use]
    pub fn cards(&self) -> &BTreeMap<PciBusId, String> {
        &self.kind.cards
    }
}
