//! How much of each card of a node is in use.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use tessera_allocator::inventory::DeviceRef;
use tessera_api::{DeviceName, DeviceType, PciBusId, Quantity, attribute, capacity, counter, managed};
use tessera_cluster::{Cluster, outcome};

use crate::value::CardState;

/// A whole card, in parts of it.
pub(crate) const WHOLE: u32 = 1000;

/// The cards of a node with what claims, or pods on their way, hold of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct NodeCards {
    pub cards: BTreeMap<PciBusId, CardUse>,
}

/// The use of one card.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct CardUse {
    /// Published devices.
    pub devices: u32,
    /// Thousandths of the card that are held: by memory slices, or of a share by memory.
    pub used: u32,
    /// Whether any free device without a taint could still be allocated.
    pub is_allocatable: bool,
    /// Memory slices, as bits: all, and those held.
    slices: (u64, u64),
}

/// What the devices of a node take of their cards, in the order of the inventory; `None` for one that is not ours. It
/// changes only with the node's slices, and reading names takes longer than all else.
#[derive(Debug)]
pub(crate) struct Parts {
    of_devices: Vec<Option<Part>>,
    /// By card.
    product_names: BTreeMap<PciBusId, String>,
}

/// What a device takes of its card.
#[derive(Debug, Clone, Copy)]
struct Part {
    card: PciBusId,
    slices: u64,
    /// By anything but that the controller allocates it.
    is_tainted: bool,
}

impl Parts {
    /// The parts of a node.
    pub fn of(cluster: &Cluster, node: &str, driver: &str) -> Self {
        let devices = cluster.inventory().devices_of_node(node);
        let mut product_names = BTreeMap::new();
        let own = |device: DeviceRef<'_>| {
            let part = (device.driver_name() == driver).then(|| part(device)).flatten()?;
            product_names.entry(part.card).or_insert_with(|| {
                device.text_attribute(attribute::PRODUCT_NAME).unwrap_or_default().to_owned()
            });
            Some(part)
        };
        let of_devices = devices.map(own).collect();
        Parts { of_devices, product_names }
    }
}

impl CardUse {
    /// Thousandths that can be given out; none where no free device may be allocated.
    pub fn free(&self, is_avoided: bool) -> u16 {
        let is_usable = self.is_allocatable && !is_avoided;
        // At most WHOLE.
        if is_usable { (WHOLE - self.used.min(WHOLE)) as u16 } else { 0 }
    }

    /// Whether a device takes all of the card.
    pub fn is_all(&self, slices: u64) -> bool {
        slices == self.slices.0
    }

    fn taken(&self, device: DeviceRef<'_>, part: &Part, result: &DeviceRequestAllocationResult) -> u32 {
        match &result.consumed_capacity {
            Some(consumed) => share(device, |name| {
                let taken = consumed.get(name).and_then(|taken| Quantity::parse(&taken.0).ok());
                taken.map_or(0, |taken| taken.nanos())
            }),
            None => worth(part.slices, self.slices.0),
        }
    }
}

impl Parts {
    /// The model of a card; empty where its devices do not say it.
    pub fn product_name(&self, card: &PciBusId) -> &str {
        self.product_names.get(card).map_or("", String::as_str)
    }

    /// The card of each device of the node, in the order of the inventory, with the slices that the device takes of it.
    pub fn cards(&self) -> impl Iterator<Item = Option<(PciBusId, u64)>> {
        self.of_devices.iter().map(|part| part.map(|part| (part.card, part.slices)))
    }
}

