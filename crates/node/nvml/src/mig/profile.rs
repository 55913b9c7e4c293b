/// NVML's number of the compute instance profile with fewer multiprocessors than its one slice counts
/// (`NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`).
const ONE_SLICE_REV1: u32 = 7;

/// A kind of compute instance offered by a GPU instance (`nvmlGpuInstanceGetComputeInstanceProfileInfoV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeInstanceProfile {
    /// The profile's number in NVML's enumeration (`NVML_COMPUTE_INSTANCE_PROFILE_*`).
    pub enumerator: u32,
    /// The id by which instances are created.
    pub id: u32,
    /// Compute slices: the number before the `c`.
    pub compute_slices: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Maximum number side by side in the empty GPU instance.
    pub max_instances: u32,
}

impl ComputeInstanceProfile {
    /// The profile for a width in compute slices, among those offered by a GPU instance; without a width, the one of
    /// all its slices. `None` if no profile of this width is offered.
    ///
    /// Several profiles can have the same width. `NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`, with fewer
    /// multiprocessors, is chosen only if there is no other. An A100 lists seven slices twice; the plain profile,
    /// with the lower number, is chosen (NVIDIA/k8s-dra-driver-gpu#1480).
    #[must_use]
    pub fn of_width(offered: &[Self], compute_slices: Option<u32>) -> Option<Self> {
        let possible = || offered.iter().filter(|profile| profile.max_instances > 0);
        let width = compute_slices.or_else(|| possible().map(|profile| profile.compute_slices).max())?;
        possible()
            .filter(|profile| profile.compute_slices == width)
            .min_by_key(|profile| (profile.enumerator == ONE_SLICE_REV1, profile.enumerator))
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile((enumerator, id, compute_slices): (u32, u32, u32)) -> ComputeInstanceProfile {
        ComputeInstanceProfile { enumerator, id, compute_slices, multiprocessors: 14, max_instances: 1 }
    }

    #[test]
    fn of_several_profiles_of_a_width_the_plain_one_is_meant() {
        // In an A100's order, with the narrow slice besides; the order is the driver's.
        let offered = [(8, 8, 7), (7, 7, 1), (4, 4, 7), (0, 0, 1)].map(profile);
        let id = |width| ComputeInstanceProfile::of_width(&offered, width).map(|profile| profile.id);
        assert_eq!(id(None), Some(4));
        assert_eq!(id(Some(7)), Some(4));
        assert_eq!(id(Some(1)), Some(0));
        assert_eq!(id(Some(2)), None);
    }

    #[test]
    fn the_narrow_slice_is_meant_where_there_is_no_other_and_what_is_not_offered_never() {
        let narrow = [profile((7, 7, 1))];
        assert_eq!(ComputeInstanceProfile::of_width(&narrow, None), Some(narrow[0]));
        let none = [ComputeInstanceProfile { max_instances: 0, ..profile((4, 4, 7)) }, narrow[0]];
        assert_eq!(ComputeInstanceProfile::of_width(&none, None), Some(narrow[0]));
        assert_eq!(ComputeInstanceProfile::of_width(&none, Some(7)), None);
        assert_eq!(ComputeInstanceProfile::of_width(&[], None), None);
    }
}
