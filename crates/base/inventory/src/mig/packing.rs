//! Number of instances with room side by side.

use crate::machine::{GpuInstanceProfile, Placement};

/// Whether fewer instances of the profile may exist than its placements leave room for, as of `1g.10gb+me`: something
/// other than memory slices runs out, usually an engine.
#[must_use]
pub fn is_instance_limited(profile: &GpuInstanceProfile) -> bool {
    let mut placements = profile.placements.clone();
    placements.sort_by_key(|placement| (placement.end(), placement.start));
    let (mut disjoint, mut end) = (0u32, 0);
    for placement in placements {
        if placement.start >= end && placement.size > 0 {
            disjoint += 1;
            end = placement.end();
        }
    }
    profile.max_instances < disjoint
}

/// The greatest sum of `weight` over placements of `profiles` within `room` and apart from each other.
pub fn heaviest_packing(
    profiles: &[&GpuInstanceProfile],
    room: Placement,
    weight: impl Fn(&GpuInstanceProfile) -> u32,
) -> u64 {
    let mut placements: Vec<(Placement, u64)> = profiles
        .iter()
        .flat_map(|profile| {
            let weight = u64::from(weight(profile));
            profile.placements.iter().map(move |placement| (*placement, weight))
        })
        .filter(|(placement, _)| {
            placement.size > 0 && room.start <= placement.start && placement.end() <= room.end()
        })
        .collect();
    placements.sort_by_key(|(placement, _)| (placement.end(), placement.start));
    // best[i]: of the first i placements.
    let mut best = vec![0u64; placements.len() + 1];
    for (i, (placement, weight)) in placements.iter().enumerate() {
        let before = placements.partition_point(|(other, _)| other.end() <= placement.start);
        best[i + 1] = best[i].max(best[before.min(i)].saturating_add(*weight));
    }
    best[placements.len()]
}
