use tessera_api::PciBusId;
use tessera_inventory::layout::PlannedInstance;
use tessera_nvml::{ComputeInstanceProfile, Nvml, NvmlError};

use super::decide::Work;

/// How carrying out ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is done.
    Done,
    /// The mode comes with the card's next reset; what is to be made then is not made yet.
    NeedsReset {
        /// The mode to come.
        on: bool,
    },
}

/// Why work broke off. What was done stays: the journal's intent says what to look for.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarryOutError {
    /// The driver refused.
    #[error("cannot {what}")]
    Driver {
        /// What was being done.
        what: String,
        /// What the driver said.
        source: NvmlError,
    },
    /// The driver took the order and the mode did not switch.
    #[error("MIG mode does not switch {}: a program still has the card open", if *on { "on" } else { "off" })]
    ModeUnchanged {
        /// The mode that was ordered.
        on: bool,
    },
    /// A GPU instance offers no compute instance of all its slices.
    #[error("a GPU instance {profile} offers no compute instance of all its slices")]
    NoComputeInstance {
        /// Its profile.
        profile: String,
    },
}

/// Does the work, one step after the other. Blocks, for about a second a step.
pub(super) fn carry_out(nvml: &dyn Nvml, card: PciBusId, work: &Work) -> Result<Outcome, CarryOutError> {
    for instance in &work.destroy {
        let failed = |source| CarryOutError::Driver {
            what: format!("destroy GPU instance {} at {}", instance.id, instance.placement.start),
            source,
        };
        for compute in &instance.compute_instances {
            nvml.destroy_compute_instance(card, instance.id, compute.id).or_else(gone).map_err(failed)?;
        }
        nvml.destroy_gpu_instance(card, instance.id).or_else(gone).map_err(failed)?;
        tracing::info!(%card, gpu_instance = instance.id, start = instance.placement.start,
            "destroyed an instance of the last layout");
    }
    if let Some(on) = work.switch {
        let what = || format!("switch MIG mode {}", if on { "on" } else { "off" });
        let switched =
            nvml.set_mig_mode(card, on).map_err(|source| CarryOutError::Driver { what: what(), source })?;
        if switched.mode.current != on {
            return match switched.not_active {
                None if switched.mode.pending == on => Ok(Outcome::NeedsReset { on }),
                None => Err(CarryOutError::ModeUnchanged { on }),
                Some(source) => {
                    // Else it would come with the next reset, whatever is wanted then.
                    let _ = nvml.set_mig_mode(card, !on);
                    Err(CarryOutError::Driver { what: what(), source })
                }
            };
        }
        tracing::info!(%card, on, "switched MIG mode for the layout");
    }
    for planned in &work.create {
        create(nvml, card, planned)?;
    }
    Ok(Outcome::Done)
}

fn create(nvml: &dyn Nvml, card: PciBusId, planned: &PlannedInstance) -> Result<(), CarryOutError> {
    let PlannedInstance { placement, profile_id, profile } = planned;
    let failed = |source| CarryOutError::Driver {
        what: format!("make a partition {profile} at {}", placement.start),
        source,
    };
    let instance = nvml.create_gpu_instance(card, *profile_id, *placement).map_err(failed)?;
    let offered = nvml.compute_instance_profiles(card, instance.id).map_err(failed)?;
    let Some(whole) = ComputeInstanceProfile::of_width(&offered, None) else {
        return Err(CarryOutError::NoComputeInstance { profile: profile.clone() });
    };
    let compute = nvml.create_compute_instance(card, instance.id, whole.id).map_err(failed)?;
    tracing::info!(%card, profile, start = placement.start, gpu_instance = instance.id, uuid = compute.uuid,
        "made a partition of the layout");
    Ok(())
}

/// What is gone need not be destroyed.
fn gone(error: NvmlError) -> Result<(), NvmlError> {
    if error.is_not_found() { Ok(()) } else { Err(error) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use tessera_nvml::{ComputeInstance, GpuInstance, Identity, Placement};

    use super::*;

    /// An A100 by its compute instance profiles (NVIDIA/k8s-dra-driver-gpu#1480): two count seven slices. Remembers which
    /// was made last.
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
    fn of_two_profiles_of_all_slices_a_layout_takes_the_same_as_a_claim() {
        let card = A100::default();
        let placement = Placement { start: 0, size: 8 };
        let planned = PlannedInstance { placement, profile_id: 0, profile: "7g.40gb".into() };
        create(&card, "0000:3b:00.0".parse().unwrap(), &planned).unwrap();
        assert_eq!(*card.0.lock().unwrap(), Some(4));
    }
}
