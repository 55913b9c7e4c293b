//! `nvidia-smi -c` and `nvidia-smi compute-policy`.

use std::fmt::Write;

use super::card::Reading;
use super::library::{Library, SmiError};
use crate::cuda::machine;
use crate::hardware::board::ComputeCapability;
use crate::state::StoreError;

/// `NVML_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: u32 = 3;
/// `NVML_ERROR_UNKNOWN`
const UNKNOWN: u32 = 999;

/// Time slices by their number.
const TIME_SLICES: [&str; 4] = ["DEFAULT", "SHORT", "MEDIUM", "LONG"];

/// `nvidia-smi compute-policy`
#[derive(clap::Args)]
pub(super) struct Policy {
    /// Only this card: index, UUID or PCI bus id.
    #[arg(short, long, value_name = "CARD")]
    id: Option<String>,
    /// Sets how long a process computes before the next one's turn: 0 (default), 1 (short), 2 (medium), 3 (long).
    #[arg(long, value_name = "SLICE", value_parser = parse_time_slice)]
    set_timeslice: Option<u32>,
    /// Lists the settings.
    #[arg(short, long, required_unless_present = "set_timeslice")]
    list: bool,
}

pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    match text.to_ascii_uppercase().as_str() {
        "0" | "DEFAULT" => Ok(0),
        "2" | "PROHIBITED" => Ok(2),
        "3" | "EXCLUSIVE_PROCESS" => Ok(3),
        _ => Err("0 or DEFAULT, 2 or PROHIBITED, 3 or EXCLUSIVE_PROCESS".to_owned()),
    }
}

fn parse_time_slice(text: &str) -> Result<u32, String> {
    let named = TIME_SLICES.iter().position(|name| name.eq_ignore_ascii_case(text));
    let slice = named.and_then(|position| u32::try_from(position).ok()).or_else(|| text.parse().ok());
    slice.filter(|slice| *slice < 4).ok_or_else(|| "0 to 3".to_owned())
}

/// Sets the compute mode of these cards.
pub(super) fn set_mode(library: &Library, readings: &[Reading], mode: u32) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        let bus = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
        let what = format!("Unable to set the compute mode for GPU {bus}");
        library.named(&what, library.set("nvmlDeviceSetComputeMode", reading.device, mode))?;
        let name = ["DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"][mode as usize];
        let _ = writeln!(text, "Set compute mode to {name} for GPU {bus}.");
    }
    text.push_str("All done.\n");
    Ok(text)
}

/// Whether the length of time slices can be set. This needs preemption between instructions: on the P100 and from
/// Volta on. A Tesla P4 refuses (issue 41 of NVIDIA's DRA driver).
fn has_time_slice_lengths(ComputeCapability { major, minor }: ComputeCapability) -> bool {
    major >= 7 || (major == 6 && minor == 0)
}

/// The real tool's words, quoted from the issue above.
fn refusal(index: usize, slice: u32) -> String {
    let value = ["Default", "Short", "Medium", "Long"][slice as usize];
    format!(
        "Failed to set timeslice policy with value {value} for GPU {index} : Not Supported\n\
         Failed to set timeslice for requested devices : Not Supported"
    )
}

/// Shows and sets time slices. NVML has no function for them: they are written to the machine's state.
pub(super) fn policy(library: &Library, policy: &Policy) -> Result<String, SmiError> {
    let failed = |what: &str, code, text: String| SmiError::Nvml { what: what.to_owned(), code, text };
    let store = machine::find().map_err(|text| failed("Failed to find the machine", UNKNOWN, text))?;
    let machine = store.machine().map_err(|error| failed("Failed", UNKNOWN, error.to_string()))?;
    let mut text = String::new();
    for reading in Reading::all(library, policy.id.as_deref())? {
        let index = reading.index as usize;
        let card = &machine.cards[index];
        if let Some(slice) = policy.set_timeslice {
            let what = format!("Failed to set timeslice for GPU {}", card.pci);
            if !has_time_slice_lengths(card.board.compute_capability) {
                return Err(SmiError::Plain { text: refusal(index, slice), code: NOT_SUPPORTED });
            }
            if let Err(code) = reading.uuid {
                return Err(failed(&what, code, library.error_text(code)));
            }
            store
                .update(|state| {
                    state.cards[index].time_slice = slice;
                    Ok::<(), StoreError>(())
                })
                .map_err(|error| {
                    let code = if error.is_permission() { 4 } else { UNKNOWN };
                    failed(&what, code, error.to_string())
                })?;
            let name = TIME_SLICES[slice as usize];
            let _ = writeln!(text, "Successfully set timeslice to {name} for GPU {}.", card.pci);
        }
        if policy.list {
            let state = store.state().map_err(|error| failed("Failed", UNKNOWN, error.to_string()))?;
            let name = TIME_SLICES.get(state.cards[index].time_slice as usize).unwrap_or(&"UNKNOWN");
            let _ = writeln!(text, "GPU {}: timeslice {name}", card.pci);
        }
    }
    Ok(text)
}
