//! Which partitions are asked for, as far as the past tells.

use std::collections::BTreeMap;

use tessera_api::ProfileSpelling;

/// Parts of a whole.
const MILLION: i64 = 1_000_000;
/// One request weighs one in so many: what was asked for once is forgotten after some sixty others.
const MEMORY: i64 = 128;
/// Of a million requests; a profile asked for less often does not count.
const LEAST_SHARE: i64 = 5_000;
/// Departures for a million arrivals; with fewer the cards are filling up.
const FEW_DEPARTURES: i64 = 300_000;

/// The shares of the profiles among recent requests, and how many partitions are given back for each request: moving
/// averages. Requests that were refused count, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestMix {
    /// By profile: requests in a million.
    shares: BTreeMap<ProfileSpelling, i64>,
    /// For a million requests.
    departures: i64,
    departed_since: i64,
}

impl RequestMix {
    /// A partition of this profile is asked for.
    pub fn arrived(&mut self, profile: &ProfileSpelling) {
        for share in self.shares.values_mut() {
            *share -= *share / MEMORY;
        }
        self.shares.retain(|_, share| *share >= MEMORY);
        *self.shares.entry(profile.clone()).or_default() += MILLION / MEMORY;
        let since = std::mem::take(&mut self.departed_since).saturating_mul(MILLION);
        self.departures += since.saturating_sub(self.departures) / MEMORY;
    }

    /// A partition is given back.
    pub fn departed(&mut self) {
        self.departed_since = self.departed_since.saturating_add(1);
    }

    /// Whether far more is asked for than given back.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.departures < FEW_DEPARTURES
    }

    /// Whether the profile is asked for often enough to count.
    #[must_use]
    pub fn is_seen(&self, profile: &ProfileSpelling) -> bool {
        self.shares.get(profile).is_some_and(|share| *share > LEAST_SHARE)
    }

    /// What room for one more partition of each profile is worth, in halves of a compute slice.
    ///
    /// Room counts for profiles that are asked for. While cards fill up, nobody knows yet what will be asked for: then
    /// it counts for all plain profiles, and more for those of one slice.
    #[must_use]
    pub fn weights(&self, profiles: &[ProfileSpelling]) -> Vec<u64> {
        let weight = |profile: &ProfileSpelling| {
            let is_filling = self.is_filling();
            let is_plain = is_plain(profile, profiles);
            let counts = self.is_seen(profile) || is_filling && is_plain;
            match profile.compute_slices() {
                _ if !counts => 0,
                1 if is_filling && is_plain => 3,
                slices => 2 * u64::from(slices),
            }
        };
        profiles.iter().map(weight).collect()
    }
}

/// Whether it is the usual profile of its compute slices: nothing besides, and the least memory.
fn is_plain(profile: &ProfileSpelling, all: &[ProfileSpelling]) -> bool {
    let is_smaller = |other: &ProfileSpelling| {
        !other.has_attributes()
            && other.compute_slices() == profile.compute_slices()
            && other.memory_gigabytes() < profile.memory_gigabytes()
    };
    !profile.has_attributes() && !all.iter().any(is_smaller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> Vec<ProfileSpelling> {
        ["1g5gb", "1g5gb-me", "1g10gb", "2g10gb", "7g40gb"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn only_what_is_asked_for_counts_once_partitions_come_back() {
        let all = profiles();
        let mut mix = RequestMix::default();
        assert_eq!(mix.weights(&all), [3, 0, 0, 4, 14], "filling: the plain ones");
        mix.arrived(&all[1]);
        assert_eq!(mix.weights(&all), [3, 2, 0, 4, 14], "and a variant that was seen");
        for _ in 0..400 {
            mix.arrived(&all[3]);
            mix.departed();
        }
        assert!(!mix.is_filling());
        assert_eq!(mix.weights(&all), [0, 0, 0, 4, 0]);
        for _ in 0..400 {
            mix.arrived(&all[3]);
        }
        assert!(mix.is_filling());
    }
}
