//! Growing pauses after repeated failures: each failure after the end of a pause doubles the next pause.

use std::collections::BTreeMap;

use tessera_placement::Time;

/// Limit on remembered keys. Beyond the limit, the pause with the earliest end is forgotten.
const MOST_KEYS: usize = 16_384;

#[derive(Debug)]
struct Pause {
    failures: u32,
    until: Time,
    /// Whether [`Backoff::end`] reported the end.
    is_over: bool,
}

/// Pauses by key. A key without a failure for the longest pause after its last one starts anew.
#[derive(Debug)]
pub(crate) struct Backoff<K> {
    first: Time,
    longest: Time,
    pauses: BTreeMap<K, Pause>,
}

impl<K: Ord + Clone> Backoff<K> {
    /// No pauses yet. The first failure of a key pauses the key for `first`, later ones for at most `longest`.
    pub const fn new(first: Time, longest: Time) -> Self {
        Backoff { first, longest, pauses: BTreeMap::new() }
    }

    /// Records a failure, and returns the end of the pause. During a pause, further failures change nothing.
    pub fn fail(&mut self, key: K, now: Time) -> Time {
        self.fail_for(key, now, Time::ZERO)
    }

    /// As [`Self::fail`], with a new pause of at least `least`.
    pub fn fail_for(&mut self, key: K, now: Time, least: Time) -> Time {
        if self.pauses.get(&key).is_some_and(|pause| pause.until + self.longest <= now) {
            self.pauses.remove(&key);
        }
        let length = self.length(self.failures(&key) + 1).max(least);
        let pause = self.pauses.entry(key).or_insert(Pause { failures: 0, until: now, is_over: false });
        if pause.until > now {
            return pause.until;
        }
        *pause = Pause { failures: pause.failures + 1, until: now + length, is_over: false };
        let until = pause.until;
        self.keep_to_limit();
        until
    }

    /// Pauses the key until `until`, as decided by an earlier process. Later ends already known remain.
    pub fn restore(&mut self, key: K, until: Time, now: Time) {
        if until <= now || self.pauses.get(&key).is_some_and(|pause| pause.until >= until) {
            return;
        }
        let left = until - now;
        let failures = (1..32).find(|failures| self.length(*failures) >= left.min(self.longest)).unwrap_or(1);
        let failures = failures.max(self.failures(&key));
        self.pauses.insert(key, Pause { failures, until, is_over: false });
        self.keep_to_limit();
    }

    /// Length of the pause after so many failures in a row.
    fn length(&self, failures: u32) -> Time {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    fn keep_to_limit(&mut self) {
        if self.pauses.len() > MOST_KEYS {
            let first = self.pauses.iter().min_by_key(|(_, pause)| pause.until).map(|(key, _)| key.clone());
            first.map(|key| self.pauses.remove(&key));
        }
    }

    /// End of the key's pause, if not over.
    pub fn until(&self, key: &K, now: Time) -> Option<Time> {
        self.pauses.get(key).map(|pause| pause.until).filter(|until| *until > now)
    }

    /// Whether the key is paused.
    pub fn is_paused(&self, key: &K, now: Time) -> bool {
        self.until(key, now).is_some()
    }

    /// Number of failures in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.pauses.get(key).map_or(0, |pause| pause.failures)
    }

    /// Forgets the key's failures.
    pub fn succeed(&mut self, key: &K) {
        self.pauses.remove(key);
    }

    /// The keys from `first` on, in order, each with the end of its pause, over or not.
    pub fn from(&self, first: K) -> impl Iterator<Item = (&K, Time)> {
        self.pauses.range(first..).map(|(key, pause)| (key, pause.until))
    }

    /// Ends pauses, and forgets those long over. Returns whether any ended since the last call.
    pub fn end(&mut self, now: Time) -> bool {
        let mut any = false;
        self.pauses.retain(|_, pause| !pause.is_over || pause.until + self.longest > now);
        for pause in self.pauses.values_mut().filter(|pause| !pause.is_over && pause.until <= now) {
            pause.is_over = true;
            any = true;
        }
        any
    }

    /// When the next pause ends.
    pub fn next_end(&self) -> Option<Time> {
        self.pauses.values().filter(|pause| !pause.is_over).map(|pause| pause.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(at(10), at(30));
        let mut now = at(100);
        for expected in [10, 20, 30, 30] {
            let until = backoff.fail("a", now);
            assert_eq!(until, now + at(expected));
            assert_eq!(backoff.fail("a", until - at(1)), until);
            assert!(backoff.is_paused(&"a", until - at(1)) && !backoff.is_paused(&"a", until));
            now = until;
        }
        assert_eq!(backoff.failures(&"a"), 4);
        assert_eq!(backoff.fail_for("b", now, at(45)), now + at(45));
        // A key without a failure for long starts anew, also after a success.
        now += at(75);
        assert_eq!(backoff.fail("a", now), now + at(10));
        backoff.succeed(&"a");
        assert!(!backoff.is_paused(&"a", now));
    }

    #[test]
    fn ends_are_reported_once() {
        let mut backoff = Backoff::new(at(10), at(30));
        backoff.fail("a", at(0));
        assert_eq!(
            (backoff.next_end(), backoff.end(at(9)), backoff.end(at(10))),
            (Some(at(10)), false, true)
        );
        assert_eq!((backoff.next_end(), backoff.end(at(10))), (None, false));
    }

    #[test]
    fn what_an_earlier_process_decided_goes_on() {
        let mut backoff = Backoff::new(at(10), at(80));
        backoff.restore("a", at(35), at(0));
        backoff.restore("a", at(5), at(0));
        assert_eq!(backoff.until(&"a", at(34)), Some(at(35)));
        // After a pause of 40 s the next one takes 80 s.
        assert_eq!(backoff.fail("a", at(35)), at(115));
        backoff.restore("b", at(7), at(8));
        assert!(!backoff.is_paused(&"b", at(0)));
    }

    #[test]
    fn the_number_of_keys_is_limited() {
        let mut backoff = Backoff::new(at(10), at(80));
        for key in 0..=MOST_KEYS {
            backoff.fail_for(key, at(0), at(key as u64));
        }
        assert_eq!(backoff.from(0).count(), MOST_KEYS);
        assert!(backoff.is_paused(&MOST_KEYS, at(1)));
    }
}
