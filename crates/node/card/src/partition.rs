use std::collections::BTreeSet;

use tessera_api::PciBusId;
use tessera_api::facts::Placement;
use tessera_nvml::{ComputeInstance, ComputeInstanceProfile, GpuInstance, Nvml, NvmlError};

/// Why a partition could not be made. Instances made before the error stay; the recorded intent leads to them.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The driver did not make the GPU instance.
    #[error(transparent)]
    GpuInstance(NvmlError),
    /// The driver did not list the possible compute instances, or did not make one.
    #[error(transparent)]
    ComputeInstance(NvmlError),
    /// The GPU instance has no compute instance of the requested width.
    #[error("the GPU instance offers no compute instance of that width; it offers {offered}")]
    NoComputeInstance {
        /// The possible widths, in compute slices.
        offered: String,
    },
}

/// Makes a GPU instance at a placement and one compute instance in it, of `compute_slices` or of all. Blocks for about
/// a second.
///
/// # Errors
/// [`MakeError`]
pub fn make_partition(
    nvml: &dyn Nvml,
    card: PciBusId,
    profile_id: u32,
    placement: Placement,
    compute_slices: Option<u32>,
) -> Result<(GpuInstance, ComputeInstance), MakeError> {
    let instance = nvml.create_gpu_instance(card, profile_id, placement).map_err(MakeError::GpuInstance)?;
    if instance.placement != placement || instance.profile_id != profile_id {
        // The instance could not be found again by its placement.
        let _ = nvml.destroy_gpu_instance(card, instance.id);
        return Err(MakeError::GpuInstance(NvmlError::Nonsense {
            function: "nvmlDeviceCreateGpuInstanceWithPlacement",
            value: format!("profile {} at {:?}", instance.profile_id, instance.placement),
        }));
    }
    let offered = nvml.compute_instance_profiles(card, instance.id).map_err(MakeError::ComputeInstance)?;
    let Some(profile) = ComputeInstanceProfile::of_width(&offered, compute_slices) else {
        let possible = offered.iter().filter(|profile| profile.max_instances > 0);
        let widths: BTreeSet<u32> = possible.map(|profile| profile.compute_slices).collect();
        let offered = widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(MakeError::NoComputeInstance { offered });
    };
    let compute =
        nvml.create_compute_instance(card, instance.id, profile.id).map_err(MakeError::ComputeInstance)?;
    Ok((instance, compute))
}

/// Destroys a GPU instance and the compute instances in it, as far as they still exist. Blocks for about a second.
///
/// # Errors
/// [`NvmlError`] where the driver refuses, for example while a program uses the instance.
pub fn destroy_partition(nvml: &dyn Nvml, card: PciBusId, instance: &GpuInstance) -> Result<(), NvmlError> {
    let gone = |error: NvmlError| if error.is_not_found() { Ok(()) } else { Err(error) };
    for compute in &instance.compute_instances {
        nvml.destroy_compute_instance(card, instance.id, compute.id).or_else(gone)?;
    }
    nvml.destroy_gpu_instance(card, instance.id).or_else(gone)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tessera_nvml::Identity;

    use super::*;

    /// The compute instance profiles of an A100 (NVIDIA/k8s-dra-driver-gpu#1480): two have seven slices. Records the
    /// last one made.
    #[derive(Default)]
    struct A100(Mutex<Option<u32>>);

    impl Nvml for A100 {
        fn identify(&self, _: PciBusId) -> Result<Identity, NvmlError> {
            Err(NvmlError::MissingFunction { function: "nvmlDeviceGetUUID" })
        }

        fn create_gpu_instance(
            &self,
            _: PciBusId,
            profile_id: u32,
            placement: Placement,
        ) -> Result<GpuInstance, NvmlError> {
            Ok(GpuInstance { id: 0, profile_id, placement, compute_instances: Vec::new() })
        }

        fn compute_instance_profiles(
            &self,
            _: PciBusId,
            _: u32,
        ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
            let profile = |(enumerator, id, compute_slices)| ComputeInstanceProfile {
                enumerator,
                id,
                compute_slices,
                multiprocessors: 98,
                max_instances: 1,
            };
            Ok([(0, 0, 1), (4, 4, 7), (8, 8, 7)].map(profile).to_vec())
        }

        fn create_compute_instance(
            &self,
            _: PciBusId,
            _: u32,
            profile_id: u32,
        ) -> Result<ComputeInstance, NvmlError> {
            *self.0.lock().unwrap() = Some(profile_id);
            let placement = Placement { start: 0, size: 7 };
            Ok(ComputeInstance { id: 0, profile_id, placement, multiprocessors: None, uuid: None })
        }
    }

    #[test]
    fn of_two_profiles_of_all_slices_the_full_one_is_taken() {
        let card = A100::default();
        let placement = Placement { start: 0, size: 8 };
        make_partition(&card, "0000:3b:00.0".parse().unwrap(), 0, placement, None).unwrap();
        assert_eq!(*card.0.lock().unwrap(), Some(4));
    }
}
