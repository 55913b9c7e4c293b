//! The published form of a machine: tiers of slices, in kube-scheduler's order of trying.

mod attributes;
mod batch;
mod consumable_shares;
mod counters;
mod description;
mod held;
mod offers;
mod partition;
mod possible;
mod shared;
mod taints;
mod tier;
mod tiers;
mod whole_card;

pub use held::Held;
pub use offers::{CardOffer, CardOffers};
pub use tessera_slices::{Contents, Slice};
pub use tier::Tier;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceAttribute};
use tessera_api::gpu_pool::Allocation;
use tessera_api::health::{HealthFault, HealthPolicy};
use tessera_api::offer::{OfHeldCards, PlacementOrder};
use tessera_api::{DeviceName, PciBusId};

use crate::machine::{Card, Machine};
use crate::mig::Grid;
use crate::topology::{MAX_CARDS, Topology};
use crate::warning::Warning;
use description::{Description, Versions};
use possible::Possible;
use shared::SharedDevices;
use tiers::Tiers;
use whole_card::WholeCards;

/// Inputs of a [`Pool`] besides the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Name of the DRA driver, valid by [`tessera_api::limits::is_driver_name`]: the prefix of the taints' keys.
    pub driver_name: String,
    /// Offer of each card.
    pub offers: CardOffers,
    /// Devices held by allocated or prepared claims, as last published.
    pub held: Held,
    /// Effect of cards' faults on their devices.
    pub health: HealthPolicy,
}

impl PoolOptions {
    /// The default offer of all cards, no held devices, and the default effect of faults.
    #[must_use]
    pub fn new(driver_name: &str) -> Self {
        Self {
            driver_name: driver_name.to_owned(),
            offers: CardOffers::default(),
            held: Held::default(),
            health: HealthPolicy::default(),
        }
    }
}

/// The devices of one node in the form to be published.
///
/// If [`Pool::slices`] are equal, nothing needs to be written. When comparing with an API server's answer, leave out
/// `timeAdded` of taints: the server fills it in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The slices by ascending [`Slice::name_suffix`]; none on a machine without anything to publish.
    pub slices: Vec<Slice>,
    /// Facts not published, with reasons; for the log.
    pub warnings: Vec<Warning>,
    /// Names of the devices published, tainted, only because claims hold them: devices no longer offered, and cards
    /// allocated when nothing else of them was offered, with a larger offer after the end of their
    /// claims.
    pub no_longer_offered: Vec<String>,
}

impl Pool {
    /// The published form of `machine`: every whole card, best neighbours next to each other; the MIG partitions offered by its cards,
    /// smallest first; shares of cards; and the held devices no longer offered, tainted.
    ///
    /// Valid by the limits of `resource.k8s.io/v1` for any facts, and the same for any order of enumeration. Only one card and
    /// one slice of it are in memory as the API's types at a time.
    #[must_use]
    pub fn new(machine: &Machine, options: &PoolOptions) -> Self {
        let mut warnings = Vec::new();
        let cards = machine.cards_by_address();
        warn_of_duplicates(machine, &cards, &mut warnings);
        if cards.len() > MAX_CARDS {
            warnings.push(Warning::NoGroups(cards.len()));
        }

        let topology = Topology::new(machine);
        let groups = topology.groups();
        let mut builder = PoolBuilder {
            options,
            versions: Versions::new(machine, &mut warnings),
            whole_cards: WholeCards::new(&topology, &groups),
            cuda_driver_version: machine.cuda_driver_version,
            tiers: Tiers::default(),
            warnings,
        };
        for (rank, position) in groups.order.iter().enumerate() {
            builder.add_card(rank, *position, cards[*position]);
        }
        let PoolBuilder { mut tiers, mut warnings, .. } = builder;
        let no_longer_offered = tiers.add_held(options, &cards, &mut warnings);
        Self { slices: tiers.into_slices(), warnings, no_longer_offered }
    }

    /// The `published` slices with the taint of `fault` at each device, beside its other taints. The same for a fault without
    /// effect on claims.
    #[must_use]
    pub fn with_fault(
        published: &[Slice],
        driver_name: &str,
        fault: &HealthFault,
        policy: &HealthPolicy,
    ) -> Self {
        let mut slices = published.to_vec();
        if let Some(taint) = taints::of_fault(driver_name, fault, policy) {
            for slice in &mut slices {
                let mut devices = slice.contents.devices();
                devices.iter_mut().for_each(|device| taints::add(device, taint.clone()));
                if !devices.is_empty() {
                    slice.contents = Contents::of_devices(&devices);
                }
            }
        }
        Self { slices, ..Self::default() }
    }

    /// Names of all devices, in the order of publication.
    pub fn device_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slices.iter().flat_map(|slice| slice.contents.device_names())
    }

    /// All devices, in the order of publication.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.slices.iter().flat_map(|slice| slice.contents.devices())
    }

    /// All counter sets, by name.
    pub fn counter_sets(&self) -> impl Iterator<Item = CounterSet> {
        self.slices.iter().flat_map(|slice| slice.contents.shared_counters())
    }
}

/// Every card of `machine` as a whole, as if offered whole and without a deciding pool, by PCI
/// address. Selectors of cards are evaluated on these, also for a card partitioned or not offered whole.
#[must_use]
pub fn whole_cards(machine: &Machine, driver_name: &str) -> BTreeMap<PciBusId, Device> {
    // Facts without a description are warned of at publication.
    let mut warnings = Vec::new();
    let topology = Topology::new(machine);
    let groups = topology.groups();
    let makers = WholeCards::new(&topology, &groups);
    let versions = Versions::new(machine, &mut warnings);
    let options = PoolOptions::new(driver_name);
    let cards = machine.cards_by_address().into_iter().enumerate().map(|(position, card)| {
        let grid = match &card.mig {
            Some(mig) => Grid::new(card.pci, mig, PlacementOrder::default(), &mut warnings),
            None => Grid::whole(),
        };
        let description = Description::new(card, &versions, &options, &CardOffer::default(), &mut warnings);
        // No selector reads counters.
        (card.pci, makers.device(position, card, &description, &grid, None, &mut warnings))
    });
    cards.collect()
}

