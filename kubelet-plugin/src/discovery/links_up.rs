//! Distinguishes NVLinks gone down from links never up, and from links kept down by MIG mode.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::PciBusId;
use tessera_inventory::machine::{Card, NvLink, NvLinkRemote};

/// The most active NVLinks of each card in this process. A link never up is no fault: a card need not have a bridge on
/// each of its connectors.
#[derive(Debug, Default)]
pub(super) struct LinksUp(BTreeMap<PciBusId, Most>);

#[derive(Debug)]
struct Most {
    /// Another card in the same place has links of its own.
    uuid: Option<String>,
    links: Vec<NvLink>,
}

impl LinksUp {
    /// The cards with fewer links than they had, as the cards report them. Cards in MIG mode are left out, and so are links to
    /// such cards: the mode keeps links down at both ends.
    pub(super) fn learn(&mut self, cards: &[Card]) -> BTreeSet<PciBusId> {
        let in_mig_mode = |card: &&Card| card.mig.as_ref().is_some_and(|mig| mig.mode);
        let divided: Vec<PciBusId> = cards.iter().filter(in_mig_mode).map(|card| card.pci).collect();
        let counts = |link: &&NvLink| match link.remote {
            NvLinkRemote::Gpu(other) => !divided.contains(&other),
            NvLinkRemote::Switch | NvLinkRemote::Other => true,
        };
        let mut down = BTreeSet::new();
        for card in cards.iter().filter(|card| !divided.contains(&card.pci)) {
            let Some(links) = &card.nvlinks else { continue };
            let most = self.0.entry(card.pci).or_insert(Most { uuid: None, links: Vec::new() });
            if most.uuid != card.uuid || links.len() >= most.links.len() {
                *most = Most { uuid: card.uuid.clone(), links: links.clone() };
            }
            if links.iter().filter(counts).count() < most.links.iter().filter(counts).count() {
                down.insert(card.pci);
            }
        }
        down
    }
}

#[cfg(test)]
mod tests {
    use tessera_inventory::machine::Mig;

    use super::*;

    fn card(bus: u8, links: &[NvLinkRemote], mig_mode: bool) -> Card {
        let link = |remote: &NvLinkRemote| NvLink { remote: *remote, version: None };
        let mig = Mig {
            mode: mig_mode,
            mode_switch_needs_reset: false,
            profiles: Vec::new(),
            instances: Vec::new(),
        };
        let pci = PciBusId::new(0, bus, 0, 0).unwrap();
        Card { nvlinks: Some(links.iter().map(link).collect()), mig: Some(mig), ..Card::new(pci) }
    }

    #[test]
    fn a_link_that_went_down_is_told_from_one_that_mig_mode_keeps_down() {
        let [one, other] = [1, 2].map(|bus| PciBusId::new(0, bus, 0, 0).unwrap());
        let to = |card| NvLinkRemote::Gpu(card);
        let mut links = LinksUp::default();
        let whole = [card(1, &[to(other), to(other)], false), card(2, &[to(one), to(one)], false)];
        assert!(links.learn(&whole).is_empty());
        let divided = [card(1, &[], true), card(2, &[], false)];
        assert!(links.learn(&divided).is_empty(), "the mode keeps them down at both ends");
        let broken = [card(1, &[to(other)], false), card(2, &[to(one)], false)];
        assert_eq!(links.learn(&broken), [one, other].into());
        assert_eq!(links.learn(&broken), [one, other].into(), "it stays down");
        assert!(links.learn(&whole).is_empty());
    }

    #[test]
    fn another_card_has_links_of_its_own() {
        let mut links = LinksUp::default();
        let mut swapped = card(1, &[NvLinkRemote::Switch], false);
        swapped.uuid = Some("GPU-2".to_owned());
        assert!(links.learn(&[card(1, &[NvLinkRemote::Switch; 2], false)]).is_empty());
        assert!(links.learn(&[swapped]).is_empty());
    }
}
