//! Power of a card.

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use crate::failure::Failure;

/// `NVML_FEATURE_ENABLED`
const ENABLED: u32 = 1;

/// Power draw, mW: as set, else from an idle card's draw to the limit, in proportion to load.
pub(super) fn usage(view: &CardView<'_>) -> Result<u32, Failure> {
    if let Some(milliwatts) = view.state.power_usage_milliwatts {
        return Ok(milliwatts);
    }
    let idle = view.card.board.power_usage_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
    let busy = u64::from(limit(view)?.saturating_sub(idle)) * u64::from(view.state.busy_percent()) / 100;
    Ok(idle + u32::try_from(busy).unwrap_or(0))
}

/// Power limit in force, mW.
pub(super) fn limit(view: &CardView<'_>) -> Result<u32, Failure> {
    view.state
        .power_limit_milliwatts
        .or(view.card.board.power_limit_default_milliwatts)
        .ok_or(Failure::NOT_SUPPORTED)
}

/// Energy since the machine was made, or the card was reset, mJ.
pub(super) fn energy(view: &CardView<'_>) -> Result<u64, Failure> {
    let board = &view.card.board;
    let idle = board.power_usage_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
    // The default limit: with a changeable limit, sums of the past would change with it.
    let most = board.power_limit_default_milliwatts.ok_or(Failure::NOT_SUPPORTED)?;
    let meter = view.meter();
    let age = match meter.since {
        0 => view.context.session.age().as_micros(),
        since => u128::from(meter.until.saturating_sub(since)),
    };
    let idle_time = age.saturating_sub(meter.set_power_time.into());
    let busy = u128::from(meter.busy.saturating_sub(meter.busy_at_set_power)) / 100;
    let nanojoules = u128::from(idle) * idle_time
        + u128::from(most.saturating_sub(idle)) * busy
        + u128::from(meter.set_power);
    Ok(u64::try_from(nanojoules / 1_000_000).unwrap_or(u64::MAX))
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
