//! Parts of cards taken by each device of a node. They are the same for all machines of a model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tessera_allocator::inventory::{DeviceRef, SliceKind};
use tessera_api::{DeviceName, DeviceType, PciBusId};
use tessera_cluster::worth::{CARD, Worth, slices};
use tessera_cluster::{CardClass, Cluster};

use crate::value::Placements;

/// Parts of cards taken by a node's devices, in the order of the inventory; `None` for a device of another driver. Cached because
/// they change only with the node's slices, and parsing names is the slowest step.
#[derive(Debug, Default)]
pub struct Parts {
    of_devices: Vec<Option<Part>>,
    /// Whether some device is of another driver, or has a name that is not one of ours.
    has_others: bool,
    /// The hash is faster than the one of the standard library: a pod judged on a node looks up each device.
    by_name: hashbrown::HashMap<Box<str>, Part>,
    cards: BTreeMap<PciBusId, Card>,
    /// Each set of placements once: most machines have equal cards.
    placements: Vec<Placements>,
}

/// Part of a card taken by one device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub card: PciBusId,
    /// Memory slices, as bits.
    pub slices: u64,
    pub kind: DeviceType,
    /// A partition, or a share of one.
    pub is_partition: bool,
}

/// The devices of one card.
#[derive(Debug, Default)]
struct Card {
    class: CardClass,
    /// Of the device with the most of the card.
    largest: Worth,
    /// All memory slices, as bits.
    slices: u64,
    /// Index of its placements of partitions.
    placements: Option<usize>,
}

impl Parts {
    /// The parts of these devices, those of one node.
    pub fn of<'i>(devices: impl Iterator<Item = DeviceRef<'i>>, driver: &str) -> Self {
        let mut parts = Parts::default();
        let mut placements: BTreeMap<PciBusId, Vec<_>> = BTreeMap::new();
        for device in devices {
            let name = Some(device).filter(|device| device.driver_name() == driver);
            let name = name.and_then(|device| device.name().parse::<DeviceName>().ok());
            let part = name.as_ref().map(|name| Part::with_name(device, name));
            if let (Some(part), Some(name)) = (part, name) {
                parts.by_name.insert(device.name().into(), part);
                let new = || Card { class: CardClass::of(device), ..Card::default() };
                let card = parts.cards.entry(part.card).or_insert_with(new);
                card.slices |= part.slices;
                let worth = Worth::of_whole(device);
                if (card.largest.cards, card.largest.memory) < (worth.cards, worth.memory) {
                    card.largest = worth;
                }
                if let DeviceName::Partition(partition) = name {
                    placements.entry(part.card).or_default().push((partition.profile, part.slices));
                }
            }
            parts.has_others |= part.is_none();
            parts.of_devices.push(part);
        }
        for (card, of_card) in placements {
            let of_card = Placements::new(of_card);
            let known = parts.placements.iter().position(|other| *other == of_card);
            let place = known.unwrap_or(parts.placements.len());
            if known.is_none() {
                parts.placements.push(of_card);
            }
            if let Some(card) = parts.cards.get_mut(&card) {
                card.placements = Some(place);
            }
        }
        parts
    }

    /// Model of a card; empty if its devices do not name a model.
    pub fn product_name(&self, card: &PciBusId) -> &str {
        let card = self.cards.get(card);
        card.and_then(|card| card.class.product_name.as_deref()).unwrap_or_default()
    }

    /// Class and worth of each card. A card without a device for the whole has memory in proportion to its largest device.
    pub fn worths(&self) -> impl Iterator<Item = (&PciBusId, &CardClass, Worth)> {
        self.cards.iter().map(|(address, card)| {
            let Worth { cards, memory } = card.largest;
            let memory = u128::from(memory) * u128::from(CARD) / u128::from(cards.max(1));
            let memory = u64::try_from(memory).unwrap_or(u64::MAX);
            (address, &card.class, Worth { cards: CARD, memory })
        })
    }

    /// The cards of all devices; `None` if some device is of another driver, or has a name that is not one of ours.
    pub(crate) fn cards_of_all(&self) -> Option<impl Iterator<Item = &PciBusId>> {
        (!self.has_others).then(|| self.cards.keys())
    }

    /// By device, in the order of the inventory: its card, and the memory slices taken by the device.
    pub fn cards(&self) -> impl Iterator<Item = Option<(PciBusId, u64)>> {
        self.of_devices().map(|part| part.map(|part| (part.card, part.slices)))
    }

    /// By device, in the order of the inventory.
    pub(super) fn of_devices(&self) -> impl Iterator<Item = Option<&Part>> {
        self.of_devices.iter().map(Option::as_ref)
    }

    /// The part of the driver's device of this name.
    pub(crate) fn of_device(&self, name: &str) -> Option<&Part> {
        self.by_name.get(name)
    }

    /// All memory slices of a card, as bits.
    pub(crate) fn slices_of(&self, card: &PciBusId) -> u64 {
        self.cards.get(card).map_or(0, |card| card.slices)
    }

    /// Placements of partitions, each set once.
    pub(crate) fn placements(&self) -> &[Placements] {
        &self.placements
    }

    /// Index of a card's placements of partitions.
    pub(crate) fn placements_of(&self, card: &PciBusId) -> Option<usize> {
        self.cards.get(card)?.placements
    }
}

impl Part {
    /// `None` for a device whose name is not one of ours.
    pub fn of(device: DeviceRef<'_>) -> Option<Self> {
        device.name().parse().ok().map(|name| Self::with_name(device, &name))
    }

    fn with_name(device: DeviceRef<'_>, name: &DeviceName) -> Self {
        Part {
            card: name.card(),
            slices: slices(device, name),
            kind: name.device_type(),
            is_partition: matches!(name, DeviceName::Partition(_) | DeviceName::PartitionMps(_)),
        }
    }
}

/// Parts by the kinds of a node's slices.
#[derive(Debug, Default)]
pub(crate) struct KnownParts {
    of_kinds: HashMap<Box<[SliceKind]>, Arc<Parts>>,
    /// Number of entries at which those that no node has are dropped.
    most: usize,
}

/// Least number of entries for [`KnownParts::most`].
const FEW: usize = 256;

impl KnownParts {
    /// The parts of a node. `driver` is the same at each call.
    pub fn of_node(&mut self, cluster: &Cluster, node: &str, driver: &str) -> Arc<Parts> {
        let kinds: Box<[SliceKind]> = cluster.inventory().kinds_of_node(node).collect();
        if let Some(known) = self.of_kinds.get(&kinds) {
            return Arc::clone(known);
        }
        if self.of_kinds.len() >= self.most.max(FEW) {
            self.of_kinds.retain(|_, parts| Arc::strong_count(parts) > 1);
            self.most = 2 * self.of_kinds.len();
        }
        let parts = Arc::new(Parts::of(cluster.inventory().devices_of_node(node), driver));
        self.of_kinds.insert(kinds, Arc::clone(&parts));
        parts
    }
}
