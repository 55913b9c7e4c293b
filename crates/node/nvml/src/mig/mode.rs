use crate::error::NvmlError;

/// MIG mode of a card with MIG (`nvmlDeviceGetMigMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MigMode {
    /// On now.
    pub current: bool,
    /// On after the next reset. Differs from `current` only on cards that need a reset to switch (Ampere).
    pub pending: bool,
}

/// The result of setting a card's MIG mode (`nvmlDeviceSetMigMode`): the driver may accept the call and still not
/// switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigModeSwitch {
    /// The mode after the call, read back. `pending` differs from `current` if the card needs a reset.
    pub mode: MigMode,
    /// The reason for an inactive mode although the call was accepted (`activationStatus`), for example `IN_USE` while
    /// clients hold the card. `None` if the mode is active, or waits for a reset.
    pub not_active: Option<NvmlError>,
}
