use crate::NvmlError;

/// MIG mode of a card that has it (`nvmlDeviceGetMigMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MigMode {
    /// On now.
    pub current: bool,
    /// On after the next reset. Equals `current` but on cards that need a reset to switch (Ampere).
    pub pending: bool,
}

/// What came of setting the MIG mode of a card (`nvmlDeviceSetMigMode`): the driver may take the order and still not have
/// switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigModeSwitch {
    /// The mode after the call, read back. `pending` differs from `current` where the card needs a reset.
    pub mode: MigMode,
    /// Why the mode is not active although the call was accepted (`activationStatus`): `IN_USE` while clients hold the
    /// card, for one. `None` where it is active, or waits for a reset.
    pub not_active: Option<NvmlError>,
}
