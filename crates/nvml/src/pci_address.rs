use std::fmt;

/// A PCI address as NVML gives it (`nvmlPciInfo_t`). NVML says nothing of the function: every card is function 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number on the bus, 0 to 31.
    pub device: u8,
}

/// As Linux writes it in `/sys/bus/pci/devices`: `0000:3b:00.0`.
impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl PciAddress {
    /// `None` where the numbers are no PCI address, which is how some drivers say "no such thing".
    pub(crate) fn from_numbers(domain: u32, bus: u32, device: u32) -> Option<Self> {
        let bus = u8::try_from(bus).ok()?;
        let device = u8::try_from(device).ok().filter(|device| *device < 32)?;
        (domain != u32::MAX).then_some(PciAddress { domain, bus, device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_linux_does() {
        assert_eq!(PciAddress { domain: 0, bus: 0x3b, device: 0 }.to_string(), "0000:3b:00.0");
        assert_eq!(PciAddress { domain: 0x10008, bus: 1, device: 31 }.to_string(), "10008:01:1f.0");
    }

    #[test]
    fn numbers_outside_pci_are_no_address() {
        assert_eq!(PciAddress::from_numbers(0, 256, 0), None);
        assert_eq!(PciAddress::from_numbers(0, 0, 32), None);
        assert_eq!(PciAddress::from_numbers(u32::MAX, 0, 0), None);
        assert_eq!(PciAddress::from_numbers(8, 1, 2), Some(PciAddress { domain: 8, bus: 1, device: 2 }));
    }
}
