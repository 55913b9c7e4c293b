//! A cache for repeated lookups, bounded by memory.

use std::collections::HashMap;
use std::hash::Hash;

/// Approximate memory of a value.
pub(crate) trait Bytes {
    /// Bytes in all, including the value's own size.
    fn bytes(&self) -> usize;
}

/// Values by key, bounded by bytes.
#[derive(Debug)]
pub(crate) struct Kept<K, V> {
    values: HashMap<K, Entry<V>>,
    most_bytes: usize,
    /// Sum over all values, each as of its latest weighing.
    bytes: usize,
    /// Key of the latest lookup, weighed at the next one: its value may have grown since.
    last: Option<K>,
    questions: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    /// Number of the latest lookup of this key.
    asked_at: u64,
}

/// Lookups per kept value after which an unused value counts as stale: no waiting pod needs it.
const LONG_AGO: u64 = 16;

impl<K: Clone + Eq + Hash, V: Bytes + Default> Kept<K, V> {
    /// Room for `most_bytes`, plus the value in use.
    pub fn of(most_bytes: usize) -> Self {
        Kept { values: HashMap::new(), most_bytes, bytes: 0, last: None, questions: 0 }
    }

    /// Value for the key; an empty one if none is kept.
    pub fn get(&mut self, key: &K) -> &mut V {
        self.questions += 1;
        self.weigh_last();
        while self.bytes > self.most_bytes {
            let Some(dropped) = self.to_drop(key) else { break };
            self.remove(&dropped);
        }
        self.last = Some(key.clone());
        let asked_at = self.questions;
        let new = || Entry { value: V::default(), bytes: 0, asked_at };
        let entry = self.values.entry(key.clone()).or_insert_with(new);
        entry.asked_at = asked_at;
        &mut entry.value
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn clear(&mut self) {
        self.values.clear();
        (self.bytes, self.last) = (0, None);
    }

    fn weigh_last(&mut self) {
        let Some(last) = self.last.take() else { return };
        let Some(entry) = self.values.get_mut(&last) else { return };
        let bytes = entry.value.bytes();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.values.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    /// Key to drop, other than `but`: the least recently used if stale, else the most recently used. Waiting pods are looked up in
    /// turn: if slightly more of them than fit were dropped oldest first, every lookup would miss.
    fn to_drop(&self, but: &K) -> Option<K> {
        let others = || self.values.iter().filter(|(key, _)| *key != but);
        let (oldest, entry) = others().min_by_key(|(_, entry)| entry.asked_at)?;
        if entry.asked_at + LONG_AGO * (self.values.len() as u64) < self.questions {
            return Some(oldest.clone());
        }
        others().max_by_key(|(_, entry)| entry.asked_at).map(|(newest, _)| newest.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bytes for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    /// Looks up the key, and returns whether nothing was kept.
    fn is_missed(kept: &mut Kept<usize, Vec<u8>>, key: usize) -> bool {
        let value = kept.get(&key);
        let is_missed = value.is_empty();
        value.resize(10, 0);
        is_missed
    }

    fn missed(kept: &mut Kept<usize, Vec<u8>>, keys: impl Iterator<Item = usize>) -> usize {
        keys.map(|key| usize::from(is_missed(kept, key))).sum()
    }

    #[test]
    fn some_more_than_there_is_room_for_cost_some_more() {
        let mut kept = Kept::of(2_560);
        missed(&mut kept, 0..300);
        assert!(kept.len() <= 257, "{}", kept.len());
        let again = missed(&mut kept, 0..300);
        assert!(again <= 2 * (300 - 256), "{again}");
        // Once the old ones are stale, new ones replace them.
        missed(&mut kept, (0..40).flat_map(|_| 1_000..1_200));
        assert_eq!(missed(&mut kept, 1_000..1_200), 0);
    }

    #[test]
    fn one_that_grew_is_counted_as_it_is() {
        let mut kept = Kept::of(100);
        assert_eq!(missed(&mut kept, 0..10), 10);
        assert_eq!(missed(&mut kept, 0..10), 0);
        kept.get(&3).resize(95, 0);
        assert!(!is_missed(&mut kept, 4));
        assert!(is_missed(&mut kept, 3), "it alone takes too much beside the others");
        kept.clear();
        assert!(is_missed(&mut kept, 4) && kept.len() == 1);
    }
}
