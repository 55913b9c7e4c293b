use std::ops::{BitAnd, BitOr, Sub};

/// A set of cards of one machine by their positions, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CardSet(u64);

impl CardSet {
    /// No cards.
    pub const EMPTY: Self = Self(0);

    /// The card at `position`.
    #[must_use]
    pub const fn single(position: usize) -> Self {
        Self(1 << position)
    }

    /// The cards at positions 0 to `count` − 1.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The number of cards.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set has no cards.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the card at `position` is in the set.
    #[must_use]
    pub const fn contains(self, position: usize) -> bool {
        self.0 >> position & 1 == 1
    }

    /// Whether every card of `other` is in the set.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The lowest position, 64 for an empty set.
    #[must_use]
    pub const fn lowest(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    /// The lowest and the highest position: of a pair, its two cards.
    #[must_use]
    pub(super) const fn ends(self) -> (usize, usize) {
        (self.lowest(), 63 - self.0.leading_zeros() as usize)
    }

    /// The positions, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let lowest = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                lowest
            })
        })
    }

    /// Every subset of `size` cards, in lexicographic order of positions.
    pub fn subsets(self, size: usize) -> impl Iterator<Item = Self> {
        let positions: Vec<usize> = self.iter().collect();
        let mut chosen: Option<Vec<usize>> = (size <= positions.len()).then(|| (0..size).collect());
        std::iter::from_fn(move || {
            let current = chosen.as_mut()?;
            let set = current.iter().map(|&at| Self::single(positions[at])).collect();
            let next = (0..size).rev().find(|&place| current[place] < positions.len() - size + place);
            match next {
                Some(place) => {
                    current[place] += 1;
                    for after in place + 1..size {
                        current[after] = current[after - 1] + 1;
                    }
                }
                None => chosen = None,
            }
            Some(set)
        })
    }
}

impl FromIterator<CardSet> for CardSet {
    fn from_iter<I: IntoIterator<Item = CardSet>>(sets: I) -> Self {
        sets.into_iter().fold(Self::EMPTY, BitOr::bitor)
    }
}

impl BitOr for CardSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for CardSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for CardSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_come_once_and_in_order() {
        let set: CardSet = [1, 3, 4, 63].map(CardSet::single).into_iter().collect();
        let pairs: Vec<Vec<usize>> = set.subsets(2).map(|pair| pair.iter().collect()).collect();
        assert_eq!(pairs, [[1, 3], [1, 4], [1, 63], [3, 4], [3, 63], [4, 63]]);
        assert_eq!(set.subsets(5).count(), 0);
        assert_eq!(set.subsets(0).count(), 1);
        assert_eq!(CardSet::EMPTY.subsets(2).count(), 0);
        assert_eq!(CardSet::first(64).subsets(2).count(), 2016);
    }

    #[test]
    fn ends_of_a_pair() {
        assert_eq!((CardSet::single(2) | CardSet::single(63)).ends(), (2, 63));
    }
}
