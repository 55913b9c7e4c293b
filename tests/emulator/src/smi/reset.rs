//! `nvidia-smi --gpu-reset`. NVML has no function for a reset, so the machine's state is changed.

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

/// Resets cards and returns their list. Refused, as by the driver, while another process has the driver's library open: this
/// process has closed the library.
pub(super) fn print(readings: &[Reading]) -> Result<String, SmiError> {
    let failed = |text: String, code| SmiError::Plain { text, code };
    let store = machine::find().map_err(|text| failed(text, UNKNOWN))?;
    let is_open = store.is_open().map_err(|error| failed(error.to_string(), UNKNOWN))?;
    let mut text = String::new();
    for reading in readings {
        let bus = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
        let in_use = || {
            format!(
                "GPU {bus} is currently in use by another process.\n\n1 device is currently being used by one or more other processes. Please first kill all processes using this device."
            )
        };
        if is_open {
            return Err(failed(format!("{text}{}", in_use()), IN_USE));
        }
        reset::card(&store, reading.index as usize).map_err(|error| {
            let code = match &error {
                ResetError::InUse { .. } => IN_USE,
                ResetError::Store(error) if error.is_permission() => NO_PERMISSION,
                _ => UNKNOWN,
            };
            let why = match error {
                ResetError::InUse { .. } => in_use(),
                other => format!("Unable to reset GPU {bus}: {other}"),
            };
            failed(format!("{text}{why}"), code)
        })?;
        let _ = writeln!(text, "GPU {bus} was successfully reset.");
    }
    text.push_str("All done.\n");
    Ok(text)
}
