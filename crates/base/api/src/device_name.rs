use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::card_name::CardName;
use crate::device_type::DeviceType;
use crate::limits;
use crate::partition_name::PartitionName;
use crate::pci_bus_id::{PciBusId, PciBusIdError, hexadecimal};

/// Name of a device in its pool, made from the PCI address of its card: indexes and minors shift when a card falls off
/// the bus, and a claim outlives a reboot.
///
/// `gpu-<bus>-<device>`, with the PCI domain in front where it is not 0 and the function behind where it is not 0:
/// `gpu-3b-00`, `gpu-0008-01-00`, `gpu-3b-00-1`. Partitions and shares of a card append to it:
///
/// | device | name |
/// |---|---|
/// | whole card | `gpu-3b-00` |
/// | MIG partition, made on demand | `gpu-3b-00-mig-1g10gb-6` |
/// | existing MIG partition | `gpu-3b-00-mig-1c3g40gb-4-gi2-ci0` |
/// | MPS shares of a card | `gpu-3b-00-mps` |
/// | MPS shares of a partition | `gpu-3b-00-mig-3g40gb-4-mps` |
/// | time-slices of a card | `gpu-3b-00-ts` |
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum DeviceName {
    /// A whole card.
    Card(PciBusId),
    /// A MIG partition.
    Partition(PartitionName),
    /// A card shared by MPS.
    Mps(PciBusId),
    /// A MIG partition shared by MPS.
    PartitionMps(PartitionName),
    /// A card shared by time-slicing.
    TimeSlice(PciBusId),
}

/// Why a text is not the name of a device of this driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// The text has another form, or is not the canonical spelling of a device.
    #[error(
        "{0:?} is not a device name of this driver: expected gpu-<bus>-<device>, as in gpu-3b-00, or that with \
         -mig-<profile>-<start>, -mps or -ts behind it"
    )]
    Form(String),
    /// The numbers in the name are no PCI address.
    #[error("device name {name:?}: {source}")]
    Address {
        /// The name.
        name: String,
        /// The error of the address.
        source: PciBusIdError,
    },
}

impl DeviceName {
    /// The address of the device's card.
    #[must_use]
    pub const fn card(&self) -> PciBusId {
        match self {
            Self::Card(card) | Self::Mps(card) | Self::TimeSlice(card) => *card,
            Self::Partition(partition) | Self::PartitionMps(partition) => partition.card,
        }
    }

    /// The device's partition, or the partition shared by the device.
    #[must_use]
    pub const fn partition(&self) -> Option<&PartitionName> {
        match self {
            Self::Partition(partition) | Self::PartitionMps(partition) => Some(partition),
            Self::Card(_) | Self::Mps(_) | Self::TimeSlice(_) => None,
        }
    }

