//! What is published of a machine: tiers of slices, in the order in which kube-scheduler shall try them.

mod attributes;
mod counters;
mod held;
mod slice;
mod taints;
mod warning;
mod whole_card;

pub use held::Held;
pub use slice::{Contents, Slice, Tier};
pub use warning::Warning;

use k8s_openapi::api::resource::v1::{CounterSet, Device};

use crate::topology::{MAX_CARDS, Topology};
use crate::{Machine, machine::Card};
use whole_card::WholeCards;

/// What a [`Pool`] depends on besides the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Name of the DRA driver, valid by [`tessera_api::limits::is_driver_name`]: the prefix of the taints' keys.
    pub driver_name: String,
    /// Devices that allocated or prepared claims hold, as they were last published.
    pub held: Held,
}

/// The devices of one node as they shall be published.
///
/// Equal [`Pool::slices`] mean that nothing needs to be written. Comparing with what an API server gives back, leave
/// out `timeAdded` of taints: the server fills it in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The slices by ascending [`Slice::name_suffix`]; none on a machine without anything to publish.
    pub slices: Vec<Slice>,
    /// What could not be published, and why. For the log, not for the API.
    pub warnings: Vec<Warning>,
}

impl Pool {
    /// What to publish of `machine`: every whole card it offers, best neighbours next to each other, then the held
    /// devices that it no longer offers, tainted.
    ///
    /// Valid by the limits of `resource.k8s.io/v1` for any facts, and the same for any order of enumeration.
    #[must_use]
    pub fn new(machine: &Machine, options: &PoolOptions) -> Self {
        let mut warnings = Vec::new();
        let cards = machine.cards_by_address();
        warn_of_duplicates(machine, &cards, &mut warnings);
        if cards.len() > MAX_CARDS {
            warnings.push(Warning::NoGroups(cards.len()));
        }

        let topology = Topology::new(machine);
        let mut publisher = WholeCards::new(machine, &topology, &options.driver_name, &mut warnings);
        let mut counter_sets: Vec<CounterSet> = Vec::new();
        let mut devices: Vec<Device> = Vec::new();
        for position in publisher.order() {
            let card = cards[position];
            if card.mig.as_ref().is_some_and(|mig| mig.mode) {
                publisher.warnings.push(Warning::MigModeOn(card.pci));
                continue;
            }
            let set = options.held.counter_set(counters::of_card(card, publisher.warnings));
            devices.push(publisher.device(position, card, &set));
            counter_sets.push(set);
        }
        options.held.add_what_is_not_offered(
            &options.driver_name,
            &mut devices,
            &mut counter_sets,
            &mut warnings,
        );
        // Devices go by topology; the sets they draw on are only looked up.
        counter_sets.sort_by(|one, other| one.name.cmp(&other.name));

        let slices =
            Slice::of_counter_sets(counter_sets).chain(Slice::of_devices(Tier::Cards, devices)).collect();
        Self { slices, warnings }
    }

    /// All devices, in the order of publication.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.slices.iter().flat_map(|slice| match &slice.contents {
            Contents::Devices(devices) => devices.as_slice(),
            Contents::SharedCounters(_) => &[],
        })
    }

    /// All counter sets, by name.
    pub fn counter_sets(&self) -> impl Iterator<Item = &CounterSet> {
        self.slices.iter().flat_map(|slice| match &slice.contents {
            Contents::SharedCounters(sets) => sets.as_slice(),
            Contents::Devices(_) => &[],
        })
    }
}

fn warn_of_duplicates(machine: &Machine, cards: &[&Card], warnings: &mut Vec<Warning>) {
    for card in cards {
        if machine.cards.iter().filter(|other| other.pci == card.pci).count() > 1 {
            warnings.push(Warning::Duplicate(card.pci));
        }
    }
}
