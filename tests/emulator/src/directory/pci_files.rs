//! Files of every PCI device in sysfs besides its ids: `config`, `resource` and `iommu_group`. Programs searching cards by their
//! PCI devices, such as users of NVIDIA's go-nvlib, read them for all devices and stop at the first device without them.

use std::fs;
use std::path::Path;

use super::error::{CreateError, at};
use super::files::link;

/// Bytes of a PCI Express device's configuration space.
const CONFIG_BYTES: usize = 4096;
/// Lines of `resource`: six BARs, the expansion ROM, and the kernel's lines for virtual functions.
const RESOURCES: usize = 13;
/// Flags of the kernel's `ioport.h`: memory, with a size and aligned to it.
const MEMORY: u64 = 0x0004_0200;
/// The same, 64 bits wide and prefetchable.
const WIDE_MEMORY: u64 = 0x0014_220c;
/// A BAR is mapped at this multiple of its size, or at one of the next: aligned, and apart from BARs of other sizes.
const FIRST_PLACE: u64 = 1 << 12;

/// A PCI device.
#[derive(Clone, Copy, Debug)]
pub(super) struct PciDevice<'a> {
    /// Vendor and device.
    pub ids: (u16, u16),
    /// Vendor and device of the subsystem, if any.
    pub subsystem: Option<(u16, u16)>,
    /// Class, subclass and interface: `0x030200`.
    pub class: &'a str,
    /// Whether the device is a bridge to another bus.
    pub is_bridge: bool,
    /// BARs: number, bytes (a power of two), and whether 64 bits wide, and so two of them.
    pub bars: &'a [(usize, u64, bool)],
}

impl PciDevice<'_> {
    /// Makes the files in the device's directory `directory` below `sys`, in an IOMMU group of its own.
    pub(super) fn create(
        &self,
        sys: &Path,
        directory: &Path,
        address: &str,
        up: &str,
    ) -> Result<(), CreateError> {
        let groups = sys.join("kernel/iommu_groups");
        fs::create_dir_all(&groups).map_err(at(&groups))?;
        let number = fs::read_dir(&groups).map_err(at(&groups))?.count();
        let members = groups.join(format!("{number}/devices"));
        fs::create_dir_all(&members).map_err(at(&members))?;
        link(&directory.join("iommu_group"), &format!("{up}kernel/iommu_groups/{number}"))?;
        link(&members.join(address), &format!("../../../../bus/pci/devices/{address}"))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            fs::write(&path, bytes).map_err(at(&path))
        };
        write("config", &self.config())?;
        write("resource", self.resource(number as u64).as_bytes())
    }

    /// The header of the configuration space, little-endian, and the PCI Express capability.
    fn config(&self) -> Vec<u8> {
        const CAPABILITY: u8 = 0x60;
        const PCI_EXPRESS: u8 = 0x10;
        let mut config = vec![0; CONFIG_BYTES];
        let mut word = |at: usize, value: u16| config[at..at + 2].copy_from_slice(&value.to_le_bytes());
        word(0x00, self.ids.0);
        word(0x02, self.ids.1);
        // Memory and bus mastering are on, there are capabilities.
        word(0x04, 0x0006);
        word(0x06, 0x0010);
        if let (Some((vendor, device)), false) = (self.subsystem, self.is_bridge) {
            word(0x2c, vendor);
            word(0x2e, device);
        }
        let class = u32::from_str_radix(self.class.trim_start_matches("0x"), 16).unwrap_or_default();
        config[0x09..0x0c].copy_from_slice(&class.to_le_bytes()[..3]);
        config[0x0e] = self.is_bridge.into();
        config[0x34] = CAPABILITY;
        config[usize::from(CAPABILITY)] = PCI_EXPRESS;
        config
    }

    fn resource(&self, number: u64) -> String {
        let line = |index: usize| {
            let bar = self.bars.iter().find(|(bar, ..)| *bar == index);
            let (start, end, flags) = bar.map_or((0, 0, 0), |(_, bytes, is_wide)| {
                let start = bytes * (FIRST_PLACE + number);
                (start, start + bytes - 1, if *is_wide { WIDE_MEMORY } else { MEMORY })
            });
            format!("0x{start:016x} 0x{end:016x} 0x{flags:016x}\n")
        };
        (0..RESOURCES).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_as_the_kernel_shows_it() {
        let directory = tempfile::tempdir().unwrap();
        let (sys, device) = (directory.path(), directory.path().join("devices/pci0000:3a/0000:3b:00.0"));
        fs::create_dir_all(&device).unwrap();
        let card = PciDevice {
            ids: (0x10de, 0x2330),
            subsystem: Some((0x10de, 0x16c1)),
            class: "0x030200",
            is_bridge: false,
            bars: &[(0, 16 << 20, false), (1, 128 << 30, true)],
        };
        card.create(sys, &device, "0000:3b:00.0", "../../../").unwrap();
        let config = fs::read(device.join("config")).unwrap();
        assert_eq!(config.len(), 4096);
        assert_eq!(config[..4], [0xde, 0x10, 0x30, 0x23]);
        assert_eq!(config[9..12], [0x00, 0x02, 0x03]);
        assert_eq!(config[0x2c..0x30], [0xde, 0x10, 0xc1, 0x16]);
        let resource = fs::read_to_string(device.join("resource")).unwrap();
        let lines: Vec<Vec<u64>> = resource
            .lines()
            .map(|line| line.split(' ').map(|word| u64::from_str_radix(&word[2..], 16).unwrap()).collect())
            .collect();
        assert_eq!(lines.len(), 13);
        let bytes = |line: &[u64]| line[1] - line[0] + u64::from(line[1] != 0);
        assert_eq!(lines.iter().map(|line| bytes(line)).sum::<u64>(), (16 << 20) + (128 << 30));
        assert!(
            lines.iter().all(|line| bytes(line) == 0 || line[0] % bytes(line) == 0),
            "aligned to their size"
        );
        let group = fs::canonicalize(device.join("iommu_group")).unwrap();
        assert!(group.ends_with("kernel/iommu_groups/0"));
        assert!(fs::symlink_metadata(group.join("devices/0000:3b:00.0")).unwrap().is_symlink());
    }
}
