//! The pools usable by a node.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::basis::Basis;
use crate::error::AllocateError;
use crate::features::{Features, UpstreamRules};
use crate::inventory::{DeviceRef, Inventory, Slice};
use crate::names::Name;
use crate::node::{Node, NodeSelector};

/// A pool as one node sees it.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Index in the inventory.
    pub pool: u32,
    /// Slices are missing: the driver is about to publish them.
    pub is_incomplete: bool,
    /// The pool's fault.
    pub fault: Option<String>,
    /// Slices with devices for the node, by name.
    pub slices: Vec<u32>,
    /// Slices with devices of the same generation for other nodes only: their devices take counters, too.
    pub others: Vec<u32>,
    /// Slices with counter sets.
    pub counter_slices: Vec<u32>,
}

impl Pool {
    /// Whether its devices may be allocated.
    pub fn is_usable(&self) -> bool {
        !self.is_incomplete && self.fault.is_none()
    }
}

/// Whether something published for a node, all nodes or the nodes of a selector is for this node.
pub(crate) fn node_matches(
    node: &Node,
    name: &str,
    all_nodes: bool,
    selector: Option<&NodeSelector>,
) -> Result<bool, String> {
    match selector {
        _ if !name.is_empty() => Ok(node.name == name),
        _ if all_nodes => Ok(true),
        Some(selector) => {
            selector.matches(node).map_err(|reason| format!("failed to parse node selector: {reason}"))
        }
        None => Ok(false),
    }
}

/// Whether a device of a slice with perDeviceNodeSelection is for this node.
pub(crate) fn device_matches(node: &Node, device: DeviceRef<'_>) -> Result<bool, String> {
    let Some(extra) = device.extra() else { return Ok(false) };
    let name = extra.node_name.as_deref().unwrap_or_default();
    node_matches(node, name, extra.all_nodes, extra.node_selector.as_ref())
}

