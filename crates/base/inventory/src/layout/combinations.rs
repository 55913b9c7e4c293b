use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::placed::Layout;
use super::room::Room;
use crate::machine::{GpuInstanceProfile, Mig, Placement};

/// The most steps of the enumeration. Real cards need some thousands; the limit is for nonsensical facts.
const STEPS: u32 = 200_000;

/// Number of partitions by profile, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    counts: Vec<(String, u32)>,
}

/// Every full layout of a card, without room for another instance, with the profiles selected by `with`; sorted.
#[must_use]
pub fn maximal_layouts(mig: &Mig, with: impl Fn(&GpuInstanceProfile) -> bool) -> Vec<Layout> {
    let mut places: Vec<(Placement, &GpuInstanceProfile)> = mig
        .profiles
        .iter()
        .filter(|profile| with(profile))
        .flat_map(|profile| profile.placements.iter().map(move |placement| (*placement, profile)))
        .collect();
    places.sort_by_key(|(placement, profile)| (*placement, profile.id));
    places.dedup_by_key(|(placement, profile)| (*placement, profile.id));
    let mut room = Room::new(mig);
    let mut found = Vec::new();
    collect(&mut room, &places, 0, &mut found, &mut STEPS.clone());
    found.sort();
    found
}

/// Adds instances at `places[from..]` to `room` in every way, and collects the full layouts.
fn collect<'a>(
    room: &mut Room<'a>,
    places: &[(Placement, &'a GpuInstanceProfile)],
    from: usize,
    found: &mut Vec<Layout>,
    steps: &mut u32,
) {
    let mut full = true;
    for (index, &(placement, profile)) in places.iter().enumerate() {
        if !room.has(profile, placement) {
            continue;
        }
        full = false;
        if index >= from {
            let Some(left) = steps.checked_sub(1) else { return };
            *steps = left;
            room.place(profile, placement);
            collect(room, places, index + 1, found, steps);
            room.take_back();
        }
    }
    if full && !room.placed().is_empty() {
        found.push(Layout::of(room));
    }
}

/// The distinct combinations of [`maximal_layouts`].
#[must_use]
pub fn combinations(mig: &Mig, with: impl Fn(&GpuInstanceProfile) -> bool) -> Vec<Combination> {
    let layouts = maximal_layouts(mig, with);
    let distinct: BTreeSet<Combination> = layouts.iter().map(|layout| Combination::of(mig, layout)).collect();
    distinct.into_iter().collect()
}

/// The combinations filling the card with the smallest difference from `wanted`, counted in partitions.
pub(super) fn nearest(mig: &Mig, wanted: &Combination, most: usize) -> Vec<Combination> {
    let mut all = combinations(mig, |_| true);
    all.sort_by_key(|combination| combination.distance(wanted));
    all.truncate(most);
    all
}

impl Combination {
    /// The counts of a layout.
    #[must_use]
    pub fn of(mig: &Mig, layout: &Layout) -> Self {
        let mut counts = BTreeMap::new();
        for instance in &layout.instances {
            *counts.entry(instance.profile.clone()).or_default() += 1;
        }
        Self::of_counts(mig, &counts)
    }

    pub(super) fn of_counts(mig: &Mig, counts: &BTreeMap<String, u32>) -> Self {
        let size = |name: &str| {
            let profile = mig.profiles.iter().find(|profile| profile.name == name);
            profile.map_or((0, 0), |profile| (profile.compute_slices, profile.memory_bytes))
        };
        let mut counts: Vec<_> = counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| (name.clone(), *count))
            .collect();
        counts.sort_by(|(one, _), (other, _)| size(other).cmp(&size(one)).then_with(|| one.cmp(other)));
        Self { counts }
    }

    /// The counts by profile, as in a layout file.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u32> {
        self.counts.iter().cloned().collect()
    }

    /// Number of partitions only in one of the two.
    fn distance(&self, other: &Self) -> u64 {
        let (own, other) = (self.counts(), other.counts());
        let names: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
        let count = |counts: &BTreeMap<String, u32>, name: &str| counts.get(name).copied().unwrap_or(0);
        names.into_iter().map(|name| u64::from(count(&own, name).abs_diff(count(&other, name)))).sum()
    }
}

/// `4g.40gb + 3g.40gb`, `3 x 2g.20gb + 1g.10gb`
impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return formatter.write_str("nothing");
        }
        for (index, (profile, count)) in self.counts.iter().enumerate() {
            let plus = if index > 0 { " + " } else { "" };
            match count {
                1 => write!(formatter, "{plus}{profile}")?,
                count => write!(formatter, "{plus}{count} x {profile}")?,
            }
        }
        Ok(())
    }
}
