/// MIG mode of a card that has it (`nvmlDeviceGetMigMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MigMode {
    /// On now.
    pub current: bool,
    /// On after the next reset. Equals `current` but on cards that need a reset to switch (Ampere).
    pub pending: bool,
}
