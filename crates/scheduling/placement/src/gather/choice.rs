//! The movers in the way of devices.

use std::collections::BTreeMap;

use tessera_allocator::placement::Pick;
use tessera_cluster::worth::{CARD, Worth};

use super::Mover;
use crate::fleet::NodeIndex;
use crate::node_cards::{Parts, WHOLE};

/// Cost of a set of movers: the least is best.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Lost running time of cards: thousandths of a card, times seconds.
    lost: u64,
    pods: usize,
    /// The movers, sorted.
    pub movers: Vec<usize>,
}

impl Cost {
    pub fn of(movers: &[Mover], mut set: Vec<usize>) -> Self {
        set.sort_unstable();
        set.dedup();
        let lost = set.iter().map(|mover| movers[*mover].lost).fold(0, u64::saturating_add);
        let pods = set.iter().map(|mover| movers[*mover].pods.len().max(1)).sum();
        Cost { lost, pods, movers: set }
    }
}

/// The cheapest movers of these to leave for the picked devices: all that hold any part of a picked card or partition, and as many of a
/// shared device's as take what the share needs.
pub(super) fn in_the_way(
    movers: &[Mover],
    of_node: &[usize],
    node: NodeIndex,
    parts: &Parts,
    picks: &[Pick<'_>],
) -> Cost {
    let mut set = Vec::new();
    let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
    for pick in picks.iter().filter(|pick| !pick.has_admin_access) {
        let Some(part) = parts.of_device(pick.device.name()) else { continue };
        let is_share = pick.device.is_shareable();
        if is_share {
            let needed = Worth::of_pick(pick).cards * u64::from(WHOLE) / CARD;
            *shares.entry(pick.device.name()).or_default() += needed;
        }
        for mover in of_node {
            let is_in_the_way = movers[*mover].devices.iter().any(|held| {
                let is_beside = is_share && held.is_share && held.name == pick.device.name();
                held.node == node && held.card == part.card && held.slices & part.slices != 0 && !is_beside
            });
            if is_in_the_way {
                set.push(*mover);
            }
        }
    }
    for (name, needed) in shares {
        let worth = |mover: &&usize| -> u64 {
            let held = movers[**mover].devices.iter();
            let held = held.filter(|held| held.node == node && held.is_share && held.name == name);
            held.map(|held| u64::from(held.worth)).sum()
        };
        let mut beside: Vec<&usize> = of_node.iter().filter(|mover| worth(mover) > 0).collect();
        beside.sort_by_key(|mover| (movers[**mover].lost, movers[**mover].pods.len(), **mover));
        let held: u64 = beside.iter().map(worth).sum();
        let mut free = u64::from(WHOLE).saturating_sub(held);
        for mover in beside {
            if free >= needed {
                break;
            }
            free += worth(&mover);
            set.push(*mover);
        }
    }
    Cost::of(movers, set)
}
