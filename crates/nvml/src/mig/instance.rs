use super::Placement;

/// A GPU instance that exists (`nvmlGpuInstanceGetInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInstance {
    /// Id on its card; the driver chooses it.
    pub id: u32,
    /// [`GpuInstanceProfile::id`](super::GpuInstanceProfile::id) of its profile.
    pub profile_id: u32,
    /// Where it lies.
    pub placement: Placement,
    /// The compute instances in it, by id; none while it is being made or where someone left it so.
    pub compute_instances: Vec<ComputeInstance>,
}

/// A compute instance that exists (`nvmlComputeInstanceGetInfo_v2`): with its GPU instance, a MIG device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeInstance {
    /// Id within its GPU instance; the driver chooses it.
    pub id: u32,
    /// [`ComputeInstanceProfile::id`](super::ComputeInstanceProfile::id) of its profile.
    pub profile_id: u32,
    /// Which compute slices of the GPU instance it has.
    pub placement: Placement,
    /// `MIG-…`, of the device handle (`nvmlDeviceGetUUID`); `None` where the driver shows no handle for it.
    pub uuid: Option<String>,
}