/// Whether a slice concerns the node; `None` if unknown.
fn is_relevant(
    inventory: &Inventory,
    index: u32,
    node: &Node,
    rules: UpstreamRules,
) -> Result<Option<bool>, String> {
    let slice = &inventory.slices[index as usize];
    if rules.counters_concern_every_node && !slice.counter_sets.is_empty() {
        return Ok(Some(true));
    }
    let name = slice.node_name.map_or("", |name| inventory.text(name));
    if !name.is_empty() || slice.all_nodes || slice.node_selector.is_some() {
        return node_matches(node, name, slice.all_nodes, slice.node_selector.as_deref()).map(Some).map_err(
            |reason| format!("failed to perform node selection for slice {}: {reason}", slice.name),
        );
    }
    if slice.per_device != Some(true) {
        return Ok(None);
    }
    for index in slice.first_device..slice.end_device {
        let device = DeviceRef { inventory, index };
        let is_match = device_matches(node, device).map_err(|reason| {
            format!(
                "failed to perform node selection for device {} in slice {}: {reason}",
                device.name(),
                slice.name
            )
        })?;
        if is_match {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

/// The pools with devices for a node, in the order of trying.
pub(crate) fn gather(basis: &Basis<'_>, node: &Node) -> Result<Vec<Pool>, AllocateError> {
    let Basis { inventory, features, rules, .. } = *basis;
    let mut relevant: SmallVec<[(u32, u32); 16]> = SmallVec::new();
    for index in slices_for(inventory, node, rules) {
        let slice = &inventory.slices[index as usize];
        if !features.partitionable_devices && (slice.per_device.is_some() || !slice.counter_sets.is_empty()) {
            continue;
        }
        if is_ignored(slice, rules) {
            continue;
        }
        let is_relevant = is_relevant(inventory, index, node, rules)
            .map_err(|reason| AllocateError::Fatal(format!("gather pool information: {reason}")))?;
        if is_relevant == Some(true) {
            relevant.push((slice.pool, index));
        }
    }
    // Stable sort: the first slice of a pool decides its number of slices.
    relevant.sort_by_key(|(pool, _)| *pool);
    let (mut pools, mut with_conditions) = (Vec::new(), Vec::new());
    for group in relevant.chunk_by(|one, two| one.0 == two.0) {
        let Some(pool) = gather_pool(inventory, group, features, rules) else { continue };
        let has_conditions =
            pool.slices.iter().any(|slice| inventory.slices[*slice as usize].has_binding_conditions);
        if has_conditions { with_conditions.push(pool) } else { pools.push(pool) }
    }
    let by_name = |one: &Pool, two: &Pool| {
        let name = |pool: &Pool| {
            let pool = &inventory.pools[pool.pool as usize];
            (inventory.text(pool.driver), inventory.text(pool.name))
        };
        name(one).cmp(&name(two))
    };
    pools.sort_by(by_name);
    with_conditions.sort_by(by_name);
    pools.append(&mut with_conditions);
    Ok(pools)
}

/// The slices with possible devices for a node, in the order of Kubernetes.
fn slices_for<'i>(
    inventory: &'i Inventory,
    node: &Node,
    rules: UpstreamRules,
) -> impl Iterator<Item = u32> + use<'i> {
    let every_counter = rules.counters_concern_every_node;
    let has_counters = |index: &u32| !inventory.slices[*index as usize].counter_sets.is_empty();
    let own = inventory.names.find(&node.name).and_then(|name| inventory.on_node.get(&name));
    let own = own.into_iter().flatten().copied().filter(move |index| !(every_counter && has_counters(index)));
    let counters = if every_counter { inventory.counters_on_nodes.as_slice() } else { &[] };
    own.chain(merged(counters, &inventory.shared))
}

/// Two sorted lists as one.
fn merged<'i>(one: &'i [u32], two: &'i [u32]) -> impl Iterator<Item = u32> + use<'i> {
    let (mut one, mut two) = (one.iter().copied().peekable(), two.iter().copied().peekable());
    std::iter::from_fn(move || match (one.peek(), two.peek()) {
        (Some(first), Some(second)) if first < second => one.next(),
        (Some(_), None) => one.next(),
        _ => two.next(),
    })
}

/// Whether a slice is treated as absent: its devices' compatibility cannot be determined.
fn is_ignored(slice: &Slice, rules: UpstreamRules) -> bool {
    slice.has_compatibility_groups && !rules.alpha_fields_are_unknown
}

fn gather_pool(
    inventory: &Inventory,
    group: &[(u32, u32)],
    features: Features,
    rules: UpstreamRules,
) -> Option<Pool> {
    let slice = |index: u32| &inventory.slices[index as usize];
    let generation = group.iter().map(|(_, index)| slice(*index).generation).max()?;
    let slices: Vec<u32> = group
        .iter()
        .map(|(_, index)| *index)
        .filter(|index| slice(*index).generation == generation)
        .collect();
    let (pool, first) = (group[0].0, *slices.first()?);
    let expected = slice(first).resource_slice_count;
    let all_of_pool = &inventory.pools[pool as usize];
    if slices.len() as i64 == expected {
        return Some(build(inventory, pool, slices, None, (features, rules)));
    }
    if all_of_pool.newest > generation {
        // The driver is replacing this generation, and the next has nothing for this node.
        return None;
    }
    let counts = |index: &u32| slice(*index).generation == generation && !is_ignored(slice(*index), rules);
    let all: Vec<u32> = all_of_pool.slices.iter().copied().filter(counts).collect();
    if all.len() as i64 != expected {
        return Some(Pool {
            pool,
            is_incomplete: true,
            fault: None,
            slices: Vec::new(),
            others: Vec::new(),
            counter_slices: Vec::new(),
        });
    }
    Some(build(inventory, pool, slices, Some(all), (features, rules)))
}

fn build(
    inventory: &Inventory,
    pool: u32,
    mut slices: Vec<u32>,
    all: Option<Vec<u32>>,
    (features, rules): (Features, UpstreamRules),
) -> Pool {
    let slice = |index: u32| &inventory.slices[index as usize];
    let has_counters = |index: &u32| !slice(*index).counter_sets.is_empty();
    slices.sort_by(|one, two| (&slice(*one).name, one).cmp(&(&slice(*two).name, two)));
    let generation = slices.first().map_or(0, |index| slice(*index).generation);
    let of_pool = &inventory.pools[pool as usize];
    let count = slices.len();
    let mut counter_slices: Vec<u32> = slices.iter().copied().filter(has_counters).collect();
    let mut others: Vec<u32> = match all {
        Some(all) if features.partitionable_devices && all.len() != count => {
            let names: HashSet<&str> = slices.iter().map(|index| slice(*index).name.as_str()).collect();
            all.into_iter().filter(|index| !names.contains(slice(*index).name.as_str())).collect()
        }
        _ => Vec::new(),
    };
    counter_slices.extend(others.iter().copied().filter(has_counters));
    others.retain(|index| !has_counters(index));
    let is_newest = |index: &&u32| slice(**index).generation == of_pool.newest;
    let all_counters = of_pool.slices.iter().filter(is_newest).filter(|index| has_counters(index)).count();
    // A pool without fault gets one if some of its counters are left out.
    let is_known_valid =
        of_pool.newest == generation && counter_slices.len() == all_counters && inventory.is_faultless(pool);
    let with_devices: Vec<u32> = slices.iter().copied().filter(|index| !has_counters(index)).collect();
    let fault = if is_known_valid {
        None
    } else {
        let taking = if rules.counters_concern_every_node { &slices } else { &with_devices };
        find_fault(inventory, &with_devices, &counter_slices, taking, &others, features)
    };
    slices = if fault.is_some() { Vec::new() } else { with_devices };
    Pool { pool, is_incomplete: false, fault, slices, others, counter_slices }
}

fn find_fault(
    inventory: &Inventory,
    device_slices: &[u32],
    counter_slices: &[u32],
    taking: &[u32],
    others: &[u32],
    features: Features,
) -> Option<String> {
    let slice = |index: &u32| &inventory.slices[*index as usize];
    let mut names: HashSet<Name> = HashSet::new();
    for index in device_slices {
        for device in slice(index).first_device..slice(index).end_device {
            let name = inventory.devices[device as usize].name;
            if !names.insert(name) {
                return Some(format!("duplicate device name {}", inventory.text(name)));
            }
        }
    }
    if !features.partitionable_devices {
        return None;
    }
    let mut sets: HashMap<Name, HashSet<Name>> = HashMap::new();
    for set in counter_slices.iter().flat_map(|index| &slice(index).counter_sets) {
        let counters = set.counters.iter().map(|(counter, _)| *counter).collect();
        if sets.insert(set.name, counters).is_some() {
            return Some(format!("duplicate counter set name {}", inventory.text(set.name)));
        }
    }
    for index in taking.iter().chain(others) {
        for device in slice(index).first_device..slice(index).end_device {
            let device = DeviceRef { inventory, index: device };
            let bare = device.extra().into_iter().flat_map(|extra| extra.bare_sets.iter());
            for set in bare.copied().chain(device.consumptions().map(|taken| taken.set)) {
                if !sets.contains_key(&set) {
                    return Some(format!("counter set {} not found", inventory.text(set)));
                }
            }
            for taken in device.consumptions() {
                if !sets.get(&taken.set).is_some_and(|counters| counters.contains(&taken.counter)) {
                    return Some(format!(
                        "counter {} not found in counter set {}",
                        inventory.text(taken.counter),
                        inventory.text(taken.set)
                    ));
                }
            }
        }
    }
    None
}
