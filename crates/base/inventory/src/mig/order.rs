//! The order of a profile's placements. kube-scheduler takes the first device with room, so this order is its only
//! packing; `cargo xtask bench mig-order` compares the rules.

use std::cmp::Reverse;

use tessera_api::offer::PlacementOrder;

use super::packing::{heaviest_packing, is_instance_limited};
use crate::machine::{GpuInstanceProfile, Placement};

/// The placements of each of `profiles`, in the order of trying.
#[must_use]
pub fn placement_orders(profiles: &[&GpuInstanceProfile], order: PlacementOrder) -> Vec<Vec<Placement>> {
    let rule = Rule::new(profiles);
    profiles
        .iter()
        .enumerate()
        .map(|(position, profile)| {
            let mut placements = profile.placements.clone();
            match order {
                PlacementOrder::Balanced => {
                    placements.sort_by_cached_key(|placement| rule.balanced(position, profile, *placement));
                }
                PlacementOrder::HighestStart => placements
                    .sort_by_cached_key(|placement| (rule.kills(position, *placement), Reverse(*placement))),
            }
            placements
        })
        .collect()
}

/// Facts of a placement needed by both rules.
struct Rule<'a> {
    /// Profiles without a limit on instances, one for each compute size and set of placements, with their position among
    /// all profiles: variants such as `+gfx` count once.
    plain: Vec<(usize, &'a GpuInstanceProfile)>,
    /// The largest of them with more than one placement: its size, and its placement with the least waste.
    largest: Option<(Size, Placement)>,
}

/// Compute slices, then memory slices.
type Size = (u32, u32);

impl<'a> Rule<'a> {
    fn new(profiles: &[&'a GpuInstanceProfile]) -> Self {
        let mut plain: Vec<(usize, &GpuInstanceProfile)> = Vec::new();
        let mut known = Vec::new();
        for (position, profile) in
            profiles.iter().enumerate().filter(|(_, profile)| !is_instance_limited(profile))
        {
            let mut placements = profile.placements.clone();
            placements.sort();
            let shape = (profile.compute_slices, placements);
            if !known.contains(&shape) {
                known.push(shape);
                plain.push((position, profile));
            }
        }
        let mut rule = Self { plain, largest: None };
        let mut largest: Option<&GpuInstanceProfile> = None;
        for (_, profile) in rule.plain.iter().filter(|(_, profile)| profile.placements.len() > 1) {
            if largest.is_none_or(|largest| size(profile) > size(largest)) {
                largest = Some(profile);
            }
        }
        rule.largest = largest.and_then(|profile| {
            let waste = |placement: &Placement| (rule.waste(profile, *placement), Reverse(*placement));
            Some((size(profile), profile.placements.iter().copied().min_by_key(waste)?))
        });
        rule
    }

    /// Rule A.
    fn balanced(
        &self,
        position: usize,
        profile: &GpuInstanceProfile,
        placement: Placement,
    ) -> impl Ord + use<> {
        // A profile with a limit is rare: only the placements taken from others matter.
        let limited = if is_instance_limited(profile) { self.kills(position, placement) } else { 0 };
        let waste = self.waste(profile, placement);
        let start = i64::from(placement.start);
        match self.largest {
            Some((largest, best)) if size(profile) < largest => {
                (limited, waste, placement.overlaps(best), self.kills(position, placement), start)
            }
            _ => (limited, waste, false, 0, -start),
        }
    }

    /// Compute slices of the placement usable by other profiles but not by this one.
    fn waste(&self, profile: &GpuInstanceProfile, placement: Placement) -> i64 {
        let plain: Vec<&GpuInstanceProfile> = self.plain.iter().map(|(_, profile)| *profile).collect();
        let packed = heaviest_packing(&plain, placement, |profile| profile.compute_slices);
        i64::try_from(packed).unwrap_or(i64::MAX).saturating_sub(profile.compute_slices.into())
    }

    /// Number of placements of other plain profiles made impossible by the placement.
    fn kills(&self, position: usize, placement: Placement) -> usize {
        let others = self.plain.iter().filter(|(other, _)| *other != position);
        others.flat_map(|(_, other)| &other.placements).filter(|other| other.overlaps(placement)).count()
    }
}

fn size(profile: &GpuInstanceProfile) -> Size {
    (profile.compute_slices, profile.placements.iter().map(|placement| placement.size).max().unwrap_or(0))
}
