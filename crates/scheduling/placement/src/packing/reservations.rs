//! Room reserved for scarce demands.

use super::card_prices::CardPrices;
use super::demand::Demand;
use super::logistic::logistic;
use super::mix::Mix;
use super::node::Node;
use super::node::NodeKind;

/// Limit of demands with reservations; the most frequent are kept.
const MOST: usize = 256;

/// Smaller price changes are ignored, so that values computed with the old price stay valid.
const LEAST_CHANGE: f64 = 0.02;

/// Prices below this are ignored.
const NOTHING: f64 = 1e-3;

/// Width of the transition between prices 0 and 1, in standard deviations of the future demand: wide, because rooms are not independent.
const SPREAD: f64 = 3.0;

/// A demand for several cards or for certain models: nodes with free cards may still be unable to take it.
#[derive(Clone, Debug)]
struct Scarce {
    demand: Demand,
    /// Rooms needed per pod of the mix, on average.
    part: f64,
    /// The probability that future demand exceeds the room left.
    price: f64,
}

/// Room for demands for several cards and for certain models, with its prices.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    scarce: Vec<Scarce>,
    /// Average cards per pod of the mix.
    mean: f64,
}

impl Reservations {
    /// For this mix on nodes of these kinds. `prices` returns the prices for cards of a model. All rooms have price 0 until
    /// [`Reservations::reprice`].
    pub(crate) fn new<'p>(mix: &Mix, kinds: &[NodeKind], prices: impl Fn(u8) -> &'p CardPrices) -> Self {
        let mut seen: Vec<(Demand, f64)> = Vec::new();
        for (demand, count) in mix.iter() {
            let room = match demand.cards() {
                0 => continue,
                1 if demand.models() == super::demand::ModelSet::ANY => continue,
                1 => Demand::bare_card(demand.models()),
                _ => *demand,
            };
            match seen.iter_mut().find(|(known, _)| *known == room) {
                Some((_, known)) => *known += count,
                None if kinds.iter().any(|kind| kind.could_take(&room)) => seen.push((room, count)),
                None => {}
            }
        }
        if seen.len() > MOST {
            seen.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            seen.truncate(MOST);
        }
        let scarce = |(demand, _)| Scarce { demand, part: 0.0, price: 0.0 };
        let mut scarce: Vec<Scarce> = seen.into_iter().map(scarce).collect();
        let all = mix.count().max(1e-9);
        for room in &mut scarce {
            let takes: Vec<bool> = kinds.iter().map(|kind| kind.could_take(&room.demand)).collect();
            for (demand, count) in mix.iter() {
                if needs(demand, &room.demand, kinds, &takes) {
                    let rooms = match demand.cards() {
                        1 => prices(demand.models().first()).of_size(demand.size()),
                        cards => f64::from(cards) / f64::from(room.demand.cards()),
                    };
                    room.part += count / all * rooms;
                }
            }
        }
        Self { scarce, mean: (mix.mean() / 1000.0).max(1e-3) }
    }

    /// Updates the prices: room gets dearer with more pods expected before the free cards are taken, and with fewer rooms left for
    /// the pods needing one. Returns whether any price changed.
    pub fn reprice<'n>(&mut self, nodes: impl Iterator<Item = &'n Node> + Clone) -> bool {
        if self.scarce.is_empty() {
            return false;
        }
        let free: u64 = nodes.clone().map(Node::free).sum();
        let pods = free as f64 / 1000.0 / self.mean;
        let mut is_changed = false;
        for room in &mut self.scarce {
            let left: u64 = nodes.clone().map(|node| rooms(&room.demand, node)).sum();
            let left = left as f64;
            let needed = pods * room.part;
            let deviations = (left + 0.5 - needed) / (needed.sqrt().max(0.5) * SPREAD);
            // The factor 1.7 approximates the normal distribution by the logistic function.
            let price = if left == 0.0 { 0.0 } else { logistic(-1.7 * deviations) };
            if (price - room.price).abs() > LEAST_CHANGE {
                room.price = price;
                is_changed = true;
            }
        }
        is_changed
    }

    /// Value of a node's room beyond its cards, in cards. `cards_value` is the value of its free cards.
    #[must_use]
    pub fn value(&self, node: &Node, cards_value: f64) -> f64 {
        let (mut for_several, mut for_model) = (0.0_f64, 0.0_f64);
        for room in self.scarce.iter().filter(|room| room.price > NOTHING) {
            let cards = u64::from(room.demand.cards());
            if cards > 1 {
                for_several = for_several.max(room.price * (rooms(&room.demand, node) * cards) as f64);
            } else if room.demand.models().has(node.model()) {
                for_model = for_model.max(room.price);
            }
        }
        for_several + for_model * cards_value
    }
}

/// Whether a pod can run only in such rooms.
fn needs(demand: &Demand, room: &Demand, kinds: &[NodeKind], takes: &[bool]) -> bool {
    let is_as_large = demand.cards() >= room.cards()
        && demand.cpu_milli() >= room.cpu_milli()
        && demand.memory_mib() >= room.memory_mib();
    is_as_large && {
        let mut fitting = kinds.iter().zip(takes).filter(|(kind, _)| kind.could_take(demand)).peekable();
        fitting.peek().is_some() && fitting.all(|(_, takes)| *takes)
    }
}

/// Number of such demands fitting on a node now, each on entirely free cards.
fn rooms(demand: &Demand, node: &Node) -> u64 {
    if !demand.models().has(node.model()) {
        return 0;
    }
    let of = |free: u64, needed: u64| free.checked_div(needed).unwrap_or(u64::MAX);
    let of_cards = of(u64::from(node.whole_cards()), u64::from(demand.cards()));
    of_cards.min(of(node.cpu_milli(), demand.cpu_milli())).min(of(node.memory_mib(), demand.memory_mib()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::card_prices::SIZES;
    use crate::packing::demand::ModelSet;
    use crate::packing::node::Cards;

    #[test]
    fn room_gets_dear_as_it_gets_scarce() {
        let prices = CardPrices::new(&[0.0; SIZES]);
        let mut nodes: Vec<Node> = (0..8).map(|_| Node::new(0, 8, 96_000, 1 << 20).unwrap()).collect();
        let kinds = [*nodes[0].kind()];
        let one = Demand::new(1_000, 1_024, 1, 1000, ModelSet::ANY).unwrap();
        let eight = Demand::new(8_000, 1_024, 8, 1000, ModelSet::ANY).unwrap();
        let mut mix = Mix::default();
        for _ in 0..20 {
            mix.arrived(&one);
        }
        mix.arrived(&eight);
        let mut reservations = Reservations::new(&mix, &kinds, |_| &prices);
        assert!(reservations.reprice(nodes.iter()));
        let at_first = reservations.value(&nodes[0], 8.0);
        for node in &mut nodes[1..] {
            assert!(node.take(&one, Cards::one(0)));
        }
        assert!(reservations.reprice(nodes.iter()));
        assert!(reservations.value(&nodes[0], 8.0) > at_first);
        assert_eq!(reservations.value(&nodes[1], 7.0), 0.0, "no room for eight");
        assert!(!reservations.reprice(nodes.iter()));
    }
}
