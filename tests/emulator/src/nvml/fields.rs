//! `nvmlDeviceGetFieldValues`: many readings in one call, each with its own outcome.

use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlValue_t};

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use super::{nvlink, power};
use crate::failure::Failure;
use crate::machine::Remote;
use crate::state::meter;

/// `nvmlValueType_t`
mod value_type {
    pub const UNSIGNED_INT: u32 = 1;
    pub const UNSIGNED_LONG_LONG: u32 = 3;
}

/// A reading.
enum Reading {
    Unsigned(u32),
    Long(u64),
}

/// Supported field ids of `nvml.h`. Every other one is not supported, as on a card without the value.
fn read(view: &CardView<'_>, field: u32, scope: u32) -> Result<Reading, Failure> {
    use Reading::{Long, Unsigned};
    let board = &view.card.board;
    let known = |value: Option<u32>| value.map(Unsigned).ok_or(Failure::NOT_SUPPORTED);
    let has_links = || if view.card.links.is_empty() { Err(Failure::NOT_SUPPORTED) } else { Ok(()) };
    match field {
        // NVML_FI_DEV_ECC_CURRENT, NVML_FI_DEV_ECC_PENDING
        1 | 2 => known(board.ecc_enabled.map(Into::into)),
        // NVML_FI_DEV_MEMORY_TEMP
        82 => known(board.memory_temperature_celsius),
        // NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
        83 => Ok(Long(power::energy(view)?)),
        // NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 to L5, and L6 to L11
        84..=89 => Ok(Unsigned(nvlink::speed(view, field - 84)?)),
        132..=137 => Ok(Unsigned(nvlink::speed(view, field - 132 + 6)?)),
        // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
        90 => {
            has_links()?;
            let first_up = (0..view.card.links.len() as u32).find(|number| nvlink::up(view, *number));
            Ok(Unsigned(nvlink::speed(view, first_up.ok_or(Failure::NOT_SUPPORTED)?)?))
        }
        // NVML_FI_DEV_NVLINK_LINK_COUNT
        91 => {
            has_links()?;
            Ok(Unsigned(view.card.links.len() as u32))
        }
        // NVML_FI_DEV_PCIE_REPLAY_COUNTER, NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER
        94 | 95 => Ok(Unsigned(0)),
        // NVML_FI_DEV_REMAPPED_COR, _UNC, _PENDING, _FAILURE
        142 | 143 => known(board.remapped_row_banks.map(|_| 0)),
        144 => known(board.remapped_row_banks.map(|_| view.state.health.row_remap_pending.into())),
        145 => known(board.remapped_row_banks.map(|_| view.state.health.row_remap_failed.into())),
        // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX: the scope is the link, or all of them
        138 | 139 => Ok(Long(nvlink::kibibytes(view, scope)?)),
        // NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT
        147 => {
            has_links()?;
            let switched =
                view.card.links.iter().filter(|link| matches!(link.remote, Some(Remote::Switch { .. })));
            Ok(Unsigned(switched.count() as u32))
        }
        // NVML_FI_DEV_NVLINK_GET_SPEED, _STATE, _VERSION: the scope is the link
        164 => Ok(Unsigned(nvlink::speed(view, scope)?)),
        165 => {
            nvlink::exists(view, scope)?;
            Ok(Unsigned(nvlink::up(view, scope).into()))
        }
        166 => {
            nvlink::exists(view, scope)?;
            Ok(Unsigned(nvlink::link_version(view)?))
        }
        // NVML_FI_DEV_POWER_AVERAGE, _INSTANT
        185 | 186 => Ok(Unsigned(power::usage(view)?)),
        // NVML_FI_DEV_POWER_MIN_LIMIT, _MAX_LIMIT, _DEFAULT_LIMIT
        187 => known(board.power_limit_min_milliwatts),
        188 => known(board.power_limit_max_milliwatts),
        189 => known(board.power_limit_default_milliwatts),
        // NVML_FI_DEV_POWER_CURRENT_LIMIT, _REQUESTED_LIMIT
        190 | 192 => Ok(Unsigned(power::limit(view)?)),
        // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        230 => Ok(Unsigned(view.state.health.recovery_action)),
        _ => Err(Failure::NOT_SUPPORTED),
    }
}

/// The field's name in faults, for fields with one.
fn part(field: u32) -> Option<&'static str> {
    Some(match field {
        82 => "NVML_FI_DEV_MEMORY_TEMP",
        83 => "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        138 => "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        139 => "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        230 => "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
        _ => return None,
    })
}

nvml_functions! {
    /// `nvmlDeviceGetFieldValues`
    fn nvmlDeviceGetFieldValues(view: CardView, count: i32, values: Out<nvmlFieldValue_t>) {
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Failure::INVALID_ARGUMENT)?;
        for position in 0..count {
            let value = values.at(position)?;
            let asked = value.get()?;
            // The whole union is written; in little-endian order the shorter integer is its beginning.
            let answer = match part(asked.fieldId) {
                Some(part) => view.part(part).and_then(|()| read(&view, asked.fieldId, asked.scopeId)),
                None => read(&view, asked.fieldId, asked.scopeId),
            };
            let (kind, outcome, reading) = match answer {
                Ok(Reading::Unsigned(reading)) => (value_type::UNSIGNED_INT, 0, nvmlValue_t { ullVal: reading.into() }),
                Ok(Reading::Long(reading)) => (value_type::UNSIGNED_LONG_LONG, 0, nvmlValue_t { ullVal: reading }),
                Err(Failure(code)) => (value_type::UNSIGNED_INT, code, nvmlValue_t { ullVal: 0 }),
            };
            value.set(nvmlFieldValue_t {
                timestamp: meter::now() as i64,
                latencyUsec: 0,
                valueType: kind,
                nvmlReturn: outcome,
                value: reading,
                ..asked
            })?;
        }
        Ok(())
    }
}
