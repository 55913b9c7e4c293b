use nvml_wrapper_sys::bindings as sys;

/// Reasons for a card's reduced clocks (`nvmlClocksEventReason*`), as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClocksEvents(pub u64);

impl ClocksEvents {
    /// All known reasons with their bits, by dcgm-exporter's names (`clock_event`).
    pub const KNOWN: [(&'static str, u64); 9] = [
        ("gpu_idle", sys::nvmlClocksEventReasonGpuIdle as u64),
        ("clocks_setting", sys::nvmlClocksEventReasonApplicationsClocksSetting as u64),
        ("power_cap", sys::nvmlClocksEventReasonSwPowerCap as u64),
        ("hw_slowdown", sys::nvmlClocksThrottleReasonHwSlowdown as u64),
        ("sync_boost", sys::nvmlClocksEventReasonSyncBoost as u64),
        ("sw_thermal", sys::nvmlClocksEventReasonSwThermalSlowdown as u64),
        ("hw_thermal", sys::nvmlClocksThrottleReasonHwThermalSlowdown as u64),
        ("hw_power_brake", sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown as u64),
        ("display_clocks", sys::nvmlClocksEventReasonDisplayClockSetting as u64),
    ];

    /// Whether the hardware keeps clocks at half or less because of heat (`nvmlClocksEventReasonHwThermalSlowdown`).
    #[must_use]
    pub const fn is_hot(self) -> bool {
        self.0 & sys::nvmlClocksThrottleReasonHwThermalSlowdown as u64 != 0
    }

    /// Whether the power supply keeps clocks at half or less (`nvmlClocksEventReasonHwPowerBrakeSlowdown`).
    #[must_use]
    pub const fn is_power_braked(self) -> bool {
        self.0 & sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown as u64 != 0
    }

    /// Each known reason, and whether the reason applies.
    pub fn each(self) -> impl Iterator<Item = (&'static str, bool)> {
        Self::KNOWN.into_iter().map(move |(name, bit)| (name, self.0 & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let applying: Vec<&str> =
            ClocksEvents(0x24).each().filter(|(_, applies)| *applies).map(|(name, _)| name).collect();
        assert_eq!(applying, ["power_cap", "sw_thermal"]);
        assert!(ClocksEvents(1 << 60).each().all(|(_, applies)| !applies));
    }
}
