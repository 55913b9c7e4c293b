//! The cost of any devices of one node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tessera_allocator::inventory::DeviceRef;
use tessera_allocator::placement::Pick;
use tessera_api::gpu_pool::TopologyPolicy;
use tessera_api::{DeviceName, DeviceType, PciBusId};
use tessera_inventory::topology::CardSet;

use super::cards::{CardSets, CardsCost};
use super::{Partitions, RequestMix};
use crate::node_cards::{WHOLE, memory_slices};

/// What is held of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardState {
    /// Thousandths of the card.
    pub used: u32,
    /// Memory slices, as bits.
    pub slices: u64,
}

/// What devices of a node cost; the least is best. Fields in the order of their weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicesCost {
    /// Of the whole cards; `None` without any.
    pub cards: Option<CardsCost>,
    /// What the partitions take of the room for others, in halves of a compute slice; see [`Partitions`].
    pub room: u64,
    /// Of the shares: thousandths of cards left beside them.
    pub shares: u64,
    /// For partitions that cost the same: how far from the end of their cards they are, in memory slices.
    pub before_end: u64,
}

/// A device, as far as its cost goes.
#[derive(Debug, Clone, Copy)]
struct Part {
    card: PciBusId,
    kind: DeviceType,
    slices: u64,
}

/// The devices of one node with what they cost.
#[derive(Debug)]
pub struct NodeValue<'n> {
    sets: Option<&'n CardSets>,
    free: CardSet,
    states: BTreeMap<PciBusId, CardState>,
    topology: TopologyPolicy,
    parts: HashMap<&'n str, Part>,
    partitions: HashMap<PciBusId, Partitions>,
    driver: &'n str,
}

impl<'n> NodeValue<'n> {
    /// `devices` are all of the node, `states` what is held of its cards; a card without a state is free. Devices of
    /// other drivers cost nothing.
    pub fn new(
        driver: &'n str,
        devices: impl IntoIterator<Item = DeviceRef<'n>>,
        states: BTreeMap<PciBusId, CardState>,
        (sets, mix): (Option<&'n CardSets>, &RequestMix),
        topology: TopologyPolicy,
    ) -> Self {
        let mut parts = HashMap::new();
        let mut placements: BTreeMap<PciBusId, Vec<_>> = BTreeMap::new();
        for device in devices.into_iter().filter(|device| device.driver_name() == driver) {
            let Ok(name) = device.name().parse::<DeviceName>() else { continue };
            let slices = memory_slices(device);
            if let DeviceName::Partition(partition) = &name {
                placements.entry(name.card()).or_default().push((partition.profile.clone(), slices));
            }
            parts.insert(device.name(), Part { card: name.card(), kind: name.device_type(), slices });
        }
        let is_free = |card: &PciBusId| states.get(card).is_none_or(|state| state.used == 0);
        Self {
            free: sets.map_or(CardSet::EMPTY, |sets| {
                sets.topology().set(sets.topology().cards().iter().copied().filter(is_free))
            }),
            sets,
            states,
            topology,
            parts,
            partitions: placements
                .into_iter()
                .map(|(card, placements)| (card, Partitions::new(placements, mix)))
                .collect(),
            driver,
        }
    }

    /// What the picked devices cost together. Those with admin access cost nothing.
    #[must_use]
    pub fn cost(&self, picks: &[Pick<'_>]) -> DevicesCost {
        let mut whole = Vec::new();
        let mut shares = 0;
        let mut before_end = 0;
        let mut taken: BTreeMap<PciBusId, u64> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for pick in picks.iter().filter(|pick| !pick.has_admin_access) {
            if pick.device.driver_name() != self.driver {
                continue;
            }
            let Some(part) = self.parts.get(pick.device.name()) else { continue };
            let state = self.states.get(&part.card).copied().unwrap_or_default();
            match part.kind {
                DeviceType::Gpu => whole.push(part.card),
                DeviceType::Mig => before_end += u64::from(part.slices.leading_zeros()),
                _ => {
                    if shared.insert(part.card) {
                        shares += u64::from(WHOLE.saturating_sub(state.used));
                    }
                }
            }
            *taken.entry(part.card).or_default() |= part.slices;
        }
        let room = taken.iter().filter_map(|(card, slices)| {
            let used = self.states.get(card).map_or(0, |state| state.slices);
            Some(self.partitions.get(card)?.loss(used, *slices))
        });
        DevicesCost { room: room.sum(), cards: self.cards_cost(&whole), shares, before_end }
    }

    fn cards_cost(&self, whole: &[PciBusId]) -> Option<CardsCost> {
        let sets = self.sets.filter(|_| !whole.is_empty())?;
        let mut cost = sets.cost(sets.topology().set(whole.iter().copied()), self.free);
        if self.topology == TopologyPolicy::Ignored {
            (cost.ring.0, cost.numa_nodes, cost.weight.0) = (0, 0, 0);
        }
        Some(cost)
    }
}
