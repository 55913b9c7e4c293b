//! The driver's report on a card's health, beside its events.

use nvml_wrapper_sys::bindings as sys;
use tessera_api::health::Recovery;

use crate::clocks_event::ClocksEvents;
use crate::error::Reading;

/// The driver's answer to each question about a card's health: a failed query costs this answer and no other. `None`
/// if the card or the driver does not have the thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReadings {
    /// Memory errors without correction, since the driver was loaded or the card was reset
    /// (`nvmlDeviceGetTotalEccErrors`, uncorrected, volatile).
    pub uncorrected_errors: Reading<u64>,
    /// Rows of memory to be remapped (`nvmlDeviceGetRemappedRows`), from Ampere on.
    pub remapped_rows: Reading<RemappedRows>,
    /// Whether pages of memory wait to be retired (`nvmlDeviceGetRetiredPagesPendingStatus`), before Ampere.
    pub retired_pages_pending: Reading<bool>,
    /// Reasons for reduced clocks (`nvmlDeviceGetCurrentClocksEventReasons`).
    pub clocks_events: Reading<ClocksEvents>,
    /// The NVLink fabric's own health report (`nvmlDeviceGetGpuFabricInfoV`, `healthMask`), from Hopper on.
    pub fabric: Reading<FabricHealth>,
    /// The driver's recommendation (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`), from driver 570 on.
    pub recovery: Reading<Recovery>,
    /// Energy since the driver was loaded, mJ (`nvmlDeviceGetTotalEnergyConsumption`), from Volta on. Restarts at zero when the
    /// driver sets up the card, as after a reset.
    pub energy_millijoules: Reading<u64>,
    /// Whether the driver keeps the card set up while no program has it open (`nvmlDeviceGetPersistenceMode`).
    pub persistence_mode: Reading<bool>,
}

/// State of the row remapper of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemappedRows {
    /// Rows are remapped at the next reset.
    pub pending: bool,
    /// A row could not be remapped.
    pub failed: bool,
}

/// The bits of `nvmlGpuFabricInfo_v2_t.healthMask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricHealth(pub u32);

impl FabricHealth {
    /// Whether the fabric reports less bandwidth, routes in recovery or unhealthy, timeouts, or a wrong configuration.
    /// States not watched by the fabric don't count.
    #[must_use]
    pub fn is_faulty(self) -> bool {
        let of_two_bits = [
            sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
            sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
            sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
            sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
        ];
        let is_true = |shift| {
            (self.0 >> shift) & sys::NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW
                == sys::NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE
        };
        let configuration = (self.0 >> sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION)
            & sys::NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION;
        of_two_bits.into_iter().any(is_true)
            || configuration > sys::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fabric_is_faulty_where_it_says_so() {
        assert!(!FabricHealth(0).is_faulty(), "nothing is watched");
        assert!(!FabricHealth(0b1_10_10_10_10).is_faulty(), "all is well");
        for faulty in [0b01, 0b01_00, 0b01_00_00, 0b01_00_00_00, 0b10 << 8, 0b101 << 8] {
            assert!(FabricHealth(faulty).is_faulty(), "{faulty:b}");
        }
    }
}
