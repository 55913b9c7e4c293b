/// What MIG can make, and has made, of a card that has it. All as the driver says: sizes differ by board and by driver
/// version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mig {
    /// Whether MIG mode is on now (`nvmlDeviceGetMigMode`, current).
    pub mode: bool,
    /// Whether MIG mode will be on after the next reset (`nvmlDeviceGetMigMode`, pending). Equals [`Self::mode`] but on
    /// cards that need a reset to switch.
    pub pending_mode: bool,
    /// Whether switching the mode needs a reset of the card: so on Ampere, not on what came later.
    pub mode_switch_needs_reset: bool,
    /// The kinds of GPU instances that the card offers, in any order.
    pub profiles: Vec<GpuInstanceProfile>,
    /// The GPU instances that exist and that this driver did not make for a claim, in any order: an administrator's, and
    /// those of a static layout. What is made on demand comes and goes with claims and is not among them.
    pub instances: Vec<GpuInstance>,
}

/// A kind of GPU instance that a card offers (`nvmlDeviceGetGpuInstanceProfileInfoV`), whatever its mode is now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuInstanceProfile {
    /// As NVIDIA writes it: `1g.10gb`, `1g.10gb+me`, `1g.24gb-me`.
    pub name: String,
    /// The id by which instances are made. Means other profiles on other boards.
    pub id: u32,
    /// Compute slices: the number before the `g`.
    pub compute_slices: u32,
    /// How many can exist side by side on an empty card.
    pub max_instances: u32,
    /// Memory of one, in bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow accelerators.
    pub ofa_engines: u32,
    /// Where one can lie (`nvmlDeviceGetGpuInstancePossiblePlacements_v2`), in any order.
    pub placements: Vec<Placement>,
}

/// Which slices an instance takes (`nvmlGpuInstancePlacement_t`, `nvmlComputeInstancePlacement_t`): memory slices of the
/// card for a GPU instance, compute slices of the GPU instance for a compute instance. Ordered by start, then size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Placement {
    /// The first slice, from 0.
    pub start: u32,
    /// How many slices.
    pub size: u32,
}

/// A GPU instance that exists (`nvmlGpuInstanceGetInfo`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuInstance {
    /// Id on its card; the driver chooses it.
    pub id: u32,
    /// [`GpuInstanceProfile::id`] of its profile.
    pub profile_id: u32,
    /// Which memory slices of the card it has.
    pub placement: Placement,
    /// The compute instances in it, in any order; none while it is being made or where someone left it so.
    pub compute_instances: Vec<ComputeInstance>,
}

/// A compute instance that exists (`nvmlComputeInstanceGetInfo_v2`): with its GPU instance, a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeInstance {
    /// Id within its GPU instance; the driver chooses it.
    pub id: u32,
    /// Which compute slices of the GPU instance it has.
    pub placement: Placement,
    /// Streaming multiprocessors of its profile (`nvmlGpuInstanceGetComputeInstanceProfileInfoV`); `None` where unknown.
    pub multiprocessors: Option<u32>,
    /// `MIG-…`, of the device handle (`nvmlDeviceGetUUID`); `None` where the driver shows no handle for it.
    pub uuid: Option<String>,
}

impl Mig {
    /// Memory slices that the card is divided into: as far as the placements of its profiles reach. 0 where the driver
    /// names no placement.
    #[must_use]
    pub fn memory_slices(&self) -> u32 {
        self.profiles
            .iter()
            .flat_map(|profile| &profile.placements)
            .map(|placement| placement.end())
            .max()
            .unwrap_or(0)
    }
}

impl Placement {
    /// The slice behind the last one.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.start.saturating_add(self.size)
    }

    /// Whether both take some slice.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}
