//! Reads a PCI device's place in the machine from sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tessera_api::PciBusId;

/// The kernel's view of PCI devices.
#[derive(Debug)]
pub(super) struct Sysfs {
    root: PathBuf,
}

/// Why sysfs gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SysfsError {
    /// A file can't be read.
    #[error("can't read {}: {source}; is --sysfs-root right, and sysfs mounted there?", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file's content is not of the expected form.
    #[error("{} says '{content}', which is no NUMA node", path.display())]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// Its content, shortened.
        content: String,
    },
    /// The device does not lie below a root complex.
    #[error("{} does not lie below a PCI root complex", path.display())]
    NoRoot {
        /// The device's own directory.
        path: PathBuf,
    },
}

impl Sysfs {
    pub(super) fn new(root: PathBuf) -> Self {
        Sysfs { root }
    }

    /// The root complex above a device, `pci0000:3a`: the first directory of this form on the device's path. Other
    /// directories may come before, as on Hyper-V.
    pub(super) fn pcie_root(&self, device: PciBusId) -> Result<String, SysfsError> {
        let path = self.device(device)?;
        let root =
            path.iter().filter_map(|part| part.to_str()).find(|part| is_pci_root(part)).map(str::to_owned);
        root.ok_or(SysfsError::NoRoot { path })
    }

    /// The NUMA node of a device. `None` if the kernel knows none (−1) or if the node has no CPUs: on
    /// Grace Blackwell the card's own memory is such a node, and nothing can be scheduled next to it.
    pub(super) fn numa_node(&self, device: PciBusId) -> Result<Option<u32>, SysfsError> {
        let path = self.device(device)?.join("numa_node");
        let content = read(&path)?;
        let node: i64 = content
            .trim()
            .parse()
            .map_err(|_| SysfsError::NoNumber { path, content: content.chars().take(40).collect() })?;
        let Ok(node) = u32::try_from(node) else { return Ok(None) };
        let cpus = read(&self.root.join("devices/system/node").join(format!("node{node}")).join("cpulist"))?;
        Ok((!cpus.trim().is_empty()).then_some(node))
    }

    /// A device's own directory.
    fn device(&self, device: PciBusId) -> Result<PathBuf, SysfsError> {
        let link = self.root.join("bus/pci/devices").join(device.to_string());
        fs::canonicalize(&link).map_err(|source| SysfsError::Unreadable { path: link, source })
    }
}

fn read(path: &Path) -> Result<String, SysfsError> {
    fs::read_to_string(path).map_err(|source| SysfsError::Unreadable { path: path.to_owned(), source })
}

/// `pci<domain>:<bus>`, at least four and exactly two hexadecimal digits.
fn is_pci_root(name: &str) -> bool {
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix("pci").and_then(|numbers| numbers.split_once(':')).is_some_and(|(domain, bus)| {
        domain.len() >= 4 && bus.len() == 2 && hexadecimal(domain) && hexadecimal(bus)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn device() -> PciBusId {
        "0000:3b:00.0".parse().unwrap()
    }

    /// A sysfs with one device at `path` below `devices`.
    fn sysfs(path: &str, numa_node: &str, nodes: &[(u32, &str)]) -> (TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("devices").join(path);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("numa_node"), numa_node).unwrap();
        let links = root.path().join("bus/pci/devices");
        fs::create_dir_all(&links).unwrap();
        symlink(Path::new("../../../devices").join(path), links.join("0000:3b:00.0")).unwrap();
        for (node, cpus) in nodes {
            let directory = root.path().join(format!("devices/system/node/node{node}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cpulist"), cpus).unwrap();
        }
        let sysfs = Sysfs::new(root.path().to_owned());
        (root, sysfs)
    }

    #[test]
    fn root_complex_is_the_first_on_the_path() {
        let (_root, sysfs) = sysfs("pci0000:3a/0000:3a:00.0/0000:3b:00.0", "0\n", &[(0, "0-7\n")]);
        assert_eq!(sysfs.pcie_root(device()).unwrap(), "pci0000:3a");
    }

    #[test]
    fn root_complex_below_other_buses() {
        let (_root, sysfs) = sysfs("LNXSYSTM:00/VMBUS:00/1d4b-pci/pci10001:00/0000:3b:00.0", "0", &[]);
        assert_eq!(sysfs.pcie_root(device()).unwrap(), "pci10001:00");
    }

    #[test]
    fn a_device_of_no_root_complex() {
        let (_root, sysfs) = sysfs("platform/0000:3b:00.0", "0", &[]);
        assert!(matches!(sysfs.pcie_root(device()), Err(SysfsError::NoRoot { .. })));
    }

    #[test]
    fn numa_node_with_cpus_only() {
        let node = |content: &str, nodes: &[(u32, &str)]| {
            let (_root, sysfs) = sysfs("pci0000:3a/0000:3b:00.0", content, nodes);
            sysfs.numa_node(device())
        };
        assert_eq!(node("1\n", &[(0, "0-7\n"), (1, "8-15\n")]).unwrap(), Some(1));
        assert_eq!(node("-1\n", &[(0, "0-7\n")]).unwrap(), None);
        assert_eq!(node("2\n", &[(0, "0-7\n"), (2, "\n")]).unwrap(), None);
        assert!(matches!(node("1\n", &[]), Err(SysfsError::Unreadable { .. })));
        assert!(matches!(node("one", &[]), Err(SysfsError::NoNumber { .. })));
        assert!(matches!(node("", &[]), Err(SysfsError::NoNumber { .. })));
    }

    #[test]
    fn no_sysfs_names_the_option() {
        let empty = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::new(empty.path().to_owned());
        for message in [
            sysfs.pcie_root(device()).unwrap_err().to_string(),
            sysfs.numa_node(device()).unwrap_err().to_string(),
        ] {
            assert!(message.contains("--sysfs-root") && message.contains("0000:3b:00.0"), "{message}");
        }
    }
}
