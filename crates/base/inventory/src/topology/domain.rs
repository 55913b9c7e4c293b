//! Sets of cards connected over NVLink.

use super::{CardSet, MAX_CARDS, Topology};

/// The connected components of two or more of `cards`, by lowest card.
pub fn components(topology: &Topology, cards: CardSet) -> Vec<CardSet> {
    let mut components = Vec::new();
    let mut unseen = cards;
    while !unseen.is_empty() {
        let mut component = CardSet::single(unseen.lowest());
        loop {
            let reached: CardSet = unseen
                .iter()
                .filter(|&card| component.iter().any(|member| topology.links(member, card) > 0))
                .map(CardSet::single)
                .collect();
            if component.includes(reached) {
                break;
            }
            component = component | reached;
        }
        unseen = unseen - component;
        if component.len() > 1 {
            components.push(component);
        }
    }
    components
}

/// See [`Topology::nvlink_domains`].
pub fn find(topology: &Topology) -> Vec<Option<String>> {
    if topology.cards.len() > MAX_CARDS {
        return topology.fabric_domains.clone();
    }
    let components = components(topology, topology.all());
    let of_component = |card: usize| {
        let component = components.iter().find(|component| component.contains(card))?;
        Some(topology.cards[component.lowest()].to_string())
    };
    topology
        .fabric_domains
        .iter()
        .enumerate()
        .map(|(card, fabric)| fabric.clone().or_else(|| of_component(card)))
        .collect()
}
