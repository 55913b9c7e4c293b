//! The command that lets a card's driver say that something is wrong with it.

use clap::Args;

use super::{Directory, Target};
use crate::state::{CardHealth, FabricState};

#[derive(Args)]
pub(super) struct Health {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Memory errors that could not be corrected.
    #[arg(long, value_name = "N")]
    uncorrected_errors: Option<u64>,
    /// Rows of memory are remapped at the next reset (Ampere and later).
    #[arg(long, value_name = "BOOL")]
    row_remap_pending: Option<bool>,
    /// No spare rows are left (Ampere and later).
    #[arg(long, value_name = "BOOL")]
    row_remap_failed: Option<bool>,
    /// Pages of memory wait to be retired (before Ampere).
    #[arg(long, value_name = "BOOL")]
    retired_pages_pending: Option<bool>,
    /// The hardware slows it down because it is too hot.
    #[arg(long, value_name = "BOOL")]
    hot: Option<bool>,
    /// The power supply slows it down.
    #[arg(long, value_name = "BOOL")]
    power_brake: Option<bool>,
    /// Health of the NVLink fabric, as bits of nvmlGpuFabricInfo_v2_t.healthMask.
    #[arg(long, value_name = "MASK")]
    fabric_mask: Option<u32>,
    /// Registration with the NVLink fabric.
    #[arg(long, value_enum)]
    fabric_state: Option<FabricState>,
    /// What the driver recommends, as number of nvmlGpuRecoveryAction_t.
    #[arg(long, value_name = "NUMBER")]
    recovery_action: Option<u32>,
}

/// Values not given stay unchanged.
pub(super) fn health(arguments: &Health) -> anyhow::Result<()> {
    /// `nvmlClocksEventReasonHwThermalSlowdown`
    const HOT: u64 = 0x40;
    /// `nvmlClocksEventReasonHwPowerBrakeSlowdown`
    const POWER_BRAKE: u64 = 0x80;
    let target = Target::open(&arguments.directory.directory)?;
    target.update_card(arguments.card, |card| {
        let before = card.health;
        let mut clocks_reasons = before.clocks_reasons;
        for (ordered, bit) in [(arguments.hot, HOT), (arguments.power_brake, POWER_BRAKE)] {
            match ordered {
                Some(true) => clocks_reasons |= bit,
                Some(false) => clocks_reasons &= !bit,
                None => {}
            }
        }
        card.health = CardHealth {
            uncorrected_errors: arguments.uncorrected_errors.unwrap_or(before.uncorrected_errors),
            row_remap_pending: arguments.row_remap_pending.unwrap_or(before.row_remap_pending),
            row_remap_failed: arguments.row_remap_failed.unwrap_or(before.row_remap_failed),
            retired_pages_pending: arguments.retired_pages_pending.unwrap_or(before.retired_pages_pending),
            clocks_reasons,
            fabric_mask: arguments.fabric_mask.or(before.fabric_mask),
            fabric_state: arguments.fabric_state.or(before.fabric_state),
            recovery_action: arguments.recovery_action.unwrap_or(before.recovery_action),
        };
    })
}
