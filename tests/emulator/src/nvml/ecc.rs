//! Error correction and bad memory. Errors of emulated memory are ordered by a tester.

use nvml_wrapper_sys::bindings::nvmlRowRemapperHistogramValues_t;

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use crate::failure::Failure;
use crate::hardware::board::Architecture;

/// `NVML_MEMORY_ERROR_TYPE_UNCORRECTED`
const UNCORRECTED: u32 = 1;
/// `NVML_MEMORY_LOCATION_DEVICE_MEMORY`
const DEVICE_MEMORY: u32 = 2;

fn ecc(view: &CardView<'_>) -> Result<u32, Failure> {
    Ok(view.card.board.ecc_enabled.ok_or(Failure::NOT_SUPPORTED)?.into())
}

/// Boards before Ampere retire pages; later ones remap rows.
fn retires_pages(view: &CardView<'_>) -> Result<(), Failure> {
    ecc(view)?;
    if view.card.board.architecture < Architecture::Ampere { Ok(()) } else { Err(Failure::NOT_SUPPORTED) }
}

fn row_banks(view: &CardView<'_>) -> Result<u32, Failure> {
    view.card.board.remapped_row_banks.ok_or(Failure::NOT_SUPPORTED)
}

fn no_retired_pages(view: &CardView<'_>, cause: u32, count: Out<u32>) -> Result<(), Failure> {
    retires_pages(view)?;
    if cause > 1 {
        return Err(Failure::INVALID_ARGUMENT);
    }
    count.set(0)
}

nvml_functions! {
    /// `nvmlDeviceGetEccMode`
    fn nvmlDeviceGetEccMode(view: CardView, current: Out<u32>, pending: Out<u32>) {
        let mode = ecc(&view)?;
        if pending.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        current.set(mode)?;
        pending.set(mode)
    }

    /// `nvmlDeviceGetDefaultEccMode`
    fn nvmlDeviceGetDefaultEccMode(view: CardView, mode: Out<u32>) {
        mode.set(ecc(&view)?)
    }

    /// `nvmlDeviceGetTotalEccErrors`
    fn nvmlDeviceGetTotalEccErrors(view: CardView, error: u32, counter: u32, count: Out<u64>) {
        if ecc(&view)? == 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        if error > 1 || counter > 1 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        count.set(if error == UNCORRECTED { view.state.health.uncorrected_errors } else { 0 })
    }

    /// `nvmlDeviceGetMemoryErrorCounter`
    fn nvmlDeviceGetMemoryErrorCounter(view: CardView, error: u32, counter: u32, location: u32, count: Out<u64>) {
        if ecc(&view)? == 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        if error > 1 || counter > 1 || location > 8 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let is_told = error == UNCORRECTED && location == DEVICE_MEMORY;
        count.set(if is_told { view.state.health.uncorrected_errors } else { 0 })
    }

    /// `nvmlDeviceGetRetiredPages`
    fn nvmlDeviceGetRetiredPages(view: CardView, cause: u32, count: Out<u32>, _addresses: Out<u64>) {
        no_retired_pages(&view, cause, count)
    }

    /// `nvmlDeviceGetRetiredPages_v2`
    fn nvmlDeviceGetRetiredPages_v2(
        view: CardView,
        cause: u32,
        count: Out<u32>,
        _addresses: Out<u64>,
        _times: Out<u64>,
    ) {
        no_retired_pages(&view, cause, count)
    }

    /// `nvmlDeviceGetRetiredPagesPendingStatus`
    fn nvmlDeviceGetRetiredPagesPendingStatus(view: CardView, pending: Out<u32>) {
        retires_pages(&view)?;
        pending.set(view.state.health.retired_pages_pending.into())
    }

    /// `nvmlDeviceGetRemappedRows`
    fn nvmlDeviceGetRemappedRows(
        view: CardView,
        corrected: Out<u32>,
        uncorrected: Out<u32>,
        pending: Out<u32>,
        failed: Out<u32>,
    ) {
        row_banks(&view)?;
        for value in [corrected, uncorrected] {
            value.set(0)?;
        }
        pending.set(view.state.health.row_remap_pending.into())?;
        failed.set(view.state.health.row_remap_failed.into())
    }

    /// `nvmlDeviceGetRowRemapperHistogram`
    fn nvmlDeviceGetRowRemapperHistogram(view: CardView, values: Out<nvmlRowRemapperHistogramValues_t>) {
        let max = row_banks(&view)?;
        values.set(nvmlRowRemapperHistogramValues_t { max, high: 0, partial: 0, low: 0, none: 0 })
    }
}
