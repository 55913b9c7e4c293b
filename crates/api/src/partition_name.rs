use std::fmt;

use crate::device_name::write_card;
use crate::{PciBusId, ProfileSpelling};

/// What the name of a MIG partition says: where it is, or shall be, and of which profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionName {
    /// The card that it is a part of.
    pub card: PciBusId,
    /// Its profile; with a width in front (`1c3g40gb`) for a compute instance that has not all of its GPU instance.
    pub profile: ProfileSpelling,
    /// First memory slice of its GPU instance, from 0.
    pub start: u32,
    /// The instances that it is, where an administrator made them: to be used as they are. `None` for a partition that
    /// is made when a claim needs it, and gone when none does.
    pub existing: Option<ExistingInstance>,
}

/// The instances behind a MIG device that exists, by the ids that the driver gave them
/// (`nvmlDeviceGetGpuInstanceId`, `nvmlDeviceGetComputeInstanceId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExistingInstance {
    /// Id of the GPU instance on its card.
    pub gpu_instance: u32,
    /// Id of the compute instance in its GPU instance.
    pub compute_instance: u32,
}

impl PartitionName {
    /// From the parts of a name behind `mig`. Whoever calls it sees to it that they are the one way to write it.
    pub(crate) fn from_parts(card: PciBusId, parts: &[&str]) -> Option<Self> {
        let (parts, existing) = match parts {
            [parts @ .., gpu, compute] if gpu.starts_with("gi") && compute.starts_with("ci") => {
                let gpu_instance = gpu.strip_prefix("gi")?.parse().ok()?;
                let compute_instance = compute.strip_prefix("ci")?.parse().ok()?;
                (parts, Some(ExistingInstance { gpu_instance, compute_instance }))
            }
            parts => (parts, None),
        };
        let (start, profile) = parts.split_last()?;
        Some(Self { card, profile: profile.join("-").parse().ok()?, start: start.parse().ok()?, existing })
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_card(formatter, self.card)?;
        write!(formatter, "-mig-{}-{}", self.profile, self.start)?;
        match self.existing {
            Some(ExistingInstance { gpu_instance, compute_instance }) => {
                write!(formatter, "-gi{gpu_instance}-ci{compute_instance}")
            }
            None => Ok(()),
        }
    }
}
