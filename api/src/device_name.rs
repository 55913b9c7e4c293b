use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pci_bus_id::{PciBusId, PciBusIdError, hexadecimal};

/// Name of a device in its pool, made from the PCI address of its card: indexes and minors shift when a card falls off
/// the bus, and a claim outlives a reboot.
///
/// `gpu-<bus>-<device>`, with the PCI domain in front where it is not 0 and the function behind where it is not 0:
/// `gpu-3b-00`, `gpu-0008-01-00`, `gpu-3b-00-1`. Always a DNS label. Partitions and shares of a card append `-mig-…`,
/// `-mps` and `-ts` to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum DeviceName {
    /// A whole card.
    Card(PciBusId),
}

/// Why a text is not the name of a device of this driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// The text has another form, or is not how this driver spells that device.
    #[error("{0:?} is not a device name of this driver: expected gpu-<bus>-<device>, as in gpu-3b-00")]
    Form(String),
    /// The numbers in the name are no PCI address.
    #[error("device name {name:?}: {source}")]
    Address {
        /// The name.
        name: String,
        /// What is wrong with the address.
        source: PciBusIdError,
    },
}

impl DeviceName {
    /// The address of the card that this device is, or is a part of.
    #[must_use]
    pub const fn card(self) -> PciBusId {
        match self {
            Self::Card(address) => address,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.card();
        formatter.write_str("gpu-")?;
        if address.domain() != 0 {
            write!(formatter, "{:04x}-", address.domain())?;
        }
        write!(formatter, "{:02x}-{:02x}", address.bus(), address.device())?;
        if address.function() != 0 {
            write!(formatter, "-{:x}", address.function())?;
        }
        match self {
            Self::Card(_) => Ok(()),
        }
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || DeviceNameError::Form(text.chars().take(64).collect());
        let mut parts = text.strip_prefix("gpu-").ok_or_else(form)?.split('-').peekable();
        // Lengths tell the parts apart: a domain has four digits or more, bus and device two, a function one.
        let domain = parts.next_if(|part| part.len() >= 4).map_or(Some(0), |part| hexadecimal(part, 4..=8));
        let bus = parts.next().and_then(|part| hexadecimal(part, 2..=2));
        let device = parts.next().and_then(|part| hexadecimal(part, 2..=2));
        let function = parts.next_if(|part| part.len() == 1).map_or(Some(0), |part| hexadecimal(part, 1..=1));
        let (Some(domain), Some(bus), Some(device), Some(function)) = (domain, bus, device, function) else {
            return Err(form());
        };
        let byte = |value: u32| u8::try_from(value).map_err(|_| form());
        let address = PciBusId::new(domain, byte(bus)?, byte(device)?, byte(function)?)
            .map_err(|source| DeviceNameError::Address { name: text.to_owned(), source })?;
        let name = match parts.next() {
            None => Self::Card(address),
            Some(_) => return Err(form()),
        };
        // One spelling for one device: a claim is matched to its hardware by text in places.
        if name.to_string() == text { Ok(name) } else { Err(form()) }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = DeviceNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits;

    #[test]
    fn names_of_cards() {
        for (address, name) in [
            ("0000:3b:00.0", "gpu-3b-00"),
            ("0008:01:00.0", "gpu-0008-01-00"),
            ("10000:01:1f.0", "gpu-10000-01-1f"),
            ("0000:3b:00.1", "gpu-3b-00-1"),
        ] {
            let device = DeviceName::Card(address.parse().unwrap());
            assert_eq!(device.to_string(), name);
            assert_eq!(name.parse(), Ok(device));
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "gpu",
            "gpu-",
            "gpu-0",
            "gpu-3b",
            "gpu-3B-00",
            "gpu-3b-00-",
            "gpu-3b-00-0",
            "gpu-0000-3b-00",
            "gpu-00000008-01-00",
            "gpu-3b-20",
            "gpu-3b-00-mig",
            "gpu-3b-00-1-1",
            "tpu-3b-00",
            "gpu-3b-00 ",
        ] {
            assert!(text.parse::<DeviceName>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_a_dns_label_and_parses_back(
            domain: u32, bus: u8, device in 0u8..32, function in 0u8..8
        ) {
            let name = DeviceName::Card(PciBusId::new(domain, bus, device, function).unwrap());
            let text = name.to_string();
            prop_assert!(limits::is_dns_label(&text));
            prop_assert_eq!(text.parse(), Ok(name));
        }

        #[test]
        fn no_text_panics(text in "(gpu-)?[0-9a-f-]{0,20}|.*") {
            let _ = text.parse::<DeviceName>();
        }
    }
}
