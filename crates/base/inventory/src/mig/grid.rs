use std::collections::BTreeSet;

use tessera_api::offer::PlacementOrder;
use tessera_api::{PciBusId, ProfileSpelling, limits};

use super::engines::{self, Engine};
use super::order::placement_orders;
use super::packing::is_instance_limited;
use crate::machine::{GpuInstance, GpuInstanceProfile, Mig, Placement};
use crate::warning::Warning;

/// The memory slices, profiles and scarce engines of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid<'a> {
    /// Memory slices, 1 on a card without MIG.
    pub memory_slices: u32,
    /// The publishable profiles, smallest first: by memory, compute and engines.
    pub profiles: Vec<GridProfile<'a>>,
    /// Engines liable to run out before the slices, with the card's number of each.
    pub scarce_engines: Vec<(Engine, u32)>,
}

/// A publishable profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridProfile<'a> {
    /// The driver's facts.
    pub facts: &'a GpuInstanceProfile,
    /// Its spelling in device names.
    pub spelling: ProfileSpelling,
    /// Its placements in the order of trying.
    pub placements: Vec<Placement>,
    /// Whether fewer instances may exist than the placements leave room for.
    pub is_limited: bool,
}

impl<'a> Grid<'a> {
    /// The grid of a card without MIG.
    #[must_use]
    pub const fn whole() -> Self {
        Self { memory_slices: 1, profiles: Vec::new(), scarce_engines: Vec::new() }
    }

    /// The grid of the card at `card`. Unpublishable profiles are left out with a warning; if counters
    /// would not suffice, all are.
    #[must_use]
    pub fn new(card: PciBusId, mig: &'a Mig, order: PlacementOrder, warnings: &mut Vec<Warning>) -> Self {
        let memory_slices = mig.memory_slices().max(1);
        if usize::try_from(memory_slices).is_ok_and(|slices| slices > limits::COUNTERS_PER_SET) {
            warnings.push(Warning::MemorySlices { card, slices: memory_slices });
            return Self::whole();
        }
        let mut facts: Vec<&GpuInstanceProfile> = mig.profiles.iter().collect();
        facts.sort_by_key(|profile| {
            let engines: u64 = Engine::ALL.into_iter().map(|engine| u64::from(engine.of(profile))).sum();
            (profile.memory_bytes, profile.compute_slices, is_instance_limited(profile), engines, *profile)
        });
        let mut named: Vec<(&GpuInstanceProfile, ProfileSpelling)> = Vec::new();
        for profile in facts {
            let can_exist = profile.max_instances > 0
                && profile.placements.iter().all(|placement| placement.size > 0)
                && !profile.placements.is_empty();
            match ProfileSpelling::of_profile(&profile.name) {
                Ok(spelling) if can_exist && !named.iter().any(|(_, other)| *other == spelling) => {
                    named.push((profile, spelling));
                }
                _ => warnings.push(Warning::Profile { card, name: profile.name.chars().take(64).collect() }),
            }
        }
        let facts: Vec<&GpuInstanceProfile> = named.iter().map(|(profile, _)| *profile).collect();
        let scarce_engines = engines::scarce(&facts);
        let profiles = named
            .into_iter()
            .zip(placement_orders(&facts, order))
            .map(|((facts, spelling), mut placements)| {
                // A device is named by its start: only the first of several placements with the same start.
                let mut starts = BTreeSet::new();
                placements.retain(|placement| starts.insert(placement.start));
                GridProfile { facts, spelling, placements, is_limited: is_instance_limited(facts) }
            })
            .collect();
        let grid = Self { memory_slices, profiles, scarce_engines };
        let counters = grid.counter_count();
        if counters > limits::COUNTERS_PER_SET {
            warnings.push(Warning::Counters { card, counters });
            return Self { profiles: Vec::new(), scarce_engines: Vec::new(), ..grid };
        }
        grid
    }

    /// The profile of an existing instance.
    #[must_use]
    pub fn profile_of(&self, instance: &GpuInstance) -> Option<&GridProfile<'a>> {
        self.profiles.iter().find(|profile| profile.facts.id == instance.profile_id)
    }

    fn counter_count(&self) -> usize {
        let limited = self.profiles.iter().filter(|profile| profile.is_limited).count();
        // At most 32 slices by now.
        usize::try_from(self.memory_slices).unwrap_or(usize::MAX) + limited + self.scarce_engines.len()
    }
}
