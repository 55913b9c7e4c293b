//! The connections in the report of a node, read by the controller.

use std::collections::{BTreeMap, HashMap};

use tessera_api::{NodeReport, PciBusId};

use super::{MAX_CARDS, Square, Topology};

/// More than any card has. A report is text open to other writers, and sums of links must not overflow.
const MOST_LINKS: u32 = 1_000;
/// MB/s; more than any link carries.
const HIGHEST_RATE: u32 = 10_000_000;
/// MB/s of one link where a report has no speed: NVLink 2.0 and most of 3.0.
const USUAL_RATE: u32 = 25_000;

impl Topology {
    /// Writes the connections into the report of the node, and the NUMA nodes of its cards.
    pub fn write_to(&self, report: &mut NodeReport) {
        let pairs = || {
            let count = self.cards.len();
            (0..count).flat_map(move |one| (one + 1..count).map(move |other| (one, other)))
        };
        let addresses = |one: usize, other: usize| (self.cards[one], self.cards[other]);
        report.links = pairs()
            .map(|(one, other)| (addresses(one, other), self.links(one, other)))
            .filter(|(_, links)| *links > 0)
            .map(|((one, other), links)| (one, other, links))
            .collect();
        let is_linked = !report.links.is_empty();
        report.link_rate = is_linked.then_some(self.link_rate);
        report.through_switches = pairs().any(|(one, other)| *self.switched.get(one, other));
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (one, other) in pairs() {
            *counts.entry(self.pcie_level(one, other)).or_default() += 1;
        }
        let commonest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(level, _)| level);
        report.pcie = pairs()
            .map(|(one, other)| (addresses(one, other), self.pcie_level(one, other)))
            .filter(|(_, level)| Some(*level) != commonest)
            .map(|((one, other), level)| (one, other, level.to_owned()))
            .collect();
        report.other_pairs = commonest.map(str::to_owned);
        for (card, numa_node) in self.cards.iter().zip(&self.numa_nodes) {
            if let Some(card) = report.cards.get_mut(card) {
                card.numa_node = *numa_node;
            }
        }
    }

    /// The connections between the cards of a report; `None` for more than [`MAX_CARDS`]. A report does not name
    /// the fabric of a card.
    #[must_use]
    pub fn from_report(report: &NodeReport) -> Option<Self> {
        if report.cards.len() > MAX_CARDS {
            return None;
        }
        let cards: Vec<PciBusId> = report.cards.keys().copied().collect();
        let links: HashMap<(PciBusId, PciBusId), u32> =
            report.links.iter().map(|(one, other, links)| ((*one, *other), *links)).collect();
        let levels: HashMap<(PciBusId, PciBusId), &str> =
            report.pcie.iter().map(|(one, other, level)| ((*one, *other), level.as_str())).collect();
        let others = report.other_pairs.as_deref().unwrap_or("SYS");
        let count = cards.len();
        let links = Square::of_pairs(count, |one, other| {
            links.get(&(cards[one], cards[other])).map_or(0, |links| (*links).min(MOST_LINKS))
        });
        Some(Self {
            switched: Square::of_pairs(count, |one, other| {
                report.through_switches && *links.get(one, other) > 0
            }),
            closeness: Square::of_pairs(count, |one, other| {
                closeness(levels.get(&(cards[one], cards[other])).copied().unwrap_or(others))
            }),
            link_rate: report.link_rate.unwrap_or(USUAL_RATE).min(HIGHEST_RATE),
            numa_nodes: report.cards.values().map(|card| card.numa_node).collect(),
            fabric_domains: vec![None; count],
            links,
            cards,
        })
    }
}

/// The inverse of [`Topology::pcie_level`].
fn closeness(level: &str) -> u32 {
    match level {
        "PIX" => 50,
        "PXB" => 40,
        "PHB" => 30,
        "NODE" => 20,
        _ => 10,
    }
}
