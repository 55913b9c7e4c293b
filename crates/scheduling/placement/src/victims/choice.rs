//! The cheapest units of one node whose end frees enough, by arithmetic.

use std::cmp::Reverse;

use tessera_allocator::claim::Claim;
use tessera_allocator::inventory::DeviceRef;
use tessera_api::{DeviceName, PciBusId};
use tessera_cluster::worth::{Worth, slices};

use super::{Cost, Unit};
use crate::demand::Demand;
use crate::fit;
use crate::fleet::NodeIndex;
use crate::node_cards::{WHOLE, worth};
use crate::statement::Statement;
use crate::view::View;

/// What a node lacks for a seat, at least.
#[derive(Debug, Clone)]
pub(super) struct Lack {
    /// Whole cards, and thousandths of cards in all, that the seat takes at least.
    pub takes: [u64; 2],
    /// Usable cards, each with the sum of what is held of its devices, in thousandths.
    pub cards: Vec<(PciBusId, u32)>,
    /// By resource: what the seat asks for beyond what is free; not positive where enough is.
    pub room: Vec<i128>,
}

/// A unit of the node with what its end frees there at most.
#[derive(Debug)]
pub(super) struct Freed {
    pub unit: usize,
    /// By card, in thousandths.
    pub cards: Vec<(PciBusId, u32)>,
    /// By resource.
    pub room: Vec<i128>,
}

impl Lack {
    fn lacks_devices(&self) -> bool {
        let free = |held: u32| u64::from(WHOLE - held.min(WHOLE));
        let whole = self.cards.iter().filter(|(_, held)| *held == 0).count() as u64;
        let all: u64 = self.cards.iter().map(|(_, held)| free(*held)).sum();
        whole < self.takes[0] || all < self.takes[1]
    }

    /// Whether room other than devices is missing.
    pub fn lacks_room(&self) -> bool {
        self.room.iter().any(|missing| *missing > 0)
    }

    /// Whether nothing is missing.
    pub fn is_met(&self) -> bool {
        !self.lacks_room() && !self.lacks_devices()
    }

    /// Whether the end of the unit frees anything that is missing.
    fn is_helped_by(&self, freed: &Freed) -> bool {
        let mut room = self.room.iter().zip(&freed.room);
        let frees_cards = || {
            let is_of_node =
                |card: &PciBusId| self.cards.iter().any(|(other, held)| other == card && *held > 0);
            freed.cards.iter().any(|(card, worth)| *worth > 0 && is_of_node(card))
        };
        room.any(|(missing, freed)| *missing > 0 && *freed > 0) || (self.lacks_devices() && frees_cards())
    }

    fn take_off(&mut self, freed: &Freed) {
        for (card, worth) in &freed.cards {
            if let Some((_, held)) = self.cards.iter_mut().find(|(other, _)| other == card) {
                *held = held.saturating_sub(*worth);
            }
        }
        for (missing, freed) in self.room.iter_mut().zip(&freed.room) {
            *missing = missing.saturating_sub(*freed);
        }
    }

    /// The lack with these units gone.
    fn without<'f>(&self, gone: impl Iterator<Item = &'f Freed>) -> Lack {
        let mut lack = self.clone();
        gone.for_each(|freed| lack.take_off(freed));
        lack
    }

    /// The cheapest units found whose end frees enough, of those in `units`; `None` if all together do not.
    pub fn cheapest(&self, freed: &[Freed], units: &[Unit]) -> Option<Vec<usize>> {
        if !self.without(freed.iter()).is_met() {
            return None;
        }
        // The youngest of the smallest first, or the largest first: the latter may need fewer pods.
        let mut young: Vec<&Freed> = freed.iter().collect();
        young.sort_by_cached_key(|freed| key(&units[freed.unit]));
        let mut large = young.clone();
        large.sort_by_cached_key(|freed| {
            let unit = &units[freed.unit];
            let all: u64 = freed.cards.iter().map(|(_, worth)| u64::from(*worth)).sum();
            (unit.priority, unit.is_gang, Reverse((all, freed.room.clone())))
        });
        let choices = [young, large].map(|order| self.enough(&order));
        choices.into_iter().min_by_key(|chosen| Cost::of(chosen.iter().map(|unit| &units[*unit])))
    }

    /// The first units in this order to free enough, without those that turn out needless; the dearest are dropped first.
    fn enough(&self, order: &[&Freed]) -> Vec<usize> {
        let mut lack = self.clone();
        let mut chosen: Vec<&Freed> = Vec::new();
        for freed in order {
            if lack.is_met() {
                break;
            }
            if lack.is_helped_by(freed) {
                lack.take_off(freed);
                chosen.push(freed);
            }
        }
        for place in (0..chosen.len()).rev() {
            let others = chosen.iter().enumerate().filter(|(other, _)| *other != place);
            if self.without(others.map(|(_, freed)| *freed)).is_met() {
                chosen.remove(place);
            }
        }
        chosen.into_iter().map(|freed| freed.unit).collect()
    }
}

/// The order of units by what it costs to lose them.
pub fn key(
    unit: &Unit,
) -> (i32, bool, usize, Reverse<Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>>) {
    (unit.priority, unit.is_gang, unit.pods.len(), Reverse(unit.created.clone()))
}

/// What the demand takes of the driver's cards on the node at least, in the unit of [`Worth::cards`]: nothing is known of shares.
#[must_use]
pub fn least_cards(demand: &Demand, node: NodeIndex, view: &mut View<'_>) -> u64 {
    let Some(object) = view.object(node) else { return 0 };
    let (wanted, claims) = demand.on(object);
    let ours = wanted.iter().zip(claims.iter()).filter(|(wanted, claim)| fit::may_be_managed(wanted, claim));
    let ours: Vec<Claim> = ours.map(|(_, claim)| claim.clone()).collect();
    let of_device =
        |device: DeviceRef<'_>| [0, if device.is_shareable() { 0 } else { Worth::of_whole(device).cards }];
    let sums = view.cluster.least_worth(object, &ours, view.driver, view.asker, of_device);
    sums.into_iter().flatten().fold(0, |all, [_, cards]| all.saturating_add(cards))
}

/// Whole cards, and thousandths of cards in all, that the demand takes of the node's cards at least.
pub(super) fn bound(statement: &mut Statement<'_>, demand: &Demand, node: NodeIndex) -> Option<[u64; 2]> {
    let view = statement.view();
    let object = view.object(node)?;
    view.fleet.cards(node, view.cluster, view.driver);
    let cards = view.fleet.node(node).used_cards()?;
    let (wanted, claims) = demand.on(object);
    let ours = wanted.iter().zip(claims.iter()).filter(|(wanted, claim)| fit::may_be_managed(wanted, claim));
    let ours: Vec<Claim> = ours.map(|(_, claim)| claim.clone()).collect();
    let of_device = |device: DeviceRef<'_>| {
        let Ok(name) = device.name().parse::<DeviceName>() else { return [0, 0] };
        let Some(card) = cards.cards.get(&name.card()).filter(|_| !device.is_shareable()) else {
            return [0, 0];
        };
        let taken = slices(device, &name);
        [u64::from(card.is_all(taken)), u64::from(worth(taken, card.slices()).min(WHOLE))]
    };
    let sums = view.cluster.least_worth(object, &ours, view.driver, view.asker, of_device).ok()?;
    Some(sums.into_iter().fold([0, 0], |all, sum| [all[0] + sum[0], all[1] + sum[1]]))
}
