//! MIG mode of a card: when the mode switches, and its effect on instances.

use crate::failure::Failure;
use crate::hardware::mig::MigModel;
use crate::state::mig::Mig;

/// Switches the mode; `used` is whether clients hold the card. Returns why the mode is not active although the call
/// was accepted (`activationStatus`); the mode then stays pending.
///
/// Cards that need a reset are as on a machine where the driver cannot reset them itself (a virtual machine with the card
/// passed through): the mode stays pending until a reset or a reboot. Instances hold the card as clients do.
pub fn set(model: &MigModel, mig: &mut Mig, on: bool, used: bool) -> Result<(), Failure> {
    mig.pending = on;
    if mig.enabled == on {
        return Ok(());
    }
    if used || !mig.instances.is_empty() {
        return Err(Failure::IN_USE);
    }
    if model.mode_needs_reset {
        return Err(Failure::RESET_REQUIRED);
    }
    mig.enabled = on;
    Ok(())
}

/// Effect of a card reset: instances are gone, and the pending mode takes effect.
pub fn reset(mig: &mut Mig) {
    mig.instances.clear();
    mig.enabled = mig.pending;
}

/// Effect of a reboot: as of a reset, and the mode survives only on cards with the mode in their InfoROM, which are those
/// needing a reset to switch the mode (NVIDIA's MIG User Guide, "Enable MIG Mode").
pub fn reboot(model: &MigModel, mig: &mut Mig) {
    if !model.mode_needs_reset {
        mig.pending = false;
    }
    reset(mig);
}
