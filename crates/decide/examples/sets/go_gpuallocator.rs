//! The best-effort policy of NVIDIA's go-gpuallocator, which its device plugin uses, written from its description and
//! behaviour at <https://github.com/NVIDIA/go-gpuallocator/blob/876e7b7/gpuallocator/besteffort_policy.go>.
//!
//! It divides all free cards into sets of the asked size such that the sum of their scores is greatest, and takes the best
//! of these sets. The score of a pair is 100 for each NVLink, plus its closeness on PCIe from 10 to 60. Links are known by
//! the card at their other end, so those to NVSwitches count nothing. Where cards are left over, one set is
//! smaller. Of divisions with the same sum it takes the first that it comes upon.
//!
//! What it does by trying all divisions, millions for 16 cards, is done here by dynamic programming, with the same result.
//! Where the smaller set has the best score, it would give too few cards; here the best full one is taken.

use std::collections::HashMap;

use tessera_inventory::topology::CardSet;

use crate::known_machines::KnownMachine;

/// The policy on one machine.
pub struct GoGpuAllocator {
    pairs: Vec<Vec<u32>>,
    /// By size of sets: the sum of scores that free cards can be divided into.
    best: HashMap<(CardSet, usize), u32>,
}

impl GoGpuAllocator {
    /// For this machine.
    pub fn new(machine: &KnownMachine) -> Self {
        let links = |one: usize, other: usize| if machine.switched { 0 } else { machine.links[one][other] };
        let count = machine.numa.len();
        let row = |one: usize| {
            (0..count).map(|other| 100 * links(one, other) + machine.closeness[one][other]).collect()
        };
        Self { pairs: (0..count).map(row).collect(), best: HashMap::new() }
    }

    /// The cards that a request for `size` gets; there are enough free ones.
    pub fn choose(&mut self, free: CardSet, size: usize) -> CardSet {
        if size == 1 {
            // All sets of one have the same score.
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

    /// The greatest sum of scores of a division.
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

/// The sets with the lowest card that a division can begin with, in the order of trying: full ones, and smaller ones that
/// leave no card over. Cards come in ascending order, and what is missing from a smaller set after all cards.
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

    /// The cases of `besteffort_test.go` on a DGX-1V in which no card is required.
    #[test]
    fn its_own_tests() {
        assert_eq!(choose(&[0, 2, 4, 5], 2), [4, 5]);
        assert_eq!(choose(&[0, 4, 5, 6], 2), [5, 6]);
        assert_eq!(choose(&[0, 1, 3], 2), [0, 3]);
        assert_eq!(choose(&[0, 1, 4], 2), [0, 4]);
    }

    /// All divisions, one after the other, as the original does it.
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
                    // Of the same score the first.
                    let wanted = full.rev().max_by_key(|set| policy.score(*set)).unwrap();
                    assert_eq!(policy.choose(set(&free), size), wanted, "{} {free:?} {size}", machine.name);
                }
            }
        }
    }
}
