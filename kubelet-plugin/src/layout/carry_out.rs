//! Carries out the decided work on a card.

use tessera_api::PciBusId;
use tessera_card::{MakeError, Pending, Switched, destroy_partition, make_partition, switch_mig_mode};
use tessera_inventory::layout::PlannedInstance;
use tessera_nvml::{Nvml, NvmlError};

use super::decide::Work;

/// Result of the work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is done.
    Done,
    /// The mode changes with the card's next reset. Instances depending on the mode are not made yet.
    NeedsReset {
        /// The mode to come.
        on: bool,
    },
}

/// Why the work was broken off. Finished steps stay: the journal's intent has the instances to look for.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarryOutError {
    /// The driver refused.
    #[error("cannot {what}")]
    Driver {
        /// The failed step.
        what: String,
        /// The driver's error.
        source: NvmlError,
    },
    /// The driver accepted the order, but the mode did not switch.
    #[error("MIG mode does not switch {}: a program still has the card open", if *on { "on" } else { "off" })]
    ModeUnchanged {
        /// The ordered mode.
        on: bool,
    },
    /// A GPU instance has no compute instance profile with all its slices.
    #[error("a GPU instance {profile} offers no compute instance of all its slices")]
    NoComputeInstance {
        /// Its profile.
        profile: String,
    },
}

/// Does the work, step by step. Blocks, about a second per step.
pub(super) fn carry_out(nvml: &dyn Nvml, card: PciBusId, work: &Work) -> Result<Outcome, CarryOutError> {
    for instance in &work.destroy {
        destroy_partition(nvml, card, instance).map_err(|source| CarryOutError::Driver {
            what: format!("destroy GPU instance {} at {}", instance.id, instance.placement.start),
            source,
        })?;
        tracing::info!(%card, gpu_instance = instance.id, start = instance.placement.start,
            "destroyed an instance of the last layout");
    }
    if let Some(on) = work.switch {
        let switched =
            switch_mig_mode(nvml, card, on, Pending::Keep).map_err(|source| CarryOutError::Driver {
                what: format!("switch MIG mode {}", if on { "on" } else { "off" }),
                source,
            })?;
        match switched {
            Switched::Now => {}
            Switched::WithReset => return Ok(Outcome::NeedsReset { on }),
            Switched::Not => return Err(CarryOutError::ModeUnchanged { on }),
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
    let made = make_partition(nvml, card, *profile_id, *placement, None);
    let (instance, compute) = made.map_err(|error| match error {
        MakeError::NoComputeInstance { .. } => CarryOutError::NoComputeInstance { profile: profile.clone() },
        MakeError::GpuInstance(source) | MakeError::ComputeInstance(source) => CarryOutError::Driver {
            what: format!("make a partition {profile} at {}", placement.start),
            source,
        },
    })?;
    tracing::info!(%card, profile, start = placement.start, gpu_instance = instance.id, uuid = compute.uuid,
        "made a partition of the layout");
    Ok(())
}
