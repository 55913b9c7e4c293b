use std::collections::BTreeMap;

use super::combinations::{self, Combination};
use super::placed::Layout;
use super::room::Room;
use crate::machine::{GpuInstanceProfile, Mig, Placement};

/// The most steps of the search. Real cards need a few hundred; the limit is for nonsensical facts.
const STEPS: u32 = 200_000;

/// Number of nearest combinations in a message.
const NEAREST: usize = 3;

/// The reason for an impossible layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The driver names no profiles for this card.
    #[error("the driver tells no MIG profiles of this card (before driver 545 only while MIG mode is on)")]
    NoProfiles,
    /// The card has no such profile.
    #[error("this card has no MIG profile {profile}; it has {offered}")]
    UnknownProfile {
        /// The requested profile.
        profile: String,
        /// The card's profiles.
        offered: String,
    },
    /// The partitions don't fit.
    #[error("{wanted} does not fit on this card; the nearest that do are {}", list(nearest))]
    DoesNotFit {
        /// The requested partitions.
        wanted: Combination,
        /// Combinations filling the card, nearest first.
        nearest: Vec<Combination>,
    },
}

/// Places the wanted counts of profiles on an empty card. The same counts give the same placements.
///
/// # Errors
/// [`LayoutError`]
pub fn plan(mig: &Mig, wanted: &BTreeMap<String, u32>) -> Result<Layout, LayoutError> {
    let mut instances: Vec<&GpuInstanceProfile> = Vec::new();
    let slices = mig.memory_slices() as usize;
    let does_not_fit = || {
        let wanted = Combination::of_counts(mig, wanted);
        let nearest = combinations::nearest(mig, &wanted, NEAREST);
        LayoutError::DoesNotFit { wanted, nearest }
    };
    for (name, count) in wanted.iter().filter(|(_, count)| **count > 0) {
        if mig.profiles.is_empty() {
            return Err(LayoutError::NoProfiles);
        }
        let Some(profile) = mig.profiles.iter().find(|profile| profile.name == *name) else {
            return Err(LayoutError::UnknownProfile { profile: name.clone(), offered: offered(mig) });
        };
        // Each takes at least one slice.
        if *count as usize + instances.len() > slices {
            return Err(does_not_fit());
        }
        instances.extend(std::iter::repeat_n(profile, *count as usize));
    }
    // Profiles with the fewest placements first.
    instances.sort_by_key(|profile| {
        (profile.placements.len(), std::cmp::Reverse(profile.compute_slices), profile.id)
    });
    let mut room = Room::new(mig);
    if fill(&mut room, &instances, None, &mut STEPS.clone()) {
        Ok(Layout::of(&room))
    } else {
        Err(does_not_fit())
    }
}

/// Places all of `left`; instances of the same profile in ascending order.
fn fill<'a>(
    room: &mut Room<'a>,
    left: &[&'a GpuInstanceProfile],
    last: Option<(u32, Placement)>,
    steps: &mut u32,
) -> bool {
    let Some((profile, rest)) = left.split_first() else { return true };
    let mut placements = profile.placements.clone();
    placements.sort_unstable();
    for placement in placements {
        let is_behind = last.is_none_or(|(id, last)| id != profile.id || placement > last);
        if is_behind && room.has(profile, placement) {
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            room.place(profile, placement);
            if fill(room, rest, Some((profile.id, placement)), steps) {
                return true;
            }
            room.take_back();
        }
    }
    false
}

fn offered(mig: &Mig) -> String {
    let mut names: Vec<&str> = mig.profiles.iter().map(|profile| profile.name.as_str()).collect();
    names.sort_unstable();
    names.join(", ")
}

fn list(combinations: &[Combination]) -> String {
    combinations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
