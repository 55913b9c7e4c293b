use tessera_api::PciBusId;
use tessera_nvml::{Architecture, Nvml, NvmlError};

/// How to treat a switch postponed by the driver to the card's next reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Leave it pending: the mode changes with the reset.
    Keep,
    /// Take the switch back: the mode is wanted now or not at all.
    TakeBack,
}

/// Result of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// The card is in the new mode.
    Now,
    /// The driver postponed the switch to the next reset. With [`Pending::TakeBack`], the switch was taken back.
    WithReset,
    /// The driver accepted the switch, but the mode is neither active nor pending.
    Not,
}

/// Whether a card switches its MIG mode without a reset: from Hopper on. `false` for an unknown architecture.
///
/// # Errors
/// [`NvmlError`] where the card does not answer.
pub fn switches_at_once(nvml: &dyn Nvml, card: PciBusId) -> Result<bool, NvmlError> {
    let architecture = nvml.card(card)?.architecture?;
    Ok(architecture.is_some_and(|architecture| architecture >= Architecture::HOPPER))
}

/// Switches a card's MIG mode and checks the result (`nvmlDeviceSetMigMode`). Blocks for about a second.
///
/// # Errors
/// [`NvmlError`] where the driver refuses, or says why the mode is not active. No switch stays pending then.
pub fn switch_mig_mode(
    nvml: &dyn Nvml,
    card: PciBusId,
    on: bool,
    pending: Pending,
) -> Result<Switched, NvmlError> {
    let switch = nvml.set_mig_mode(card, on)?;
    if switch.mode.current == on {
        return Ok(Switched::Now);
    }
    let is_ordered = switch.mode.pending == on;
    if is_ordered && (pending == Pending::TakeBack || switch.not_active.is_some()) {
        // Otherwise the switch would come with the next reset, whatever mode is wanted then.
        let _ = nvml.set_mig_mode(card, !on);
    }
    match switch.not_active {
        Some(error) => Err(error),
        None => Ok(if is_ordered { Switched::WithReset } else { Switched::Not }),
    }
}
