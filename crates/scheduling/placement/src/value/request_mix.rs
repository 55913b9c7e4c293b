//! Estimated mix of requested partitions, from past requests.

use std::collections::BTreeMap;

use tessera_api::ProfileSpelling;

/// Parts of a whole.
const MILLION: i64 = 1_000_000;
/// A request has the weight 1/`MEMORY`: a profile requested once stops counting after some sixty other requests.
const MEMORY: i64 = 128;
/// Requests in a million; profiles requested less often do not count.
const LEAST_SHARE: i64 = 5_000;
/// Departures per million arrivals; below this rate the cards are filling up.
const FEW_DEPARTURES: i64 = 300_000;

/// Fractions of the profiles among recent requests, and partitions returned per request: moving averages. Refused requests count,
/// too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestMix {
    /// By profile: requests in a million.
    shares: BTreeMap<ProfileSpelling, i64>,
    /// Departures per million requests.
    departures: i64,
    departed_since: i64,
}

impl RequestMix {
    /// Counts a request of this profile.
    pub fn arrived(&mut self, profile: &ProfileSpelling) {
        for share in self.shares.values_mut() {
            *share -= *share / MEMORY;
        }
        self.shares.retain(|_, share| *share >= MEMORY);
        *self.shares.entry(profile.clone()).or_default() += MILLION / MEMORY;
        let since = std::mem::take(&mut self.departed_since).saturating_mul(MILLION);
        self.departures += since.saturating_sub(self.departures) / MEMORY;
    }

    /// Counts a returned partition.
    pub fn departed(&mut self) {
        self.departed_since = self.departed_since.saturating_add(1);
    }

    /// Whether far more partitions are requested than returned.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.departures < FEW_DEPARTURES
    }

    /// Whether the profile is requested often enough to count.
    #[must_use]
    pub fn is_seen(&self, profile: &ProfileSpelling) -> bool {
        self.shares.get(profile).is_some_and(|share| *share > LEAST_SHARE)
    }

    /// Value of room for one more partition of each profile, in halves of a compute slice.
    ///
    /// Room counts for requested profiles. While cards fill up, future requests are unknown: room then counts for all plain
    /// profiles, and more for those of one slice.
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

/// Whether the profile is the usual one of its compute slices: no attributes, and the least memory.
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
