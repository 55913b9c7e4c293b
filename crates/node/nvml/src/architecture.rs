/// The chip generation of a card (`nvmlDeviceArchitecture_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Architecture(
    /// NVML's number; later generations have higher ones.
    pub u32,
);

impl Architecture {
    /// `NVML_DEVICE_ARCH_AMPERE`: needs a reset to switch MIG mode.
    pub const AMPERE: Architecture = Architecture(7);
    /// `NVML_DEVICE_ARCH_HOPPER`: the first generation to switch MIG mode without a reset.
    pub const HOPPER: Architecture = Architecture(9);

    /// NVIDIA's own spelling, as in its DRA driver; `None` for "unknown" and for numbers newer than this table.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            2 => "Kepler",
            3 => "Maxwell",
            4 => "Pascal",
            5 => "Volta",
            6 => "Turing",
            7 => "Ampere",
            8 => "Ada Lovelace",
            9 => "Hopper",
            10 => "Blackwell",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        for (number, name) in [
            (sys::NVML_DEVICE_ARCH_KEPLER, "Kepler"),
            (sys::NVML_DEVICE_ARCH_MAXWELL, "Maxwell"),
            (sys::NVML_DEVICE_ARCH_PASCAL, "Pascal"),
            (sys::NVML_DEVICE_ARCH_VOLTA, "Volta"),
            (sys::NVML_DEVICE_ARCH_TURING, "Turing"),
            (sys::NVML_DEVICE_ARCH_AMPERE, "Ampere"),
            (sys::NVML_DEVICE_ARCH_ADA, "Ada Lovelace"),
            (sys::NVML_DEVICE_ARCH_HOPPER, "Hopper"),
            (sys::NVML_DEVICE_ARCH_BLACKWELL, "Blackwell"),
        ] {
            assert_eq!(Architecture(number).name(), Some(name));
        }
        assert_eq!(Architecture::AMPERE.0, sys::NVML_DEVICE_ARCH_AMPERE);
        assert_eq!(Architecture::HOPPER.0, sys::NVML_DEVICE_ARCH_HOPPER);
    }

    #[test]
    fn the_unknown_is_not_guessed() {
        for number in [0, 1, 11, 12, sys::NVML_DEVICE_ARCH_UNKNOWN] {
            assert_eq!(Architecture(number).name(), None);
        }
    }
}
