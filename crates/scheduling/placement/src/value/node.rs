//! The cost of any devices of one node.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use tessera_allocator::placement::Pick;
use tessera_api::gpu_pool::TopologyPolicy;
use tessera_api::{DeviceType, PciBusId};
use tessera_inventory::topology::CardSet;

use super::cards::{CardSets, CardsCost};
use super::packing::{CardValues, Cost};
use super::partitions::Partitions;
use super::request_mix::RequestMix;
use crate::node_cards::{CardState, Part, Parts, WHOLE, worth_of_share};

/// Cost of devices of a node; the least is best. Fields in the order of their weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicesCost {
    /// Cost of the whole cards; `None` without any.
    pub cards: Option<CardsCost>,
    /// Room for others lost to the partitions, in halves of a compute slice; see [`Partitions`].
    pub room: u64,
    /// The node's room for the demand lost to the shares; see [`CardValues`].
    pub value: Cost,
    /// Tie-break for shares: free thousandths of their cards.
    pub shares: u64,
    /// Tie-break for partitions: their cards, the first being best. Ties are frequent; with an arbitrary choice, few of a node's
    /// cards would ever become empty for requests of whole ones.
    pub partitioned: Vec<PciBusId>,
    /// Tie-break for partitions on the same cards: distance from the end, in memory slices.
    pub before_end: u64,
}

/// Computes costs of devices of one node.
#[derive(Debug)]
pub struct NodeValue<'n> {
    sets: Option<&'n CardSets>,
    free: CardSet,
    states: BTreeMap<PciBusId, CardState>,
    topology: TopologyPolicy,
    parts: &'n Parts,
    mix: &'n RequestMix,
    /// By index of [`Parts::placements`]. Computed on demand: most pods ask for no partition.
    partitions: OnceCell<Vec<Partitions<'n>>>,
    driver: &'n str,
    values: Option<CardValues<'n>>,
}

impl<'n> NodeValue<'n> {
    /// `parts` are those of all devices of the node, `states` the held parts of its cards; a card without a state is free. Devices
    /// of other drivers cost nothing.
    pub fn new(
        driver: &'n str,
        parts: &'n Parts,
        states: BTreeMap<PciBusId, CardState>,
        (sets, mix): (Option<&'n CardSets>, &'n RequestMix),
        topology: TopologyPolicy,
    ) -> Self {
        let is_free = |card: &PciBusId| states.get(card).is_none_or(|state| state.used == 0);
        Self {
            free: sets.map_or(CardSet::EMPTY, |sets| {
                sets.topology().set(sets.topology().cards().iter().copied().filter(is_free))
            }),
            sets,
            states,
            topology,
            parts,
            mix,
            partitions: OnceCell::new(),
            driver,
            values: None,
        }
    }

    /// Adds the values for shares of the node's cards; without them, the fullest card is best.
    #[must_use]
    pub fn with_values(self, values: CardValues<'n>) -> Self {
        Self { values: Some(values), ..self }
    }

    /// Card of one of the driver's devices; `None` for an unknown name.
    #[must_use]
    pub fn card(&self, device: &str) -> Option<PciBusId> {
        self.parts.of_device(device).map(|part| part.card)
    }

    /// Cost of the picked devices together. Picks with admin access cost nothing.
    #[must_use]
    pub fn cost(&self, picks: &[Pick<'_>]) -> DevicesCost {
        let mut whole = Vec::new();
        let mut before_end = 0;
        let mut taken: BTreeMap<PciBusId, u64> = BTreeMap::new();
        for (_, part) in self.parts_of(picks) {
            match part.kind {
                DeviceType::Gpu => whole.push(part.card),
                DeviceType::Mig => before_end += u64::from(part.slices.leading_zeros()),
                _ => {}
            }
            if part.is_partition {
                *taken.entry(part.card).or_default() |= part.slices;
            }
        }
        let room = taken.iter().filter_map(|(card, slices)| {
            let used = self.states.get(card).map_or(0, |state| state.slices);
            Some(self.partitions()[self.parts.placements_of(card)?].loss(used, *slices))
        });
        let room = room.sum();
        let partitioned = taken.into_keys().collect();
        let shared = self.shared(picks);
        let taken = |card: &PciBusId| shared.get(card).copied().unwrap_or(0);
        let value = self.values.filter(|_| !shared.is_empty()).map_or(0, |values| values.cost(taken));
        let used = |card| self.states.get(card).map_or(0, |state| state.used);
        let shares = shared.keys().map(|card| u64::from(WHOLE.saturating_sub(used(card)))).sum();
        DevicesCost { room, cards: self.cards_cost(&whole), value, shares, partitioned, before_end }
    }

    /// Free part of the node's cards after the picked devices are taken; `None` unless all are shares and their values are known.
    #[must_use]
    pub fn free_after(&self, picks: &[Pick<'_>]) -> Option<Box<[u16]>> {
        let is_share = |part: &Part| !matches!(part.kind, DeviceType::Gpu | DeviceType::Mig);
        let values = self.values.filter(|_| self.parts_of(picks).all(|(_, part)| is_share(part)))?;
        let shared = self.shared(picks);
        Some(values.free_after(|card| shared.get(card).copied().unwrap_or(0)))
    }

    fn partitions(&self) -> &[Partitions<'n>] {
        self.partitions.get_or_init(|| {
            self.parts.placements().iter().map(|placements| placements.with(self.mix)).collect()
        })
    }

    /// Picked devices of the driver, without admin access.
    fn parts_of<'p>(&self, picks: &'p [Pick<'p>]) -> impl Iterator<Item = (&'p Pick<'p>, &Part)> {
        let counts = |pick: &&Pick<'_>| !pick.has_admin_access && pick.device.driver_name() == self.driver;
        picks.iter().filter(counts).filter_map(|pick| Some((pick, self.parts.of_device(pick.device.name())?)))
    }

    /// Thousandths taken by shares, by card.
    fn shared(&self, picks: &[Pick<'_>]) -> BTreeMap<PciBusId, u32> {
        let mut shared = BTreeMap::new();
        for (pick, part) in self.parts_of(picks) {
            if !matches!(part.kind, DeviceType::Gpu | DeviceType::Mig) {
                let all = self.parts.slices_of(&part.card);
                let taken = |name: &str| pick.consumed(name).unwrap_or(0);
                let more = worth_of_share(pick.device, part.slices, all, taken);
                *shared.entry(part.card).or_default() += more;
            }
        }
        shared
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