impl NodeCards {
    /// The cards of a node by what is held of its devices.
    pub fn of(cluster: &Cluster, node: &str, parts: &Parts) -> Self {
        let mut all = NodeCards::default();
        let both = cluster.inventory().devices_of_node(node).zip(&parts.of_devices);
        let parts: Vec<(DeviceRef<'_>, Part)> =
            both.filter_map(|(device, part)| Some((device, (*part)?))).collect();
        for (_, part) in &parts {
            let card = all.cards.entry(part.card).or_default();
            card.devices += 1;
            card.slices.0 |= part.slices;
        }
        for (device, part) in &parts {
            let Some(card) = all.cards.get_mut(&part.card) else { continue };
            if cluster.held().holds_whole(*device) {
                card.slices.1 |= part.slices;
                card.used += worth(part.slices, card.slices.0);
            } else if cluster.held().is_shared(*device) {
                card.slices.1 |= part.slices;
                card.used += share(*device, |name| cluster.held().shared(*device, name));
            }
        }
        for (device, part) in &parts {
            let Some(card) = all.cards.get_mut(&part.card) else { continue };
            card.used = card.used.min(WHOLE);
            let is_free = if cluster.held().is_shared(*device) {
                card.used < WHOLE
            } else {
                part.slices & card.slices.1 == 0
            };
            card.is_allocatable |= is_free && !part.is_tainted;
        }
        all
    }

    /// What is held of each card.
    pub fn states(&self) -> BTreeMap<PciBusId, CardState> {
        let state = |card: &CardUse| CardState { used: card.used, slices: card.slices.1 };
        self.cards.iter().map(|(pci, card)| (*pci, state(card))).collect()
    }

    /// The same cards with nothing held.
    pub fn emptied(&self) -> Self {
        let empty = |card: &CardUse| CardUse { used: 0, slices: (card.slices.0, 0), ..card.clone() };
        NodeCards { cards: self.cards.iter().map(|(address, card)| (*address, empty(card))).collect() }
    }

    /// Cards of which nothing is held.
    pub fn free(&self) -> u32 {
        self.cards.values().filter(|card| card.used == 0).count() as u32
    }

    /// Thousandths of cards that are held.
    pub fn used(&self) -> u32 {
        self.cards.values().map(|card| card.used).sum()
    }

    /// Adds what allocations take.
    pub fn add(&mut self, cluster: &Cluster, allocations: &[AllocationResult], driver: &str) {
        for result in allocations.iter().flat_map(outcome::results) {
            if result.driver != driver || result.admin_access == Some(true) {
                continue;
            }
            let Some(device) = cluster.inventory().find(driver, &result.pool, &result.device).next() else {
                continue;
            };
            let Some(part) = part(device) else { continue };
            let card = self.cards.entry(part.card).or_default();
            card.slices.1 |= part.slices;
            card.used = (card.used + card.taken(device, &part, result)).min(WHOLE);
        }
    }

    /// How many thousandths of its card a result takes by the device. `None` for a device that is not ours.
    pub fn taken(&self, device: DeviceRef<'_>, result: &DeviceRequestAllocationResult) -> Option<u32> {
        let part = part(device)?;
        Some(self.cards.get(&part.card)?.taken(device, &part, result))
    }
}

/// What a device takes of its card; `None` for a device whose name is not one of ours.
fn part(device: DeviceRef<'_>) -> Option<Part> {
    let name: DeviceName = device.name().parse().ok()?;
    let mut slices = memory_slices(device);
    // A card without counters has one part.
    if slices == 0 && name.device_type() != DeviceType::Mig {
        slices = 1;
    }
    let is_tainted = device.is_tainted_besides(managed::TAINT_KEY);
    Some(Part { card: name.card(), slices, is_tainted })
}

/// The memory slices that a device takes of its card, as bits.
pub(crate) fn memory_slices(device: DeviceRef<'_>) -> u64 {
    let numbers = device.counters().filter_map(|(_, counter, _)| counter::memory_slice_number(counter));
    numbers.fold(0, |slices, number| slices | 1 << number.min(63))
}

/// Thousandths of the card.
fn worth(slices: u64, all: u64) -> u32 {
    WHOLE * slices.count_ones() / all.count_ones().max(1)
}

/// Thousandths of a shared card, by the capacity of which shares take most; `taken` in billionths, by name.
pub(crate) fn share(device: DeviceRef<'_>, taken: impl Fn(&str) -> i128) -> u32 {
    let part = |name: &str| {
        let all = device.capacity(name).filter(|all| *all > 0)?;
        u32::try_from(taken(name).max(0).saturating_mul(i128::from(WHOLE)) / all).ok()
    };
    let most = [capacity::MEMORY, capacity::COMPUTE, capacity::SLOTS].into_iter().filter_map(part).max();
    most.unwrap_or(WHOLE).clamp(1, WHOLE)
}
