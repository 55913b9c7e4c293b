use tessera_api::facts::{GpuInstance, GpuInstanceProfile};

/// What MIG can make, and has made, of a card that has it. All as the driver says: sizes differ by board and by driver
/// version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mig {
    /// Whether MIG mode is on now (`nvmlDeviceGetMigMode`, current).
    pub mode: bool,
    /// Whether MIG mode will be on after the next reset (`nvmlDeviceGetMigMode`, pending). Equals [`Self::mode`] but on
    /// cards that need a reset to switch.
    pub pending_mode: bool,
    /// Whether switching the mode needs a reset of the card: so on Ampere, not on what came later.
    pub mode_switch_needs_reset: bool,
    /// The kinds of GPU instances that the card offers, in any order.
    pub profiles: Vec<GpuInstanceProfile>,
    /// The GPU instances that exist and that this driver did not make for a claim, in any order: an administrator's, and
    /// those of a static layout. What is made on demand comes and goes with claims and is not among them.
    pub instances: Vec<GpuInstance>,
}

impl Mig {
    /// Memory slices that the card is divided into: as far as the placements of its profiles reach. 0 where the driver
    /// names no placement.
    #[must_use]
    pub fn memory_slices(&self) -> u32 {
        self.profiles
            .iter()
            .flat_map(|profile| &profile.placements)
            .map(|placement| placement.end())
            .max()
            .unwrap_or(0)
    }
}
