//! `nvidia-smi --gpu-reset`. NVML has no function for it: the machine's state is changed.

use std::fmt::Write;

use super::card::Reading;
use super::library::SmiError;
use crate::cuda::machine;
use crate::directory::reset::{self, ResetError};

/// `NVML_ERROR_IN_USE`
const IN_USE: u32 = 19;
/// `NVML_ERROR_NO_PERMISSION`
const NO_PERMISSION: u32 = 4;
/// `NVML_ERROR_UNKNOWN`
const UNKNOWN: u32 = 999;

/// Resets cards, and says which.
pub(super) fn print(readings: &[Reading]) -> Result<String, SmiError> {
    let failed = |text: String, code| SmiError::Plain { text, code };
    let store = machine::find().map_err(|text| failed(text, UNKNOWN))?;
    let mut text = String::new();
    for reading in readings {
        let bus = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
        reset::card(&store, reading.index as usize).map_err(|error| {
            let code = match &error {
                ResetError::InUse { .. } => IN_USE,
                ResetError::Store(error) if error.is_permission() => NO_PERMISSION,
                _ => UNKNOWN,
            };
            let why = match error {
                ResetError::InUse { .. } => format!("GPU {bus} is currently in use by another process.\n\n1 device is currently being used by one or more other processes. Please first kill all processes using this device."),
                other => format!("Unable to reset GPU {bus}: {other}"),
            };
            failed(format!("{text}{why}"), code)
        })?;
        let _ = writeln!(text, "GPU {bus} was successfully reset.");
    }
    text.push_str("All done.\n");
    Ok(text)
}
