use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Address of a PCI function. Ordered by domain, bus, device, function: NVML's order of cards.
///
/// Displayed as in sysfs and Kubernetes' `resource.kubernetes.io/pciBusID`, `0000:3b:00.0`. Parses this form and NVML's
/// form `00000000:3B:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciBusId {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Why something is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PciBusIdError {
    /// The text has another form.
    #[error(
        "{0:?} is not a PCI address: expected domain:bus:device.function in hexadecimal, as in 0000:3b:00.0"
    )]
    Form(String),
    /// The device number is above 31.
    #[error("PCI device number {0:#x} is out of range: a bus has devices 0 to 0x1f")]
    Device(u8),
    /// The function number is above 7.
    #[error("PCI function number {0} is out of range: a device has functions 0 to 7")]
    Function(u8),
}

impl PciBusId {
    /// An address from its parts.
    ///
    /// # Errors
    /// [`PciBusIdError::Device`] above 31, [`PciBusIdError::Function`] above 7.
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Result<Self, PciBusIdError> {
        if device > 0x1f {
            return Err(PciBusIdError::Device(device));
        }
        if function > 7 {
            return Err(PciBusIdError::Function(function));
        }
        Ok(Self { domain, bus, device, function })
    }

    /// PCI domain (segment); 0 on most machines, above 0xffff behind some storage and hypervisor bridges.
    #[must_use]
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// Bus number.
    #[must_use]
    pub const fn bus(self) -> u8 {
        self.bus
    }

    /// Device number on the bus, 0 to 31.
    #[must_use]
    pub const fn device(self) -> u8 {
        self.device
    }

    /// Function number of the device, 0 to 7; a GPU is function 0.
    #[must_use]
    pub const fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciBusId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciBusId {
    type Err = PciBusIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || PciBusIdError::Form(text.chars().take(64).collect());
        let (domain, rest) = text.split_once(':').ok_or_else(form)?;
        let (bus, rest) = rest.split_once(':').ok_or_else(form)?;
        let (device, function) = rest.split_once('.').ok_or_else(form)?;
        let number =
            |part: &str, digits: std::ops::RangeInclusive<usize>| hexadecimal(part, digits).ok_or_else(form);
        let domain = number(domain, 4..=8)?;
        let byte = |value: u32| u8::try_from(value).map_err(|_| form());
        Self::new(
            domain,
            byte(number(bus, 2..=2)?)?,
            byte(number(device, 2..=2)?)?,
            byte(number(function, 1..=1)?)?,
        )
    }
}

/// The number written by `digits` hexadecimal digits of either case, and nothing else (no sign, no blank).
pub(crate) fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let valid = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl TryFrom<String> for PciBusId {
    type Error = PciBusIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciBusId> for String {
    fn from(address: PciBusId) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_mean_the_same() {
        let nvml: PciBusId = "00000000:3B:00.0".parse().unwrap();
        let sysfs: PciBusId = "0000:3b:00.0".parse().unwrap();
        assert_eq!(nvml, sysfs);
        assert_eq!(nvml.to_string(), "0000:3b:00.0");
        assert_eq!("00010000:01:00.0".parse::<PciBusId>().unwrap().to_string(), "10000:01:00.0");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "3b:00.0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "+000:3b:00.0", "0000:3b:00.0 "]
        {
            assert!(text.parse::<PciBusId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn json_is_the_display_form() {
        let address: PciBusId = serde_json::from_str("\"0008:01:00.0\"").unwrap();
        assert_eq!(serde_json::to_string(&address).unwrap(), "\"0008:01:00.0\"");
        assert!(serde_json::from_str::<PciBusId>("\"gpu\"").is_err());
    }

    proptest! {
        #[test]
        fn display_parses_back(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciBusId::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse::<PciBusId>().unwrap(), address);
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<PciBusId>();
        }
    }
}
