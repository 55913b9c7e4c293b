//! Lists: a vector of values, or two concatenated lists, so `a + a` needs no copy however often repeated.

use std::sync::Arc;

use smallvec::SmallVec;

use super::value::Value;

/// A list.
#[derive(Debug, Clone)]
pub(crate) enum List<'v> {
    Items(Arc<Vec<Value<'v>>>),
    Joined(Arc<Joined<'v>>),
}

/// Two concatenated lists.
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
    /// Number of elements, saturating: a list concatenated with itself 64 times would have more.
    pub(crate) fn len(&self) -> u64 {
        match self {
            List::Items(items) => items.len() as u64,
            List::Joined(joined) => joined.length,
        }
    }

    pub(crate) fn is_joined(&self) -> bool {
        matches!(self, List::Joined(_))
    }

    /// Address of its elements: while both are alive, two lists with the same address are the same list.
    pub(crate) fn address(&self) -> usize {
        match self {
            List::Items(items) => Arc::as_ptr(items).addr(),
            List::Joined(joined) => Arc::as_ptr(joined).addr(),
        }
    }

    /// The halves of two lists concatenated at the same index.
    pub(crate) fn halves_with<'l>(&'l self, other: &'l List<'v>) -> Option<[(&'l Self, &'l Self); 2]> {
        match (self, other) {
            (List::Joined(one), List::Joined(two))
                // From here on lengths are no longer exact.
                if one.length < i64::MAX as u64 && one.first.len() == two.first.len() =>
            {
                Some([(&one.first, &two.first), (&one.second, &two.second)])
            }
            _ => None,
        }
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

    pub(crate) fn iter(&self) -> Elements<'_, 'v> {
        Elements { later: SmallVec::from_slice(&[self]), items: [].iter() }
    }
}

/// Iterates over a list's elements in order; visits every part of a concatenated list once.
#[derive(Debug)]
pub(crate) struct Elements<'l, 'v> {
    /// Remaining parts, the next one last.
    later: SmallVec<[&'l List<'v>; 4]>,
    items: std::slice::Iter<'l, Value<'v>>,
}

impl<'l, 'v> Iterator for Elements<'l, 'v> {
    type Item = &'l Value<'v>;

    fn next(&mut self) -> Option<&'l Value<'v>> {
        loop {
            if let Some(value) = self.items.next() {
                return Some(value);
            }
            match self.later.pop()? {
                List::Items(items) => self.items = items.iter(),
                List::Joined(joined) => self.later.extend([&joined.second, &joined.first]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list<'v>(numbers: std::ops::Range<i64>) -> List<'v> {
        numbers.map(Value::Int).collect::<Vec<_>>().into()
    }

    fn numbers(list: &List<'_>) -> Vec<i64> {
        let number = |value: &Value<'_>| match value {
            Value::Int(number) => *number,
            other => panic!("not a number: {other:?}"),
        };
        let by_index: Vec<i64> = (0..list.len()).map(|index| number(list.get(index).unwrap())).collect();
        let in_order: Vec<i64> = list.iter().map(number).collect();
        assert_eq!(by_index, in_order);
        in_order
    }

    #[test]
    fn joined_lists_keep_their_order() {
        let left = list(0..3).join(list(3..4)).join(list(4..4));
        let right = list(4..5).join(list(5..6).join(list(6..9)));
        assert_eq!(numbers(&left.join(right)), (0..9).collect::<Vec<_>>());
        assert_eq!(numbers(&list(0..0).join(list(0..0))), Vec::<i64>::new());
    }

    #[test]
    fn a_list_doubled_past_any_memory_has_a_length_and_elements() {
        let mut doubled = list(7..8);
        for _ in 0..100 {
            doubled = doubled.clone().join(doubled);
        }
        assert_eq!(doubled.len(), i64::MAX as u64);
        assert_eq!(doubled.iter().take(100_000).count(), 100_000);
    }
}
