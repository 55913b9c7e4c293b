//! How one model of card can be partitioned.

use serde::{Deserialize, Serialize};

/// Grid and GPU instance profiles of a model. A set of instances is valid when their placements do not overlap, no profile
/// has more instances than its maximum, and the engines suffice (`mig::gpu`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigModel {
    /// Memory slices of the card, the unit of placements.
    pub memory_slices: u32,
    /// Compute slices of the card, the maximum number of its MIG devices.
    pub compute_slices: u32,
    /// Whether a switch of the mode takes a reset (Ampere), and the card then keeps its mode over a reboot.
    pub mode_needs_reset: bool,
    /// The profiles.
    pub profiles: Vec<GpuInstanceProfile>,
}

/// A kind of GPU instance. Values without a source are absent; NVML cannot express absence, and answers 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuInstanceProfile {
    /// Such as `1g.10gb+me`.
    pub name: String,
    /// Id for making instances.
    pub id: u32,
    /// `NVML_GPU_INSTANCE_PROFILE_*`.
    pub enumerator: u32,
    /// Compute slices.
    pub compute_slices: u32,
    /// Memory slices.
    pub memory_slices: u32,
    /// Possible first memory slices of an instance.
    pub starts: Vec<u32>,
    /// Most instances on a card.
    pub max_instances: u32,
    /// Usable memory, MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Copy engines.
    pub copy_engines: Option<u32>,
    /// Video decoders.
    pub decoders: Option<u32>,
    /// Video encoders.
    pub encoders: Option<u32>,
    /// JPEG decoders.
    pub jpeg_engines: Option<u32>,
    /// Optical flow accelerators.
    pub ofa_engines: Option<u32>,
}

/// Memory sizes of partitions are whole multiples of this in every capture, MiB.
const MEMORY_STEP_MIB: u64 = 128;

impl MigModel {
    /// The profile with this id.
    pub fn profile(&self, id: u32) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The profile with this `NVML_GPU_INSTANCE_PROFILE_*`.
    pub fn enumerated(&self, enumerator: u32) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.enumerator == enumerator)
    }

    /// Chooses the memory of profiles without a sourced value: their memory slices' share of the card, rounded to the
    /// steps seen in captures.
    pub fn complete(mut self, memory_total_mib: u64) -> Self {
        let slices = u64::from(self.memory_slices.max(1));
        for profile in &mut self.profiles {
            let share = memory_total_mib * u64::from(profile.memory_slices) / slices;
            profile.memory_mib.get_or_insert(share / MEMORY_STEP_MIB * MEMORY_STEP_MIB);
        }
        self
    }
}

impl GpuInstanceProfile {
    /// Engines divided among the instances of a card, by kind.
    pub fn engines(&self) -> [Option<u32>; 5] {
        [self.copy_engines, self.decoders, self.encoders, self.jpeg_engines, self.ofa_engines]
    }

    /// Whether instances can draw (`NVML_GPU_INSTANCE_PROFILE_CAPS_GFX`).
    pub fn graphics(&self) -> bool {
        self.name.ends_with("+gfx")
    }
}

#[cfg(test)]
mod tests {
    use crate::{mig_model, mig_model_names};

    #[test]
    fn models_are_consistent() {
        for name in mig_model_names() {
            let (model, _) = mig_model(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let whole = model.profile(0).expect("the profile of the whole card has id 0");
            assert_eq!(whole.memory_slices, model.memory_slices, "{name}");
            assert_eq!(whole.compute_slices, model.compute_slices, "{name}");
            for profile in &model.profiles {
                let same = |other: &&crate::mig::GpuInstanceProfile| {
                    other.id == profile.id
                        || other.enumerator == profile.enumerator
                        || other.name == profile.name
                };
                assert_eq!(model.profiles.iter().filter(same).count(), 1, "{name} {}", profile.name);
                for start in &profile.starts {
                    assert_eq!(start % profile.memory_slices, 0, "{name} {}", profile.name);
                    assert!(start + profile.memory_slices <= model.memory_slices, "{name} {}", profile.name);
                }
                assert!(profile.max_instances as usize <= profile.starts.len(), "{name} {}", profile.name);
            }
        }
    }

    #[test]
    fn memory_that_no_source_gives_is_the_slices_share() {
        let (model, _) = mig_model("h200-141gb").expect("the H200");
        assert_eq!(model.profile(19).expect("1g").memory_mib, None);
        let model = model.complete(143_771);
        assert_eq!(model.profile(19).expect("1g").memory_mib, Some(17_920));
        assert_eq!(model.profile(0).expect("7g").memory_mib, Some(143_744));
    }
}
