//! Use of each card of a node.

mod parts;

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use tessera_allocator::inventory::DeviceRef;
use tessera_api::{PciBusId, Quantity, managed};
use tessera_cluster::{AllocationExt, Cluster, worth};

pub use parts::Parts;
pub(crate) use parts::{KnownParts, Part};

/// A whole card, in thousandths.
pub const WHOLE: u32 = 1000;

/// The cards of a node, with the parts held by claims and by pods in flight.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NodeCards {
    /// By address.
    pub cards: BTreeMap<PciBusId, CardUse>,
}

/// The use of one card.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CardUse {
    /// Published devices.
    pub devices: u32,
    /// Held thousandths of the card: by memory slices, or for shares by the capacity with the largest taken fraction.
    pub used: u32,
    /// Sum of the thousandths held of each device: more than `used` where devices in use overlap.
    pub(crate) held: u32,
    /// Whether any free device could still be allocated, apart from the managed taint.
    pub is_allocatable: bool,
    /// Whether any device, free or not, has no taint but the managed one.
    pub(crate) is_usable: bool,
    /// Memory slices as bits: all, and held.
    slices: (u64, u64),
}

/// Held part of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardState {
    /// Thousandths of the card.
    pub used: u32,
    /// Memory slices, as bits.
    pub slices: u64,
}

impl CardUse {
    /// Thousandths available for allocation; 0 if no free device may be allocated.
    pub fn free(&self, is_avoided: bool) -> u16 {
        let is_usable = self.is_allocatable && !is_avoided;
        // At most WHOLE.
        if is_usable { (WHOLE - self.used.min(WHOLE)) as u16 } else { 0 }
    }

    /// Its memory slices, as bits.
    pub(crate) fn slices(&self) -> u64 {
        self.slices.0
    }

    /// Whether these slices are the whole card.
    pub fn is_all(&self, slices: u64) -> bool {
        slices == self.slices.0
    }

    /// Thousandths of the card taken by an allocation result for one of its devices.
    fn taken(&self, device: DeviceRef<'_>, part: &Part, result: &DeviceRequestAllocationResult) -> u32 {
        match &result.consumed_capacity {
            Some(consumed) => worth_of_share(device, part.slices, self.slices.0, |name| {
                let taken = consumed.get(name).and_then(|taken| Quantity::parse(&taken.0).ok());
                taken.map_or(0, |taken| taken.nanos())
            }),
            None => worth(part.slices, self.slices.0),
        }
    }

    /// Thousandths of the card held by all claims on one of its devices.
    fn held(&self, cluster: &Cluster, device: DeviceRef<'_>, slices: u64) -> u32 {
        if cluster.held().holds_whole(device) {
            worth(slices, self.slices.0)
        } else if cluster.held().is_shared(device) {
            worth_of_share(device, slices, self.slices.0, |name| cluster.held().shared(device, name))
        } else {
            0
        }
    }
}

