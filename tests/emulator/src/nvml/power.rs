//! Power of a card.

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use crate::failure::Failure;

/// `NVML_FEATURE_ENABLED`
const ENABLED: u32 = 1;

/// Power draw, mW: as set, else that of an idle card.
pub(super) fn usage(view: &CardView<'_>) -> Result<u32, Failure> {
    view.state.power_usage_milliwatts.or(view.card.board.power_usage_milliwatts).ok_or(Failure::NOT_SUPPORTED)
}

/// Power limit in force, mW.
pub(super) fn limit(view: &CardView<'_>) -> Result<u32, Failure> {
    view.state
        .power_limit_milliwatts
        .or(view.card.board.power_limit_default_milliwatts)
        .ok_or(Failure::NOT_SUPPORTED)
}

/// Energy since the machine was made, mJ, as if the draw had always been what it is now.
pub(super) fn energy(view: &CardView<'_>) -> Result<u64, Failure> {
    let milliwatts = u64::from(usage(view)?);
    let seconds = view.context.session.age().as_millis() / 1000;
    Ok(milliwatts * u64::try_from(seconds).unwrap_or(0))
}

nvml_functions! {
    /// `nvmlDeviceGetPowerManagementMode`
    fn nvmlDeviceGetPowerManagementMode(view: CardView, mode: Out<u32>) {
        limit(&view)?;
        mode.set(ENABLED)
    }

    /// `nvmlDeviceGetPowerManagementLimit`
    fn nvmlDeviceGetPowerManagementLimit(view: CardView, milliwatts: Out<u32>) {
        milliwatts.set(limit(&view)?)
    }

    /// `nvmlDeviceGetEnforcedPowerLimit`
    fn nvmlDeviceGetEnforcedPowerLimit(view: CardView, milliwatts: Out<u32>) {
        milliwatts.set(limit(&view)?)
    }

    /// `nvmlDeviceGetPowerManagementDefaultLimit`
    fn nvmlDeviceGetPowerManagementDefaultLimit(view: CardView, milliwatts: Out<u32>) {
        milliwatts.set(view.card.board.power_limit_default_milliwatts.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetPowerManagementLimitConstraints`
    fn nvmlDeviceGetPowerManagementLimitConstraints(view: CardView, lowest: Out<u32>, highest: Out<u32>) {
        let board = &view.card.board;
        let minimum = board.power_limit_min_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
        let maximum = board.power_limit_max_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
        if highest.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        lowest.set(minimum)?;
        highest.set(maximum)
    }

    /// `nvmlDeviceSetPowerManagementLimit`
    fn nvmlDeviceSetPowerManagementLimit(view: CardView, milliwatts: u32) {
        let board = &view.card.board;
        let minimum = board.power_limit_min_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
        let maximum = board.power_limit_max_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
        if !(minimum..=maximum).contains(&milliwatts) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        view.update(|state| {
            state.power_limit_milliwatts = Some(milliwatts);
            Ok(())
        })
    }

    /// `nvmlDeviceGetPowerUsage`
    fn nvmlDeviceGetPowerUsage(view: CardView, milliwatts: Out<u32>) {
        milliwatts.set(usage(&view)?)
    }

    /// `nvmlDeviceGetTotalEnergyConsumption`
    fn nvmlDeviceGetTotalEnergyConsumption(view: CardView, millijoules: Out<u64>) {
        millijoules.set(energy(&view)?)
    }
}
