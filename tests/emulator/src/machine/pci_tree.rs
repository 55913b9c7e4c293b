//! Bridges above each card, placed so that any two cards meet at the level given by their topology.

use std::collections::BTreeSet;

use crate::hardware::topology::{Level, PciAddress};

/// A card's place in the PCIe tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bus of the host bridge; its domain is the card's.
    pub host_bridge_bus: u8,
    /// Bridges from the root port down to the card.
    pub bridges: Vec<PciAddress>,
}

/// A card to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Its PCI address.
    pub pci: PciAddress,
    /// Bus of its host bridge, where known.
    pub host_bridge_bus: Option<u8>,
}

/// Allocates free buses of one machine.
struct Buses {
    used: BTreeSet<(u32, u8)>,
}

impl Buses {
    /// The highest free bus below `limit`.
    fn below(&mut self, domain: u32, limit: u8) -> Option<u8> {
        let bus = (0..limit).rev().find(|bus| !self.used.contains(&(domain, *bus)))?;
        self.used.insert((domain, bus));
        Some(bus)
    }
}

/// Splits `cards` into groups whose members all meet at `level` or nearer, keeping their order.
fn groups(cards: &[usize], level: Level, levels: &[Vec<Level>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for card in cards {
        match groups.iter_mut().find(|group| group.iter().any(|other| levels[*card][*other] <= level)) {
            Some(group) => group.push(*card),
            None => groups.push(vec![*card]),
        }
    }
    groups
}

/// Places every card; `None` where the cards' addresses leave no room for the bridges they need.
pub fn place(cards: &[Input], levels: &[Vec<Level>]) -> Option<Vec<Place>> {
    let all: Vec<usize> = (0..cards.len()).collect();
    let known_roots = cards.iter().filter_map(|card| Some((card.pci.domain, card.host_bridge_bus?)));
    let mut buses =
        Buses { used: cards.iter().map(|card| (card.pci.domain, card.pci.bus)).chain(known_roots).collect() };
    let mut places: Vec<Option<Place>> = vec![None; cards.len()];
    for bridge_group in groups(&all, Level::HostBridge, levels) {
        let lowest = bridge_group.iter().map(|card| cards[*card].pci.bus).min()?;
        let domain = cards[*bridge_group.first()?].pci.domain;
        let port_groups = groups(&bridge_group, Level::Multiple, levels);
        let known = cards[*bridge_group.first()?].host_bridge_bus;
        // Bus 0 is the root bus itself: such a card has no bridge, as in many virtual machines.
        if lowest == 0 || known == Some(lowest) {
            for card in bridge_group {
                places[card] = Some(Place { host_bridge_bus: lowest, bridges: Vec::new() });
            }
            continue;
        }
        // From the card up, so that every bridge lies on a lower bus than the devices below it.
        let mut above: Vec<(Vec<usize>, Vec<PciAddress>, u8)> = Vec::new();
        for port_group in port_groups {
            let switches = groups(&port_group, Level::Single, levels);
            let lowest = port_group.iter().map(|card| cards[*card].pci.bus).min()?;
            if port_group.len() == 1 {
                above.push((port_group, Vec::new(), lowest));
                continue;
            }
            let cascaded = switches.len() > 1;
            let second: Vec<Option<(u8, u8)>> = switches
                .iter()
                .map(|_| {
                    if !cascaded {
                        return Some(None);
                    }
                    let downstream = buses.below(domain, lowest)?;
                    Some(Some((buses.below(domain, downstream)?, downstream)))
                })
                .collect::<Option<_>>()?;
            let lowest = second.iter().flatten().map(|(upstream, _)| *upstream).chain([lowest]).min()?;
            let top_downstream = buses.below(domain, lowest)?;
            let top_upstream = buses.below(domain, top_downstream)?;
            for (number, (switch, second)) in switches.iter().zip(&second).enumerate() {
                for (slot, card) in switch.iter().enumerate() {
                    let device =
                        |bus: u8, device: usize| PciAddress { domain, bus, device: (device & 31) as u8 };
                    let bridges = match second {
                        Some((upstream, downstream)) => vec![
                            device(top_upstream, 0),
                            device(top_downstream, number),
                            device(*upstream, 0),
                            device(*downstream, slot),
                        ],
                        None => vec![device(top_upstream, 0), device(top_downstream, slot)],
                    };
                    above.push((vec![*card], bridges, top_upstream));
                }
            }
        }
        let lowest = above.iter().map(|(_, _, bus)| *bus).min()?;
        let host_bridge_bus = match known {
            Some(bus) => bus,
            None => buses.below(domain, lowest)?,
        };
        let mut ports: Vec<u8> = Vec::new();
        for (cards_below, bridges, secondary) in above {
            let port = ports.iter().position(|bus| *bus == secondary).unwrap_or_else(|| {
                ports.push(secondary);
                ports.len() - 1
            });
            let mut path = vec![PciAddress { domain, bus: host_bridge_bus, device: (port as u8 & 31) + 1 }];
            path.extend(bridges);
            for card in cards_below {
                places[card] = Some(Place { host_bridge_bus, bridges: path.clone() });
            }
        }
    }
    places.into_iter().collect()
}

/// The level at which two placed cards meet, as far as known from the tree alone: cards of different host bridges meet at
/// their NUMA node or further.
pub fn meeting_level(one: &Place, one_domain: u32, other: &Place, other_domain: u32) -> Option<Level> {
    if one_domain != other_domain || one.host_bridge_bus != other.host_bridge_bus {
        return None;
    }
    let shared = one.bridges.iter().zip(&other.bridges).take_while(|(one, other)| one == other).count();
    Some(match shared {
        0 => Level::HostBridge,
        // Root port and upstream port in common: one switch, if nothing but this switch lies between the two.
        _ if one.bridges.len() == shared + 1 && other.bridges.len() == shared + 1 => Level::Single,
        _ => Level::Multiple,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware;

    #[test]
    fn cards_meet_where_their_topology_says() {
        for name in hardware::topology_names() {
            let (topology, _) = hardware::topology(name).expect("a topology of ours");
            let levels: Vec<Vec<Level>> = (0..topology.cards())
                .map(|one| (0..topology.cards()).map(|other| topology.level(one, other)).collect())
                .collect();
            let inputs: Vec<Input> =
                topology.pci_addresses.iter().map(|pci| Input { pci: *pci, host_bridge_bus: None }).collect();
            let places = place(&inputs, &levels).unwrap_or_else(|| panic!("{name}: no room for bridges"));
            for one in 0..places.len() {
                for bridge in &places[one].bridges {
                    assert!(
                        bridge.bus < inputs[one].pci.bus,
                        "{name}: bridge {bridge} above {}",
                        inputs[one].pci
                    );
                }
                for other in 0..places.len() {
                    if one == other {
                        continue;
                    }
                    let found = meeting_level(
                        &places[one],
                        inputs[one].pci.domain,
                        &places[other],
                        inputs[other].pci.domain,
                    );
                    let expected = Some(levels[one][other]).filter(|level| *level <= Level::HostBridge);
                    assert_eq!(found, expected, "{name}: {one} and {other}");
                }
            }
        }
    }
}