impl NodeCards {
    /// Cards of a node, with use computed from the held devices.
    pub fn of(cluster: &Cluster, node: &str, parts: &Parts) -> Self {
        let mut all = NodeCards::default();
        let both = cluster.inventory().devices_of_node(node).zip(parts.of_devices());
        let parts: Vec<(DeviceRef<'_>, Part)> =
            both.filter_map(|(device, part)| Some((device, part.copied()?))).collect();
        for (_, part) in &parts {
            let card = all.cards.entry(part.card).or_default();
            card.devices += 1;
            card.slices.0 |= part.slices;
        }
        for (device, part) in &parts {
            let Some(card) = all.cards.get_mut(&part.card) else { continue };
            let held = card.held(cluster, *device, part.slices);
            if held > 0 {
                card.slices.1 |= part.slices;
                card.held += held;
            }
        }
        for (device, part) in &parts {
            let Some(card) = all.cards.get_mut(&part.card) else { continue };
            card.used = card.held.min(WHOLE);
            let is_free = if cluster.held().is_shared(*device) {
                card.held(cluster, *device, part.slices) < worth(part.slices, card.slices.0)
            } else {
                part.slices & card.slices.1 == 0
            };
            let is_tainted = device.is_tainted_besides(managed::TAINT_KEY);
            card.is_allocatable |= is_free && !is_tainted;
            card.is_usable |= !is_tainted;
        }
        all
    }

    /// Held part of each card.
    pub fn states(&self) -> BTreeMap<PciBusId, CardState> {
        let state = |card: &CardUse| CardState { used: card.used, slices: card.slices.1 };
        self.cards.iter().map(|(pci, card)| (*pci, state(card))).collect()
    }

    /// The same cards with nothing held.
    pub fn emptied(&self) -> Self {
        let empty = |card: &CardUse| CardUse { used: 0, held: 0, slices: (card.slices.0, 0), ..card.clone() };
        NodeCards { cards: self.cards.iter().map(|(address, card)| (*address, empty(card))).collect() }
    }

    /// Number of entirely free cards.
    pub fn free(&self) -> u32 {
        self.cards.values().filter(|card| card.used == 0).count() as u32
    }

    /// Held thousandths of all cards.
    pub fn used(&self) -> u32 {
        self.cards.values().map(|card| card.used).sum()
    }

    /// Adds the parts taken by allocations.
    pub fn add(&mut self, cluster: &Cluster, allocations: &[AllocationResult], driver: &str) {
        for result in allocations.iter().flat_map(AllocationExt::results) {
            if result.driver != driver || result.admin_access == Some(true) {
                continue;
            }
            let Some(device) = cluster.inventory().find(driver, &result.pool, &result.device).next() else {
                continue;
            };
            let Some(part) = Part::of(device) else { continue };
            let card = self.cards.entry(part.card).or_default();
            card.slices.1 |= part.slices;
            card.used = (card.used + card.taken(device, &part, result)).min(WHOLE);
        }
    }

    /// Thousandths of the card attributed to each result for one device. Their sum is the held part of the device: claims whose
    /// largest fractions are of different capacities divide the held part among them.
    pub fn worths(
        &self,
        cluster: &Cluster,
        device: DeviceRef<'_>,
        results: &[&DeviceRequestAllocationResult],
    ) -> Vec<u32> {
        let none = || vec![0; results.len()];
        let Some(part) = Part::of(device) else { return none() };
        let Some(card) = self.cards.get(&part.card) else { return none() };
        let mut worths: Vec<u32> = results.iter().map(|result| card.taken(device, &part, result)).collect();
        limit(&mut worths, card.held(cluster, device, part.slices));
        worths
    }
}

/// Scales `worths` to the sum `most` if they exceed it, or fall short by no more than was lost when each was rounded.
pub fn limit(worths: &mut [u32], most: u32) {
    let sum: u64 = worths.iter().copied().map(u64::from).sum();
    // The device's total alone includes a claim whose allocation write is in flight.
    if sum == 0 || sum + (worths.len() as u64) < u64::from(most) {
        return;
    }
    let mut before: u64 = 0;
    for worth in worths {
        let up_to = |numbers: u64| u64::from(most) * numbers / sum;
        let after = before + u64::from(*worth);
        // No more than `most`.
        *worth = (up_to(after) - up_to(before)) as u32;
        before = after;
    }
}

/// Thousandths of the card for these of all its memory slices.
pub(crate) fn worth(slices: u64, all: u64) -> u32 {
    (WHOLE * slices.count_ones() / all.count_ones().max(1)).min(WHOLE)
}

/// Thousandths of the card for shares of a device, by the capacity with the largest taken fraction; `taken` in billionths, by name.
pub fn worth_of_share(device: DeviceRef<'_>, slices: u64, all: u64, taken: impl Fn(&str) -> i128) -> u32 {
    let of_device = worth(slices, all).max(1);
    // At most WHOLE.
    worth::of_share(device, of_device.into(), taken).max(1) as u32
}
