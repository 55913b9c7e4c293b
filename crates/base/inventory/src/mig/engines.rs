//! Engines with fewer units than the memory slices would need.

use std::collections::BTreeMap;

use super::packing::is_instance_limited;
use crate::machine::GpuInstanceProfile;

/// A kind of engine divided among the instances of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// Copy engine.
    Copy,
    /// Video decoder.
    Decoder,
    /// Video encoder.
    Encoder,
    /// JPEG engine.
    Jpeg,
    /// Optical flow accelerator.
    Ofa,
}

impl Engine {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Copy, Self::Decoder, Self::Encoder, Self::Jpeg, Self::Ofa];

    /// Number of these engines in an instance of a profile.
    #[must_use]
    pub const fn of(self, profile: &GpuInstanceProfile) -> u32 {
        match self {
            Self::Copy => profile.copy_engines,
            Self::Decoder => profile.decoders,
            Self::Encoder => profile.encoders,
            Self::Jpeg => profile.jpeg_engines,
            Self::Ofa => profile.ofa_engines,
        }
    }
}

/// Upper limit of computed combinations of limited profiles; real cards have far fewer.
const MAX_COMBINATIONS: u64 = 1024;

/// The kinds of engines, with the card's number of each, liable to run out although the memory slices and the limits
/// of single profiles allow more: on an A30, of `1g.6gb+me` and `2g.12gb+me` only one can exist, since both need the
/// card's only optical flow accelerator.
///
/// The card has as many as its best equipped profile. A kind is left out where a profile's own limit shows its
/// instances sharing the kind (they have more in all than the card).
pub fn scarce(profiles: &[&GpuInstanceProfile]) -> Vec<(Engine, u32)> {
    Engine::ALL
        .into_iter()
        .filter_map(|engine| {
            let total = profiles.iter().map(|profile| engine.of(profile)).max()?;
            let shared = profiles.iter().any(|profile| {
                u64::from(engine.of(profile)) * u64::from(profile.max_instances) > u64::from(total)
            });
            let needed = if shared { 0 } else { most_needed(engine, profiles) };
            (needed > u64::from(total)).then_some((engine, total))
        })
        .collect()
}

/// The most engines of a kind needed by instances together, if only memory slices and the limits of single
/// profiles counted.
fn most_needed(engine: Engine, profiles: &[&GpuInstanceProfile]) -> u64 {
    let limits: Vec<Option<u32>> = profiles
        .iter()
        .map(|profile| is_instance_limited(profile).then_some(profile.max_instances))
        .collect();
    let combinations = limits.iter().flatten().try_fold(1u64, |product, limit| {
        product.checked_mul(u64::from(*limit) + 1).filter(|product| *product <= MAX_COMBINATIONS)
    });
    // Without limits the result is too high, never too low: an engine is then counted unnecessarily.
    let left: Vec<Option<u32>> = if combinations.is_some() { limits } else { vec![None; limits.len()] };
    Search { engine, profiles, known: BTreeMap::new() }.best(0, left)
}

struct Search<'a> {
    engine: Engine,
    profiles: &'a [&'a GpuInstanceProfile],
    /// By first free memory slice and remaining instances of each limited profile.
    known: BTreeMap<(u32, Vec<Option<u32>>), u64>,
}

impl Search<'_> {
    fn best(&mut self, from: u32, left: Vec<Option<u32>>) -> u64 {
        let key = (from, left);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let (_, left) = &key;
        let profiles = self.profiles;
        let starts = profiles.iter().flat_map(|profile| &profile.placements).map(|placement| placement.start);
        let Some(start) = starts.filter(|start| *start >= from).min() else { return 0 };
        let mut best = match start.checked_add(1) {
            Some(next) => self.best(next, left.clone()),
            None => 0,
        };
        for (position, profile) in profiles.iter().enumerate() {
            let mut left = left.clone();
            match &mut left[position] {
                Some(0) => continue,
                Some(instances) => *instances -= 1,
                None => {}
            }
            for placement in
                profile.placements.iter().filter(|placement| placement.start == start && placement.size > 0)
            {
                let rest = self.best(placement.end(), left.clone());
                best = best.max(rest.saturating_add(self.engine.of(profile).into()));
            }
        }
        self.known.insert(key, best);
        best
    }
}
