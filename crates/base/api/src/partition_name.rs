use std::fmt;

use crate::card_name::CardName;
use crate::pci_bus_id::PciBusId;
use crate::profile_spelling::ProfileSpelling;

/// The name of an existing or possible MIG partition: its card, profile and placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionName {
    /// The card containing the partition.
    pub card: PciBusId,
    /// Its profile; with a width in front (`1c3g40gb`) for a compute instance with only part of its GPU instance.
    pub profile: ProfileSpelling,
    /// First memory slice of its GPU instance, from 0.
    pub start: u32,
    /// The existing instances created by an administrator, used unchanged. `None` for a partition
    /// created when a claim needs it and destroyed when none does.
    pub existing: Option<ExistingInstance>,
}

/// The instances behind an existing MIG device, by the ids given by the driver
/// (`nvmlDeviceGetGpuInstanceId`, `nvmlDeviceGetComputeInstanceId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExistingInstance {
    /// Id of the GPU instance on its card.
    pub gpu_instance: u32,
    /// Id of the compute instance in its GPU instance.
    pub compute_instance: u32,
}

impl PartitionName {
    /// From the parts of a name after `mig`. The caller checks that they are the canonical spelling.
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
        write!(formatter, "{}-mig-{}-{}", CardName(self.card), self.profile, self.start)?;
        match self.existing {
            Some(ExistingInstance { gpu_instance, compute_instance }) => {
                write!(formatter, "-gi{gpu_instance}-ci{compute_instance}")
            }
            None => Ok(()),
        }
    }
}
