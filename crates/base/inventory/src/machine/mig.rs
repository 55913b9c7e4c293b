use tessera_api::facts::{GpuInstance, GpuInstanceProfile};

/// The MIG profiles and instances of a card. All sizes are the driver's: they differ by board and by driver version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mig {
    /// Whether MIG mode is on now (`nvmlDeviceGetMigMode`, current).
    pub mode: bool,
    /// Whether switching the mode needs a reset of the card: on Ampere yes, on later generations not.
    pub mode_switch_needs_reset: bool,
    /// The kinds of GPU instances offered by the card, in any order.
    pub profiles: Vec<GpuInstanceProfile>,
    /// The existing GPU instances not created for a claim by this driver, in any order: an
    /// administrator's, and those of a static layout.
    pub instances: Vec<GpuInstance>,
}

impl Mig {
    /// Number of memory slices of the card: the end of its profiles' last placement. 0 if the driver names no
    /// placement.
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
