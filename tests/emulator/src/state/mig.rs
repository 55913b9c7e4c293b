//! Partitions of a card, as they are now.

use serde::{Deserialize, Serialize};

/// MIG mode and instances of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mig {
    /// Whether the mode is on.
    pub enabled: bool,
    /// The mode after the next reset.
    pub pending: bool,
    /// GPU instances, by id.
    pub instances: Vec<GpuInstance>,
    /// Number of the last instance made on this card. Handles name instances by this number, so the handle of a destroyed
    /// instance never means another with the same id.
    pub last_serial: u64,
}

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuInstance {
    /// Unique among all instances that ever existed on the card.
    pub serial: u64,
    /// Id on the card.
    pub id: u32,
    /// Id of its profile.
    pub profile: u32,
    /// First memory slice.
    pub start: u32,
    /// Memory slices.
    pub size: u32,
    /// Compute instances, by id.
    pub compute_instances: Vec<ComputeInstance>,
}

/// A compute instance: with its GPU instance, a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeInstance {
    /// Unique among all instances that ever existed on the card.
    pub serial: u64,
    /// Id within the GPU instance.
    pub id: u32,
    /// Id of its profile.
    pub profile: u32,
    /// First compute slice of the GPU instance.
    pub start: u32,
    /// Compute slices.
    pub size: u32,
}

impl Mig {
    /// MIG devices in NVML's order.
    pub fn devices(&self) -> impl Iterator<Item = (&GpuInstance, &ComputeInstance)> {
        self.instances.iter().flat_map(|gpu| gpu.compute_instances.iter().map(move |compute| (gpu, compute)))
    }

    /// A new serial number for an instance of this card.
    pub fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }
}
