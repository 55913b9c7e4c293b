use super::functions::{Functions, Handle};
use super::telemetry::field;
use crate::error::NvmlError;
use crate::health::HealthReadings;
use tessera_api::health::Recovery;

/// Reads one card, each answer on its own.
pub(super) fn read(functions: &Functions, card: Handle) -> HealthReadings {
    let recovery = field(functions.recovery_action(card)).map(|number| number.map(Recovery::from_nvml));
    HealthReadings {
        uncorrected_errors: NvmlError::reading(functions.uncorrected_errors(card)),
        remapped_rows: NvmlError::reading(functions.remapped_rows(card)),
        retired_pages_pending: NvmlError::reading(functions.retired_pages_pending(card)),
        clocks_events: NvmlError::reading(functions.clocks_events(card)),
        fabric: NvmlError::reading(functions.fabric_health(card)).map(Option::flatten),
        recovery,
        energy_millijoules: NvmlError::reading(functions.energy(card)),
        persistence_mode: NvmlError::reading(functions.persistence_mode(card)),
    }
}
