//! Compute instances.

use crate::failure::Failure;
use crate::hardware::mig::{GpuInstanceProfile, MigModel};
use crate::state::mig::{ComputeInstance, GpuInstance, Mig};

/// A kind of compute instance offered by a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeProfile {
    /// `NVML_COMPUTE_INSTANCE_PROFILE_*`; its id is the same number in captures.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// Possible first compute slices of an instance, within the GPU instance.
    pub starts: &'static [u32],
    /// Streaming multiprocessors, where known.
    pub multiprocessors: Option<u32>,
}

/// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT`
pub const PROFILES: u32 = 9;
/// `NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`
const ONE_SLICE_REVISION_1: u32 = 7;

/// Profiles of a GPU instance with so many compute slices, as (profile, slices, starts): `nvidia-smi mig -lcip` and `-lcipp` of
/// A100 and H100 cards in NVIDIA's MIG User Guide. 3c is not offered inside 4g; 5c and 6c do not exist.
fn offers(slices: u32) -> &'static [(u32, u32, &'static [u32])] {
    match slices {
        1 => &[(0, 1, &[0])],
        2 => &[(0, 1, &[0, 1]), (1, 2, &[0])],
        3 => &[(0, 1, &[0, 1, 2]), (1, 2, &[0]), (2, 3, &[0])],
        4 => &[(0, 1, &[0, 1, 2, 3]), (1, 2, &[0, 2]), (3, 4, &[0])],
        7 => {
            &[(0, 1, &[0, 1, 2, 3, 4, 5, 6]), (1, 2, &[0, 2, 4]), (2, 3, &[0, 4]), (3, 4, &[0]), (4, 7, &[0])]
        }
        _ => &[],
    }
}

/// Compute profiles of a GPU instance with this profile, by id.
pub fn profiles(model: &MigModel, gpu: &GpuInstanceProfile) -> Vec<ComputeProfile> {
    // A slice of a wider instance has as many multiprocessors as the narrowest instance. The full width has all of
    // them, so more.
    let of_a_slice = model.profiles.iter().find(|profile| profile.enumerator == 0);
    let multiprocessors = |slices: u32| {
        if slices == gpu.compute_slices {
            return gpu.multiprocessors;
        }
        of_a_slice.and_then(|profile| profile.multiprocessors).map(|of_a_slice| of_a_slice * slices)
    };
    let mut profiles: Vec<ComputeProfile> = offers(gpu.compute_slices)
        .iter()
        .map(|(id, slices, starts)| ComputeProfile {
            id: *id,
            slices: *slices,
            starts,
            multiprocessors: multiprocessors(*slices),
        })
        .collect();
    // Seen on A100- and H100-class cards, not on an A30.
    if model.memory_slices == 8
        && let Some(narrowest) = profiles.first().filter(|profile| profile.slices == 1)
    {
        profiles.push(ComputeProfile { id: ONE_SLICE_REVISION_1, ..narrowest.clone() });
    }
    profiles
}

fn free(gpu: &GpuInstance, start: u32, slices: u32) -> bool {
    gpu.compute_instances
        .iter()
        .all(|other| start + slices <= other.start || other.start + other.size <= start)
}

/// Number of further instances possible with a profile.
pub fn remaining(gpu: &GpuInstance, profile: &ComputeProfile) -> u32 {
    profile.starts.iter().filter(|start| free(gpu, **start, profile.slices)).count() as u32
}

/// Makes an instance in the GPU instance with the serial number `gpu`, at `placement` or the first free place. Returns its
/// serial number.
///
/// # Errors
/// `INVALID_ARGUMENT` where the GPU instance is gone, `NOT_SUPPORTED` for a profile not offered by it, `INVALID_ARGUMENT` for a
/// placement unknown to the profile, `INSUFFICIENT_RESOURCES` where slices are taken.
pub fn create(
    model: &MigModel,
    mig: &mut Mig,
    gpu: u64,
    profile: u32,
    placement: Option<(u32, u32)>,
) -> Result<u64, Failure> {
    let place =
        mig.instances.iter().position(|instance| instance.serial == gpu).ok_or(Failure::INVALID_ARGUMENT)?;
    let instance = &mig.instances[place];
    let of_gpu = model.profile(instance.profile).ok_or(Failure::UNKNOWN)?;
    let offered = profiles(model, of_gpu);
    let profile = offered.iter().find(|offered| offered.id == profile).ok_or(Failure::NOT_SUPPORTED)?;
    let start = match placement {
        Some((start, size)) => {
            if size != profile.slices || !profile.starts.contains(&start) {
                return Err(Failure::INVALID_ARGUMENT);
            }
            Some(start).filter(|start| free(instance, *start, profile.slices))
        }
        None => profile.starts.iter().copied().find(|start| free(instance, *start, profile.slices)),
    };
    let start = start.ok_or(Failure::INSUFFICIENT_RESOURCES)?;
    let taken = |id: &u32| instance.compute_instances.iter().any(|other| other.id == *id);
    let id = (0..).find(|id| !taken(id)).ok_or(Failure::INSUFFICIENT_RESOURCES)?;
    let serial = mig.next_serial();
    let made = ComputeInstance { serial, id, profile: profile.id, start, size: profile.slices };
    let instances = &mut mig.instances[place].compute_instances;
    let place = instances.partition_point(|other| other.id < id);
    instances.insert(place, made);
    Ok(serial)
}

/// Destroys an instance. `used` is whether processes run on it.
///
/// # Errors
/// `IN_USE` while processes run on it, `INVALID_ARGUMENT` if the instance is gone.
pub fn destroy(
    mig: &mut Mig,
    serial: u64,
    used: impl Fn(&GpuInstance, &ComputeInstance) -> bool,
) -> Result<(), Failure> {
    for gpu in &mut mig.instances {
        if let Some(place) = gpu.compute_instances.iter().position(|compute| compute.serial == serial) {
            if used(gpu, &gpu.compute_instances[place]) {
                return Err(Failure::IN_USE);
            }
            gpu.compute_instances.remove(place);
            return Ok(());
        }
    }
    Err(Failure::INVALID_ARGUMENT)
}

/// The name of a MIG device after its card's name: `1g.10gb`, or `1c.3g.40gb` if it has not all slices.
pub fn name(gpu: &GpuInstanceProfile, slices: u32) -> String {
    let width = if slices == gpu.compute_slices { String::new() } else { format!("{slices}c.") };
    format!("{width}{}", gpu.name)
}
