//! Lists that an evaluation compared already.

use std::collections::HashMap;

use super::compare::Equality;
use super::list::List;

/// Comparisons from which on a pair of lists is remembered: below, looking it up takes as long.
pub(crate) const WORTH_REMEMBERING: u32 = 16;

/// Pairs that are remembered at most. An expression of 10 KiB names far fewer lists; what it makes in a loop and
/// compares once is not worth the memory.
const MOST: usize = 4_096;

/// Two lists, kept so that no other one gets their addresses, and what comparing them said.
type Pair<'v> = (List<'v>, List<'v>, Equality);

/// What comparing two lists said, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Compared<'v> {
    // Most evaluations compare no long lists: a map would draw its keys for nothing.
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
