/// A kind of GPU instance that a card offers (`nvmlDeviceGetGpuInstanceProfileInfoV`), whatever its mode is now.
///
/// Sizes are the driver's own: they differ by board and by driver version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInstanceProfile {
    /// The profile's number in NVML's enumeration (`NVML_GPU_INSTANCE_PROFILE_*`): by it one asks. Not its id.
    pub enumerator: u32,
    /// The id by which instances are made. Means other profiles on other boards.
    pub id: u32,
    /// As NVIDIA writes it: `1g.10gb`, `1g.10gb+me`, `1g.24gb-me`.
    pub name: String,
    /// Compute slices: the number before the `g`.
    pub compute_slices: u32,
    /// How many can exist side by side on an empty card.
    pub max_instances: u32,
    /// Memory of one, in bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines (shared or not).
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow accelerators.
    pub ofa_engines: u32,
    /// Where one can lie (`nvmlDeviceGetGpuInstancePossiblePlacements_v2`), by start.
    pub placements: Vec<Placement>,
}

/// Which memory slices an instance takes (`nvmlGpuInstancePlacement_t`). Ordered by start, then size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Placement {
    /// First memory slice, from 0.
    pub start: u32,
    /// How many memory slices.
    pub size: u32,
}

/// A kind of compute instance that a GPU instance offers (`nvmlGpuInstanceGetComputeInstanceProfileInfoV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeInstanceProfile {
    /// The profile's number in NVML's enumeration (`NVML_COMPUTE_INSTANCE_PROFILE_*`).
    pub enumerator: u32,
    /// The id by which instances are made.
    pub id: u32,
    /// Compute slices: the number before the `c`.
    pub compute_slices: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// How many can exist side by side in the empty GPU instance.
    pub max_instances: u32,
}
