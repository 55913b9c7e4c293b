use serde::{Deserialize, Serialize};

/// A kind of GPU instance offered by a card (`nvmlDeviceGetGpuInstanceProfileInfoV`), whether its MIG mode is on or off.
///
/// Sizes are the driver's own: they differ by board and by driver version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuInstanceProfile {
    /// NVIDIA's name: `1g.10gb`, `1g.10gb+me`, `1g.24gb-me`.
    pub name: String,
    /// The id for creating instances. The same id means different profiles on different boards.
    pub id: u32,
    /// Compute slices: the number before the `g`.
    pub compute_slices: u32,
    /// How many instances can exist side by side on an empty card.
    pub max_instances: u32,
    /// Memory of one instance, in bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines, shared or not.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow accelerators.
    pub ofa_engines: u32,
    /// The possible placements of an instance (`nvmlDeviceGetGpuInstancePossiblePlacements_v2`), in any order.
    pub placements: Vec<Placement>,
}

/// The slices of an instance: memory slices of the card for a GPU instance (`nvmlGpuInstancePlacement_t`), compute
/// slices of the GPU instance for a compute instance (`nvmlComputeInstancePlacement_t`). Ordered by start, then size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    /// The first slice, from 0.
    pub start: u32,
    /// The number of slices.
    pub size: u32,
}

/// An existing GPU instance (`nvmlGpuInstanceGetInfo`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuInstance {
    /// Id on its card; the driver chooses it.
    pub id: u32,
    /// [`GpuInstanceProfile::id`] of its profile.
    pub profile_id: u32,
    /// Its memory slices on the card.
    pub placement: Placement,
    /// Its compute instances, in any order. Empty during creation, and for instances left incomplete.
    pub compute_instances: Vec<ComputeInstance>,
}

/// An existing compute instance (`nvmlComputeInstanceGetInfo_v2`): with its GPU instance, a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeInstance {
    /// Id within its GPU instance; the driver chooses it.
    pub id: u32,
    /// Id of its profile. The same id means different profiles in GPU instances of different profiles.
    pub profile_id: u32,
    /// Its compute slices in the GPU instance.
    pub placement: Placement,
    /// Streaming multiprocessors of its profile (`nvmlGpuInstanceGetComputeInstanceProfileInfoV`); `None` where unknown.
    pub multiprocessors: Option<u32>,
    /// `MIG-…`, of the device handle (`nvmlDeviceGetUUID`); `None` where the driver has no handle for it.
    pub uuid: Option<String>,
}

impl Placement {
    /// The slice after the last one.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.start.saturating_add(self.size)
    }

    /// Whether both contain the same slice.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_overlap_where_they_share_a_slice() {
        let slices = |start, size| Placement { start, size };
        assert!(slices(0, 4).overlaps(slices(3, 1)));
        assert!(slices(3, 1).overlaps(slices(0, 4)));
        assert!(!slices(0, 4).overlaps(slices(4, 4)));
        assert!(!slices(6, 2).overlaps(slices(0, 6)));
    }
}
