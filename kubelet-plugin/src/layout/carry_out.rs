use tessera_api::PciBusId;
use tessera_inventory::layout::PlannedInstance;
use tessera_nvml::{ComputeInstanceProfile, Nvml, NvmlError, Placement};

use super::decide::Work;
use super::look::address;

/// Number in NVML's enumeration of compute instances that get less than the slices they count
/// (`NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1`).
const ONE_SLICE_REV1: u32 = 7;

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
    let address = address(card);
    for instance in &work.destroy {
        let failed = |source| CarryOutError::Driver {
            what: format!("destroy GPU instance {} at {}", instance.id, instance.placement.start),
            source,
        };
        for compute in &instance.compute_instances {
            nvml.destroy_compute_instance(address, instance.id, compute.id).or_else(gone).map_err(failed)?;
        }
        nvml.destroy_gpu_instance(address, instance.id).or_else(gone).map_err(failed)?;
        tracing::info!(%card, gpu_instance = instance.id, start = instance.placement.start,
            "destroyed an instance of the last layout");
    }
    if let Some(on) = work.switch {
        let what = || format!("switch MIG mode {}", if on { "on" } else { "off" });
        let switched = nvml
            .set_mig_mode(address, on)
            .map_err(|source| CarryOutError::Driver { what: what(), source })?;
        if switched.mode.current != on {
            return match switched.not_active {
                None if switched.mode.pending == on => Ok(Outcome::NeedsReset { on }),
                None => Err(CarryOutError::ModeUnchanged { on }),
                Some(source) => {
                    // Else it would come with the next reset, whatever is wanted then.
                    let _ = nvml.set_mig_mode(address, !on);
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
    let address = address(card);
    let PlannedInstance { placement, profile_id, profile } = planned;
    let failed = |source| CarryOutError::Driver {
        what: format!("make a partition {profile} at {}", placement.start),
        source,
    };
    let wanted = Placement { start: placement.start, size: placement.size };
    let instance = nvml.create_gpu_instance(address, *profile_id, wanted).map_err(failed)?;
    let offered = nvml.compute_instance_profiles(address, instance.id).map_err(failed)?;
    let whole: Option<&ComputeInstanceProfile> = offered
        .iter()
        .filter(|offered| offered.max_instances > 0)
        .max_by_key(|offered| (offered.compute_slices, offered.enumerator != ONE_SLICE_REV1));
    let Some(whole) = whole else {
        return Err(CarryOutError::NoComputeInstance { profile: profile.clone() });
    };
    let compute = nvml.create_compute_instance(address, instance.id, whole.id).map_err(failed)?;
    tracing::info!(%card, profile, start = placement.start, gpu_instance = instance.id, uuid = compute.uuid,
        "made a partition of the layout");
    Ok(())
}

/// What is gone need not be destroyed.
fn gone(error: NvmlError) -> Result<(), NvmlError> {
    if error.is_not_found() { Ok(()) } else { Err(error) }
}
