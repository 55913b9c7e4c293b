//! Faults reported by a card's driver, as ordered by a tester.

use serde::{Deserialize, Serialize};

/// Faults of a card. Memory faults repaired by a reset are gone after a reset or a reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardHealth {
    /// Uncorrectable memory errors since the last reset.
    pub uncorrected_errors: u64,
    /// Rows of memory are remapped at the next reset (Ampere and later).
    pub row_remap_pending: bool,
    /// No spare rows are left.
    pub row_remap_failed: bool,
    /// Pages of memory are retired when the driver is loaded again (before Ampere).
    pub retired_pages_pending: bool,
    /// Bits of `nvmlClocksEventReason*`, beside the reasons derived from the load.
    pub clocks_reasons: u64,
    /// In place of the machine's `healthMask` of the NVLink fabric.
    pub fabric_mask: Option<u32>,
    /// In place of a completed registration with the NVLink fabric.
    pub fabric_state: Option<FabricState>,
    /// `nvmlGpuRecoveryAction_t`.
    pub recovery_action: u32,
}

/// How the registration of a card with its NVLink fabric goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum FabricState {
    /// No fabric manager has been seen.
    NotStarted,
    /// Under way.
    InProgress,
    /// Done.
    Completed,
    /// Done, with an error.
    Failed,
}

impl CardHealth {
    /// Whether nothing was ordered.
    pub fn is_healthy(&self) -> bool {
        *self == Self::default()
    }

    /// The faults not repaired by a reset.
    pub fn after_reset(self) -> Self {
        Self {
            uncorrected_errors: 0,
            row_remap_pending: false,
            retired_pages_pending: false,
            recovery_action: 0,
            ..self
        }
    }
}
