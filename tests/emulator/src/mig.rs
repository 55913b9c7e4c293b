//! The rules of partitions: possible instances, their ids, and their destruction. No input or output; the
//! functions of NVML call this under the state's lock.

pub mod compute;
pub mod gpu;
pub mod mode;

use crate::machine::{Card, identity};
use crate::state::mig::{ComputeInstance, GpuInstance};

/// UUID of a MIG device. The driver derives it from the card's identity, the GPU instance's id and the first engine of the
/// compute instance (`nvGenerateSmcUuid` of the open kernel modules): an instance made anew at the same place gets the
/// same UUID again, whatever its profile.
pub fn uuid(card: &Card, gpu: &GpuInstance, compute: &ComputeInstance) -> String {
    let plain = identity::uuid(&["mig", &card.uuid, &gpu.id.to_string(), &compute.start.to_string()]);
    // In captures these UUIDs, unlike those of cards, have the bits of a version 5 UUID.
    format!("MIG-{}5{}8{}", &plain[..14], &plain[15..19], &plain[20..])
}
