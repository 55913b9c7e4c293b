/// How a card addresses the system's memory (`nvmlDeviceAddressingModeType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressingMode {
    /// No access to pageable system memory.
    None,
    /// Heterogeneous Memory Management: the kernel keeps the card's page tables like the CPU's.
    Hmm,
    /// Address Translation Services: the card walks the CPU's page tables.
    Ats,
}

impl AddressingMode {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => AddressingMode::None,
            1 => AddressingMode::Hmm,
            2 => AddressingMode::Ats,
            _ => return None,
        })
    }

    /// NVIDIA's own spelling, as in its DRA driver.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AddressingMode::None => "None",
            AddressingMode::Hmm => "HMM",
            AddressingMode::Ats => "ATS",
        }
    }
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        for (number, name) in [
            (sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE, "None"),
            (sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM, "HMM"),
            (sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS, "ATS"),
        ] {
            assert_eq!(AddressingMode::from_number(number).map(AddressingMode::name), Some(name));
        }
        assert_eq!(AddressingMode::from_number(3), None);
    }
}
