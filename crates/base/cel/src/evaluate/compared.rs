//! Cache of list comparisons of an evaluation.

use std::collections::HashMap;

use super::compare::Equality;
use super::list::List;

/// Number of comparisons from which a pair of lists is cached: below, the look-up takes as long.
pub(crate) const WORTH_REMEMBERING: u32 = 16;

/// Largest number of cached pairs. An expression of 10 KiB names far fewer lists; lists made in a loop and
/// compared once are not worth the memory.
const MOST: usize = 4_096;

/// Two lists, kept so no other list gets their addresses, and the result of their comparison.
type Pair<'v> = (List<'v>, List<'v>, Equality);

/// Results of comparing two lists, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Compared<'v> {
    // Most evaluations compare no long lists: a map would generate its hash keys for nothing.
    pairs: Option<HashMap<(usize, usize), Pair<'v>>>,
}

impl<'v> Compared<'v> {
    pub(crate) fn get(&self, one: &List<'v>, two: &List<'v>) -> Option<Equality> {
        self.pairs.as_ref()?.get(&(one.address(), two.address())).map(|(_, _, found)| *found)
    }

    pub(crate) fn remember(&mut self, one: &List<'v>, two: &List<'v>, found: Equality) {
        let pairs = self.pairs.get_or_insert_default();
        if pairs.len() < MOST {
            pairs.insert((one.address(), two.address()), (one.clone(), two.clone(), found));
        }
    }
}
