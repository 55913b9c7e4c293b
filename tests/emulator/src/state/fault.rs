//! Injected faults: failing or delayed calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Parts of a function's answer: a fault may name one in place of the function, so one figure fails alone.
pub const PARTS: [&str; 13] = [
    "NVML_CLOCK_SM",
    "NVML_CLOCK_MEM",
    "NVML_PCIE_UTIL_TX_BYTES",
    "NVML_PCIE_UTIL_RX_BYTES",
    "NVML_FI_DEV_MEMORY_TEMP",
    "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    "NVML_GPM_METRIC_SM_UTIL",
    "NVML_GPM_METRIC_SM_OCCUPANCY",
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "NVML_GPM_METRIC_DRAM_BW_UTIL",
];

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Unique number.
    pub number: u64,
    /// Name of an NVML function, or one of [`PARTS`]. A name without version is for all versions; `None` is for every
    /// function.
    pub call: Option<String>,
    /// Index of a card; `None` is for every card, and for calls without a card.
    pub card: Option<u32>,
    /// The effect on a call.
    pub effect: FaultEffect,
    /// Before or after the call's own effect.
    #[serde(default)]
    pub moment: Moment,
    /// Number of further affected calls; `None` is for every one until the fault is removed.
    pub remaining: Option<u32>,
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
    /// Before the call did anything.
    #[default]
    Before,
    /// After the call took effect, so its caller cannot know of the effect.
    After,
}

/// A fault's effect on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultEffect {
    /// The call answers with this `nvmlReturn_t` and does nothing.
    Error(u32),
    /// The call is delayed by this, ms.
    Delay(u64),
}

impl fmt::Display for FaultEffect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultEffect::Error(code) => match Failure(*code).name() {
                Some(name) => write!(formatter, "fails: {name}"),
                None => write!(formatter, "fails: {code}"),
            },
            FaultEffect::Delay(milliseconds) => write!(formatter, "takes {milliseconds} ms more"),
        }
    }
}

impl Fault {
    /// Whether the fault applies to a call of `function` on `card`.
    pub fn meets(&self, function: &str, card: Option<u32>) -> bool {
        let call = self
            .call
            .as_deref()
            .is_none_or(|call| function == call || function.strip_prefix(call).is_some_and(is_version));
        call && self.card.is_none_or(|wanted| Some(wanted) == card) && self.remaining != Some(0)
    }
}

/// Whether `text` is NVML's suffix for a newer version of a function: `_v2`.
fn is_version(text: &str) -> bool {
    text.strip_prefix("_v")
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(call: Option<&str>, card: Option<u32>) -> Fault {
        Fault {
            number: 0,
            call: call.map(Into::into),
            card,
            effect: FaultEffect::Delay(1),
            moment: Moment::Before,
            remaining: None,
        }
    }

    #[test]
    fn a_fault_meets_all_versions_of_its_call_and_no_other_call() {
        let any = fault(Some("nvmlDeviceGetMemoryInfo"), None);
        assert!(any.meets("nvmlDeviceGetMemoryInfo", Some(0)));
        assert!(any.meets("nvmlDeviceGetMemoryInfo_v2", None));
        assert!(!any.meets("nvmlDeviceGetMemoryInfoOther", None));
        let second = fault(Some("nvmlDeviceGetMemoryInfo_v2"), Some(3));
        assert!(second.meets("nvmlDeviceGetMemoryInfo_v2", Some(3)));
        assert!(!second.meets("nvmlDeviceGetMemoryInfo", Some(3)));
        assert!(!second.meets("nvmlDeviceGetMemoryInfo_v2", Some(2)));
        assert!(!second.meets("nvmlDeviceGetMemoryInfo_v2", None));
        assert!(fault(None, None).meets("nvmlInit_v2", None));
    }

    #[test]
    fn a_spent_fault_meets_nothing() {
        let spent = Fault { remaining: Some(0), ..fault(None, None) };
        assert!(!spent.meets("nvmlInit_v2", None));
    }
}
