//! Pods evicted together, and what they take of each node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_api::{DeviceName, PciBusId};
use tessera_cluster::worth::slices;
use tessera_cluster::{ClaimExt, Cluster, Holder, Key};

use crate::fleet::{Fleet, NodeIndex};
use crate::node_cards::worth;
use crate::shape::ShapeId;

/// Pods evicted together: a gang, pods sharing a claim, or one pod.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its pods, sorted.
    pub pods: Vec<Key>,
    /// Claims free once all of its pods are gone, sorted.
    pub claims: Vec<Key>,
    /// The highest priority among its pods and gangs; a gang's priority is the lowest of its pods'. Callers may set another order:
    /// units with the least go first.
    pub priority: i32,
    /// Whether a gang is part of it.
    pub is_gang: bool,
    /// Creation time of its youngest pod.
    pub created: Option<Timestamp>,
}

/// All units, with what they take of each node. Holds until an object or a node changes.
#[derive(Debug, Default)]
pub struct Units {
    all: Vec<Unit>,
    /// The lowest priority among them.
    lowest: Option<i32>,
    /// By unit: whether its pods are already ending.
    leaving: Vec<bool>,
    by_node: BTreeMap<NodeIndex, Vec<Part>>,
    nodes: Vec<BTreeSet<NodeIndex>>,
    claims: BTreeSet<Key>,
    /// Lower bounds of what claims take, by shape of the claims and node.
    pub(super) bounds: HashMap<(ShapeId, NodeIndex), [u64; 2]>,
    pub(super) choices: Choices,
    pub(super) effort: Effort,
}

/// Generation of a node, and the units to lose there; `None` if no eviction helps.
type Chosen = (u64, Option<Vec<usize>>);

/// Units to lose on each node for one seat of a shape, as long as the node stays as it is.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// The units that might go.
    may: Vec<bool>,
    of_shapes: HashMap<ShapeId, HashMap<NodeIndex, Chosen>>,
}

impl Choices {
    /// Drops choices made among other units.
    pub fn begin(&mut self, may: &[bool]) {
        if self.may != may {
            (self.may, self.of_shapes) = (may.to_vec(), HashMap::new());
        }
    }

    /// The choice for the node in this generation, if made.
    pub fn get(&self, shape: ShapeId, node: NodeIndex, generation: u64) -> Option<Option<Vec<usize>>> {
        let (known, choice) = self.of_shapes.get(&shape)?.get(&node)?;
        (*known == generation).then(|| choice.clone())
    }

    /// Keeps a choice.
    pub fn insert(&mut self, shape: ShapeId, node: NodeIndex, generation: u64, choice: Option<Vec<usize>>) {
        self.of_shapes.entry(shape).or_default().insert(node, (generation, choice));
    }
}

/// Work done with units so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Plans made.
    pub plans: usize,
    /// Exact fits tried, with and without success.
    pub fits: usize,
}

/// What a unit takes of a node.
#[derive(Debug)]
pub(super) struct Part {
    pub unit: usize,
    pub devices: Vec<Device>,
    pub pods: Vec<Key>,
}

/// A device or share of one held by a unit.
#[derive(Debug)]
pub(super) struct Device {
    pub card: PciBusId,
    /// Thousandths of the card that its end frees at most.
    pub worth: u32,
    pool: String,
    name: String,
    is_shared: bool,
}

impl Units {
    /// These units; those `leaving`, in their order, count as gone: their pods are ending already.
    pub fn new(units: Vec<Unit>, leaving: Vec<bool>) -> Self {
        let lowest = units.iter().map(|unit| unit.priority).min();
        Units { all: units, lowest, leaving, ..Units::default() }
    }

    /// Looks up what the units take of each node. Needed once, before the first plan.
    pub fn look_up(&mut self, cluster: &Cluster, fleet: &mut Fleet, driver: &str) {
        if !self.nodes.is_empty() {
            return;
        }
        for (unit, found) in self.all.iter().enumerate() {
            let mut parts: BTreeMap<NodeIndex, Part> = BTreeMap::new();
            let part = || Part { unit, devices: Vec::new(), pods: Vec::new() };
            for key in &found.pods {
                // A pod released to a node takes room there before it is bound.
                let hold = cluster.hold(&Holder::Pod(key.clone()));
                if let Some(node) = hold.and_then(|hold| fleet.find(hold.node()?)) {
                    parts.entry(node).or_insert_with(part).pods.push(key.clone());
                }
            }
            for claim in found.claims.iter().filter_map(|claim| cluster.objects().claims.get(claim)) {
                for (node, device) in devices(claim, cluster, fleet, driver) {
                    parts.entry(node).or_insert_with(part).devices.push(device);
                }
            }
            self.claims.extend(found.claims.iter().cloned());
            self.nodes.push(parts.keys().copied().collect());
            for (node, part) in parts {
                self.by_node.entry(node).or_default().push(part);
            }
        }
    }

    /// All units.
    pub fn all(&self) -> &[Unit] {
        &self.all
    }

    /// The lowest priority among them.
    pub fn lowest(&self) -> Option<i32> {
        self.lowest
    }

    /// By unit: whether all of its pods are already ending.
    pub fn are_leaving(&self) -> &[bool] {
        &self.leaving
    }

    /// Work done so far.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Whether all pods of the unit are already ending.
    pub fn is_leaving(&self, unit: usize) -> bool {
        self.leaving[unit]
    }

    /// Indices of the units leaving.
    pub(super) fn leaving(&self) -> impl Iterator<Item = usize> {
        let leaving = self.leaving.iter().enumerate();
        leaving.filter(|(_, is_leaving)| **is_leaving).map(|(unit, _)| unit)
    }

    /// The units on the node.
    pub(super) fn on(&self, node: NodeIndex) -> &[Part] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The nodes of the unit.
    pub(super) fn nodes_of(&self, unit: usize) -> &BTreeSet<NodeIndex> {
        &self.nodes[unit]
    }

    /// Whether somebody else holds the device, too, so that the end of the unit does not free it.
    pub(super) fn is_also_of_others(&self, device: &Device, cluster: &Cluster, driver: &str) -> bool {
        let mut found = cluster.inventory().find(driver, &device.pool, &device.name);
        !device.is_shared
            && found.any(|device| {
                let is_of_unit =
                    |holder: &Holder| holder.claim().is_some_and(|claim| self.claims.contains(claim));
                cluster.holders(device).any(|holder| !is_of_unit(holder))
            })
    }
}

/// The driver's devices held by the claim, each with its node.
fn devices(
    claim: &k8s_openapi::api::resource::v1::ResourceClaim,
    cluster: &Cluster,
    fleet: &mut Fleet,
    driver: &str,
) -> Vec<(NodeIndex, Device)> {
    let mut devices = Vec::new();
    let results = claim.results().iter();
    for result in results.filter(|result| result.driver == driver && result.admin_access != Some(true)) {
        let Some(found) = cluster.inventory().find(driver, &result.pool, &result.device).next() else {
            continue;
        };
        let (Some(node), Ok(name)) =
            (found.node_name().and_then(|node| fleet.find(node)), result.device.parse::<DeviceName>())
        else {
            continue;
        };
        let card = name.card();
        let Some(of_card) = fleet.cards(node, cluster, driver).cards.get(&card) else { continue };
        devices.push((
            node,
            Device {
                card,
                worth: worth(slices(found, &name), of_card.slices()),
                pool: result.pool.clone(),
                name: result.device.clone(),
                is_shared: result.share_id.is_some(),
            },
        ));
    }
    devices
}
