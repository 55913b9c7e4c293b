//! Lists: a vector of values, or two lists end to end, so that `a + a` costs no copy however often it is repeated.

use std::sync::Arc;

use super::value::Value;

/// A list.
#[derive(Debug, Clone)]
pub(crate) enum List<'v> {
    Items(Arc<Vec<Value<'v>>>),
    Joined(Arc<Joined<'v>>),
}

/// Two lists end to end.
#[derive(Debug)]
pub(crate) struct Joined<'v> {
    first: List<'v>,
    second: List<'v>,
    length: u64,
}

impl<'v> From<Vec<Value<'v>>> for List<'v> {
    fn from(items: Vec<Value<'v>>) -> Self {
        List::Items(Arc::new(items))
    }
}

impl<'v> List<'v> {
    /// Number of elements. A list joined with itself 64 times would have more than fit; it counts as that many.
    pub(crate) fn len(&self) -> u64 {
        match self {
            List::Items(items) => items.len() as u64,
            List::Joined(joined) => joined.length,
        }
    }

    pub(crate) fn is_joined(&self) -> bool {
        matches!(self, List::Joined(_))
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Value<'v>> {
        let (mut list, mut index) = (self, index);
        loop {
            match list {
                List::Items(items) => return items.get(usize::try_from(index).ok()?),
                List::Joined(joined) => {
                    let first = joined.first.len();
                    if index < first {
                        list = &joined.first;
                    } else {
                        index -= first;
                        list = &joined.second;
                    }
                }
            }
        }
    }

    pub(crate) fn join(self, second: List<'v>) -> List<'v> {
        if self.len() == 0 {
            return second;
        }
        if second.len() == 0 {
            return self;
        }
        let length = self.len().saturating_add(second.len()).min(i64::MAX as u64);
        List::Joined(Arc::new(Joined { first: self, second, length }))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Value<'v>> {
        (0..self.len()).map_while(|index| self.get(index))
    }
}
