//! The best-effort policy of go-gpuallocator, used by NVIDIA's device plugin. Written from its description and behaviour at
//! <https://github.com/NVIDIA/go-gpuallocator/blob/876e7b7/gpuallocator/besteffort_policy.go>.
//!
//! The policy divides all free cards into sets of the requested size with the greatest sum of scores, and takes the best set. The
//! score of a pair is 100 for each NVLink, plus its closeness on PCIe from 10 to 60. A link is identified by the card at its other
//! end, so links to NVSwitches count 0. Left-over cards form one smaller set. Among divisions with equal sums, the first found is
//! taken.
//!
//! The original tries all divisions, millions for 16 cards. Dynamic programming here gives the same result. Where the smaller set
//! scores best, the original returns too few cards. This version takes the best full set.

use std::collections::HashMap;

use tessera_inventory::topology::CardSet;

use crate::known_machines::KnownMachine;

/// The policy on one machine.
pub struct GoGpuAllocator {
    pairs: Vec<Vec<u32>>,
    /// Greatest sum of scores by free cards and set size.
    best: HashMap<(CardSet, usize), u32>,
}

impl GoGpuAllocator {
    /// Creates the policy for a machine.
    pub fn new(machine: &KnownMachine) -> Self {
        let links = |one: usize, other: usize| if machine.switched { 0 } else { machine.links[one][other] };
        let count = machine.numa.len();
        let row = |one: usize| {
            (0..count).map(|other| 100 * links(one, other) + machine.closeness[one][other]).collect()
        };
        Self { pairs: (0..count).map(row).collect(), best: HashMap::new() }
    }

    /// Chooses the cards for a request of `size`. Enough cards must be free.
    pub fn choose(&mut self, free: CardSet, size: usize) -> CardSet {
        if size == 1 {
            // All sets of one card have the same score.
            return CardSet::single(free.lowest());
        }
        let mut rest = free;
        let mut chosen: Option<(u32, CardSet)> = None;
        while !rest.is_empty() {
            let best = self.best(rest, size);
            let first =
                firsts(rest, size).find(|set| self.score(*set) + self.best(rest - *set, size) == best);
            let set = first.expect("the best division begins with some set");
            let score = self.score(set);
            if set.len() == size && chosen.is_none_or(|(of_chosen, _)| score > of_chosen) {
                chosen = Some((score, set));
            }
            rest = rest - set;
        }
        chosen.expect("as many free cards as are asked for").1
    }

    fn score(&self, set: CardSet) -> u32 {
        let pairs = set.iter().flat_map(|one| set.iter().map(move |other| (one, other)));
        pairs.filter(|(one, other)| one < other).map(|(one, other)| self.pairs[one][other]).sum()
    }

    /// The greatest sum of scores over all divisions.
    fn best(&mut self, free: CardSet, size: usize) -> u32 {
        if free.is_empty() {
            return 0;
        }
        if let Some(known) = self.best.get(&(free, size)) {
            return *known;
        }
        let sums = firsts(free, size).map(|set| self.score(set) + self.best(free - set, size));
        let best = sums.max().unwrap_or(0);
        self.best.insert((free, size), best);
        best
    }
}

/// Sets with the lowest card, as possible first sets of a division, in trial order: full sets, and smaller sets without a card
/// left over. Cards come in ascending order. The missing cards of a smaller set sort after all cards.
fn firsts(free: CardSet, size: usize) -> impl Iterator<Item = CardSet> {
    let lowest = CardSet::single(free.lowest());
    let others = free - lowest;
    let smaller = free.len() % size;
    let with_lowest = |size: usize| others.subsets(size - 1).map(move |set| set | lowest);
    let mut sets: Vec<CardSet> = with_lowest(size).collect();
    if smaller > 0 {
        sets.extend(with_lowest(smaller));
        let key =
            |set: &CardSet| -> Vec<usize> { set.iter().chain(std::iter::repeat(64)).take(size).collect() };
        sets.sort_by_cached_key(key);
    }
    sets.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_machines;

    fn set(cards: &[usize]) -> CardSet {
        cards.iter().map(|card| CardSet::single(*card)).collect()
    }

    fn choose(free: &[usize], size: usize) -> Vec<usize> {
        let machine = known_machines::named("dgx-1-v100-hybrid-cube-mesh");
        GoGpuAllocator::new(&machine).choose(set(free), size).iter().collect()
    }

    /// Cases of `besteffort_test.go` on a DGX-1V without required cards.
    #[test]
    fn its_own_tests() {
        assert_eq!(choose(&[0, 2, 4, 5], 2), [4, 5]);
        assert_eq!(choose(&[0, 4, 5, 6], 2), [5, 6]);
        assert_eq!(choose(&[0, 1, 3], 2), [0, 3]);
        assert_eq!(choose(&[0, 1, 4], 2), [0, 4]);
    }

    /// Tries all divisions one after the other, like the original.
    #[test]
    fn dynamic_programming_finds_what_trying_all_finds() {
        fn divide(rest: CardSet, size: usize, sets: &mut Vec<CardSet>, tell: &mut impl FnMut(&[CardSet])) {
            if rest.is_empty() {
                return tell(sets);
            }
            for set in firsts(rest, size) {
                sets.push(set);
                divide(rest - set, size, sets, tell);
                sets.pop();
            }
        }
        for machine in known_machines::all().iter().filter(|machine| machine.numa.len() == 8) {
            let mut policy = GoGpuAllocator::new(machine);
            for mask in (1..256u32).step_by(7) {
                let free: Vec<usize> = (0..8).filter(|card| mask >> card & 1 == 1).collect();
                for size in (2..=4).filter(|size| *size <= free.len()) {
                    let mut best: Option<(u32, Vec<CardSet>)> = None;
                    divide(set(&free), size, &mut Vec::new(), &mut |sets| {
                        let sum = sets.iter().map(|set| policy.score(*set)).sum();
                        if best.as_ref().is_none_or(|(of_best, _)| sum > *of_best) {
                            best = Some((sum, sets.to_vec()));
                        }
                    });
                    let full = best.unwrap().1.into_iter().filter(|set| set.len() == size);
                    // Among equal scores, the first set.
                    let wanted = full.rev().max_by_key(|set| policy.score(*set)).unwrap();
                    assert_eq!(policy.choose(set(&free), size), wanted, "{} {free:?} {size}", machine.name);
                }
            }
        }
    }
}