/// The published attributes common to all devices of a card; `None` for a missing card.
#[must_use]
pub fn card_attributes(machine: &Machine, card: PciBusId) -> Option<BTreeMap<String, DeviceAttribute>> {
    // Facts without a description are warned of at publication.
    let mut warnings = Vec::new();
    let card = machine.cards.iter().find(|known| known.pci == card)?;
    let versions = Versions::new(machine, &mut warnings);
    // Neither name nor offer of a driver are in attributes.
    let options = PoolOptions::new("");
    let description = Description::new(card, &versions, &options, &CardOffer::default(), &mut warnings);
    Some(description.attributes)
}

/// Puts the devices of one card after the other into tiers.
struct PoolBuilder<'a> {
    options: &'a PoolOptions,
    versions: Versions,
    whole_cards: WholeCards<'a>,
    cuda_driver_version: Option<u32>,
    tiers: Tiers,
    warnings: Vec<Warning>,
}

impl PoolBuilder<'_> {
    /// Adds the card at `position` of the topology, the `rank`-th in the order of trying.
    fn add_card(&mut self, rank: usize, position: usize, card: &Card) {
        let PoolOptions { offers, held, .. } = self.options;
        let card_offer = offers.of(card.pci);
        let offer = &card_offer.offer;
        let warnings = &mut self.warnings;
        let grid = match &card.mig {
            Some(mig) => Grid::new(card.pci, mig, offer.partitioning.placement_order, warnings),
            None => Grid::whole(),
        };
        let Some(possible) = Possible::of(card, &grid, warnings) else { return };
        let whole_card = DeviceName::Card(card.pci).to_string();
        let can_collide = possible.has_others(&grid, offer)
            || held.holds_others(card.pci, &whole_card)
            || held.holds_with_counters(&whole_card);
        // kube-scheduler would allocate parts of the card beside a whole card without counters. So the whole card stays alone, as
        // given out, among the devices no longer offered; the rest of the offer comes after its claim.
        if can_collide && held.holds_alone(&whole_card) {
            return;
        }
        let set = can_collide.then(|| {
            let fresh = counters::of_card(card.pci, &grid);
            let set = held.counter_set(fresh.clone());
            let is_as_before = set != fresh;
            (set, is_as_before)
        });
        let description = Description::new(card, &self.versions, self.options, card_offer, warnings);
        // Number of claims with one of its devices.
        let for_claims = |device| match offer.sharing.consumable_shares {
            Some(how) => consumable_shares::shared(device, how),
            None => device,
        };
        let drawn_on = set.as_ref().map(|(set, _)| set);
        let as_given_out = |device| held.as_given_out(device, drawn_on);
        if possible.whole() && offer.whole_cards {
            let device = self.whole_cards.device(position, card, &description, &grid, drawn_on, warnings);
            self.tiers.add_card(as_given_out(for_claims(device)));
        }
        let Some((set, is_as_before)) = &set else { return };
        if *is_as_before {
            warnings.push(Warning::OldCounters(card.pci));
        }

        let partitions = if possible == Possible::Existing {
            let mut partitions = partition::existing(card, &grid, set, warnings);
            partitions.retain(|partition| counters::covers(set, &partition.consumption));
            partitions
        } else if possible.partitions() && !is_as_before {
            let mut partitions = partition::on_demand(card, &grid, set);
            partitions.retain(|partition| offer.offers_partition(&partition.profile.facts.name));
            let publishes_first = offer.partitioning.of_held_cards == OfHeldCards::First
                && card_offer.allocation == Allocation::Native;
            if publishes_first && held.holds(&whole_card) {
                // Without any, the number of slices would change, and so each slice of the node.
                partitions.truncate(1);
            }
            partitions
        } else {
            Vec::new()
        };
        let shared =
            SharedDevices { card, description: &description, cuda_driver_version: self.cuda_driver_version };
        let mps = offer.sharing.mps.as_ref().filter(|_| !is_as_before);
        let card_slices = grid.profiles.iter().map(|profile| profile.facts.compute_slices).max().unwrap_or(1);
        for partition in &partitions {
            let device = partition.device(card, &description, warnings);
            self.tiers.add_partition(rank, device.and_then(|device| as_given_out(for_claims(device))));
            let device = mps.and_then(|mps| shared.partition_mps(partition, card_slices, mps, warnings));
            self.tiers.add_shared(device.and_then(as_given_out));
        }
        self.tiers.close_partitions(rank);
        if possible.whole() {
            let mps = mps.filter(|mps| mps.cards);
            let device = mps.and_then(|mps| shared.mps(mps, set, warnings));
            self.tiers.add_shared(device.and_then(as_given_out));
            let slicing = offer.sharing.time_slicing.as_ref();
            let device = slicing.and_then(|slicing| shared.time_slices(slicing, set, warnings));
            self.tiers.add_shared(device.and_then(as_given_out));
        }
        self.tiers.counter_sets.push(set.clone());
    }
}

fn warn_of_duplicates(machine: &Machine, cards: &[&Card], warnings: &mut Vec<Warning>) {
    for card in cards {
        if machine.cards.iter().filter(|other| other.pci == card.pci).count() > 1 {
            warnings.push(Warning::Duplicate(card.pci));
        }
    }
}