    /// The kind of device.
    #[must_use]
    pub const fn device_type(&self) -> DeviceType {
        match self {
            Self::Card(_) => DeviceType::Gpu,
            Self::Partition(_) => DeviceType::Mig,
            Self::Mps(_) | Self::PartitionMps(_) => DeviceType::Mps,
            Self::TimeSlice(_) => DeviceType::TimeSlice,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card(card) => write!(formatter, "{}", CardName(*card)),
            Self::Partition(partition) => write!(formatter, "{partition}"),
            Self::Mps(card) => write!(formatter, "{}-mps", CardName(*card)),
            Self::PartitionMps(partition) => write!(formatter, "{partition}-mps"),
            Self::TimeSlice(card) => write!(formatter, "{}-ts", CardName(*card)),
        }
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || DeviceNameError::Form(text.chars().take(64).collect());
        if !limits::is_dns_label(text) {
            return Err(form());
        }
        let mut parts = text.strip_prefix("gpu-").ok_or_else(form)?.split('-').peekable();
        // The lengths tell the parts apart: a domain has four digits or more, bus and device two, a function one.
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
        let parts: Vec<&str> = parts.collect();
        let partition = |parts| PartitionName::from_parts(address, parts).ok_or_else(form);
        let name = match parts[..] {
            [] => Self::Card(address),
            ["mps"] => Self::Mps(address),
            ["ts"] => Self::TimeSlice(address),
            ["mig", ref parts @ .., "mps"] => Self::PartitionMps(partition(parts)?),
            ["mig", ref parts @ ..] => Self::Partition(partition(parts)?),
            _ => return Err(form()),
        };
        // Only the canonical spelling: some places match claims to devices by text.
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
    use crate::{ExistingInstance, limits};

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
    fn names_of_parts() {
        let card = "0000:3b:00.0".parse().unwrap();
        let partition = |profile: &str, start, existing| PartitionName {
            card,
            profile: profile.parse().unwrap(),
            start,
            existing,
        };
        let existing = Some(ExistingInstance { gpu_instance: 2, compute_instance: 0 });
        for (device, text, kind) in [
            (DeviceName::Partition(partition("1g10gb", 6, None)), "gpu-3b-00-mig-1g10gb-6", "mig"),
            (
                DeviceName::Partition(partition("1g24gb-no-me", 9, None)),
                "gpu-3b-00-mig-1g24gb-no-me-9",
                "mig",
            ),
            (
                DeviceName::Partition(partition("1c3g40gb", 4, existing)),
                "gpu-3b-00-mig-1c3g40gb-4-gi2-ci0",
                "mig",
            ),
            (DeviceName::Mps(card), "gpu-3b-00-mps", "mps"),
            (DeviceName::PartitionMps(partition("3g40gb", 4, None)), "gpu-3b-00-mig-3g40gb-4-mps", "mps"),
            (
                DeviceName::PartitionMps(partition("3g40gb", 4, existing)),
                "gpu-3b-00-mig-3g40gb-4-gi2-ci0-mps",
                "mps",
            ),
            (DeviceName::TimeSlice(card), "gpu-3b-00-ts", "timeslice"),
        ] {
            assert_eq!(device.to_string(), text);
            assert_eq!(device.card(), card);
            assert_eq!(device.device_type().as_str(), kind);
            assert_eq!(device.partition().is_some(), text.contains("mig"));
            assert_eq!(text.parse(), Ok(device));
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
            "gpu-3b-00-mig-1g10gb",
            "gpu-3b-00-mig-1g10gb-06",
            "gpu-3b-00-mig-1g10gb-+6",
            "gpu-3b-00-mig-1g10gb-6-ts",
            "gpu-3b-00-mig-1g10gb-6-gi2",
            "gpu-3b-00-mig-1g10gb-6-gi02-ci0",
            "gpu-3b-00-mig-1g10gb-6-7",
            "gpu-3b-00-mig-6",
            "gpu-3b-00-mig-mps",
            "gpu-3b-00-mps-mps",
            "gpu-3b-00-mps-ts",
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
        fn names_of_parts_are_dns_labels_and_parse_back(
            domain: u32, function in 0u8..8, kind in 0..4, start in 0u32..100, existing: Option<(u8, u8)>
        ) {
            let card = PciBusId::new(domain, 0xff, 0x1f, function).unwrap();
            let existing = existing.map(|(gpu_instance, compute_instance)| ExistingInstance {
                gpu_instance: gpu_instance.into(), compute_instance: (compute_instance % 8).into()
            });
            let partition = PartitionName { card, profile: "1g24gb-me-all".parse().unwrap(), start, existing };
            let name = match kind {
                0 => DeviceName::Mps(card),
                1 => DeviceName::TimeSlice(card),
                2 => DeviceName::Partition(partition),
                _ => DeviceName::PartitionMps(partition),
            };
            let text = name.to_string();
            prop_assert!(limits::is_dns_label(&text), "{}", text);
            prop_assert_eq!(text.parse(), Ok(name));
        }

        #[test]
        fn no_text_panics(text in "(gpu-)?[0-9a-f-]{0,20}(-mig-[0-9a-z-]{0,20})?|.*") {
            let _ = text.parse::<DeviceName>();
        }
    }
}
