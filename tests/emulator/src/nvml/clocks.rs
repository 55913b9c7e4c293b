//! Clocks and performance states.

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use crate::failure::Failure;
use crate::hardware::board::{ApplicationsClocks, Clocks};

/// `nvmlClockId_t`
mod clock_id {
    pub const CURRENT: u32 = 0;
    pub const APPLICATIONS: u32 = 1;
    pub const APPLICATIONS_DEFAULT: u32 = 2;
    pub const CUSTOMER_BOOST_MAX: u32 = 3;
}

/// `nvmlClocksEventReasonGpuIdle`
const REASON_IDLE: u64 = 1;
/// `nvmlClocksEventReasonSwPowerCap`
const REASON_POWER_CAP: u64 = 4;
/// All reasons shown by `nvidia-smi -q` on the boards here.
const REASONS_SUPPORTED: u64 = 0x1ff;
/// `NVML_PSTATE_0`, the permanent state of data-centre cards.
const PERFORMANCE_STATE: u32 = 0;

/// One clock by `nvmlClockType_t`.
fn clock(clocks: Option<Clocks>, kind: u32) -> Result<u32, Failure> {
    let pick = |clocks: Clocks| {
        [clocks.graphics, clocks.sm, clocks.memory, clocks.video].get(kind as usize).copied()
    };
    if kind > 3 {
        return Err(Failure::INVALID_ARGUMENT);
    }
    clocks.and_then(pick).ok_or(Failure::NOT_SUPPORTED)
}

/// One applications clock: one is for graphics, shared with the SMs, and one for memory.
fn applications_clock(clocks: Option<ApplicationsClocks>, kind: u32) -> Result<u32, Failure> {
    match (kind, clocks) {
        (4.., _) => Err(Failure::INVALID_ARGUMENT),
        (0 | 1, Some(clocks)) => Ok(clocks.graphics),
        (2, Some(clocks)) => Ok(clocks.memory),
        _ => Err(Failure::NOT_SUPPORTED),
    }
}

/// A card with something to do runs at its highest clocks.
fn current(view: &CardView<'_>) -> Option<Clocks> {
    if view.state.busy_percent() > 0 { view.card.board.clocks_max } else { view.card.board.clocks }
}

fn reasons(view: &CardView<'_>) -> u64 {
    let of_load = match view.state.busy_percent() {
        0 => REASON_IDLE,
        // The power draw is at its limit.
        100 => REASON_POWER_CAP,
        _ => 0,
    };
    of_load | view.state.health.clocks_reasons
}

nvml_functions! {
    /// `nvmlDeviceGetClockInfo`
    fn nvmlDeviceGetClockInfo(view: CardView, kind: u32, megahertz: Out<u32>) {
        match kind {
            1 => view.part("NVML_CLOCK_SM")?,
            2 => view.part("NVML_CLOCK_MEM")?,
            _ => {}
        }
        megahertz.set(clock(current(&view), kind)?)
    }

    /// `nvmlDeviceGetMaxClockInfo`
    fn nvmlDeviceGetMaxClockInfo(view: CardView, kind: u32, megahertz: Out<u32>) {
        megahertz.set(clock(view.card.board.clocks_max, kind)?)
    }

    /// `nvmlDeviceGetApplicationsClock`
    fn nvmlDeviceGetApplicationsClock(view: CardView, kind: u32, megahertz: Out<u32>) {
        megahertz.set(applications_clock(view.card.board.applications_clocks, kind)?)
    }

    /// `nvmlDeviceGetDefaultApplicationsClock`
    fn nvmlDeviceGetDefaultApplicationsClock(view: CardView, kind: u32, megahertz: Out<u32>) {
        megahertz.set(applications_clock(view.card.board.applications_clocks, kind)?)
    }

    /// `nvmlDeviceGetMaxCustomerBoostClock`: graphics and SM only, as high as their highest clocks.
    fn nvmlDeviceGetMaxCustomerBoostClock(view: CardView, kind: u32, megahertz: Out<u32>) {
        match kind {
            0 | 1 => megahertz.set(clock(view.card.board.clocks_max, kind)?),
            2 | 3 => Err(Failure::NOT_SUPPORTED),
            _ => Err(Failure::INVALID_ARGUMENT),
        }
    }

    /// `nvmlDeviceGetClock`
    fn nvmlDeviceGetClock(view: CardView, kind: u32, id: u32, megahertz: Out<u32>) {
        let board = &view.card.board;
        megahertz.set(match id {
            clock_id::CURRENT => clock(current(&view), kind)?,
            clock_id::APPLICATIONS | clock_id::APPLICATIONS_DEFAULT => {
                applications_clock(board.applications_clocks, kind)?
            }
            clock_id::CUSTOMER_BOOST_MAX => clock(board.clocks_max, kind)?,
            _ => return Err(Failure::INVALID_ARGUMENT),
        })
    }

    /// `nvmlDeviceGetCurrentClocksEventReasons`
    fn nvmlDeviceGetCurrentClocksEventReasons(view: CardView, mask: Out<u64>) {
        mask.set(reasons(&view))
    }

    /// `nvmlDeviceGetCurrentClocksThrottleReasons`: the older name.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(view: CardView, mask: Out<u64>) {
        mask.set(reasons(&view))
    }

    /// `nvmlDeviceGetSupportedClocksEventReasons`
    fn nvmlDeviceGetSupportedClocksEventReasons(_view: CardView, mask: Out<u64>) {
        mask.set(REASONS_SUPPORTED)
    }

    /// `nvmlDeviceGetSupportedClocksThrottleReasons`: the older name.
    fn nvmlDeviceGetSupportedClocksThrottleReasons(_view: CardView, mask: Out<u64>) {
        mask.set(REASONS_SUPPORTED)
    }

    /// `nvmlDeviceGetPerformanceState`
    fn nvmlDeviceGetPerformanceState(_view: CardView, state: Out<u32>) {
        state.set(PERFORMANCE_STATE)
    }

    /// `nvmlDeviceGetPowerState`: the older name.
    fn nvmlDeviceGetPowerState(_view: CardView, state: Out<u32>) {
        state.set(PERFORMANCE_STATE)
    }
}
