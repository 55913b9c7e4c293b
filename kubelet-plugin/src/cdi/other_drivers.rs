//! Devices of other kernel drivers used by programs on cards: GDRCopy, GPUDirect Storage, InfiniBand.
//!
//! Given as by NVIDIA's device plugin (its `gdrcopyEnabled`, `gdsEnabled`, `mofedEnabled`) and found as by nvidia-container-toolkit
//! (`internal/discover/gdrcopy.go`, `gds.go`, `mofed.go`): all of the node's, to every container with a card.

use std::fs;
use std::path::Path;

use super::device_nodes::existing;
use super::{ContainerEdits, Mount, Roots};

/// A kernel driver beside NVIDIA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum OtherDriver {
    /// GDRCopy: `/dev/gdrdrv`.
    Gdrcopy,
    /// GPUDirect Storage: `/dev/nvidia-fs*`, `/run/udev` and `/etc/cufile.json`.
    Gds,
    /// MOFED, and the kernel's own InfiniBand: `/dev/infiniband/uverbs*` and `/dev/infiniband/rdma_cm`.
    Mofed,
}

impl OtherDriver {
    /// Adds the node's devices of this driver. Blocks for the file system.
    pub(super) fn add(self, roots: &Roots, edits: &mut ContainerEdits) {
        let (names, mounts) = match self {
            Self::Gdrcopy => (vec!["gdrdrv".to_owned()], &[][..]),
            Self::Gds => (beginning(roots, "", "nvidia-fs"), &["/run/udev", "/etc/cufile.json"][..]),
            Self::Mofed => {
                let mut names = beginning(roots, "infiniband/", "uverbs");
                names.push("infiniband/rdma_cm".to_owned());
                (names, &[][..])
            }
        };
        edits.device_nodes.extend(names.iter().filter_map(|name| existing(roots, name)));
        let there = mounts.iter().filter(|path| roots.from_host(Path::new(path)).exists());
        edits.mounts.extend(there.map(|path| Mount {
            host_path: (*path).to_owned(),
            container_path: (*path).to_owned(),
            options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).to_vec(),
            kind: None,
        }));
    }
}

/// Names in a directory of `/dev` with this prefix, sorted, with the directory.
fn beginning(roots: &Roots, directory: &str, start: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(roots.dev.join("dev").join(directory)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with(start)).map(|name| format!("{directory}{name}")).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_has_of_the_drivers_that_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let dev = directory.path().join("dev");
        fs::create_dir_all(dev.join("infiniband")).unwrap();
        fs::create_dir_all(directory.path().join("etc")).unwrap();
        fs::write(directory.path().join("etc/cufile.json"), "{}").unwrap();
        for name in [
            "gdrdrv",
            "nvidia-fs1",
            "nvidia-fs0",
            "infiniband/uverbs0",
            "infiniband/rdma_cm",
            "infiniband/umad0",
        ] {
            // The one character device readable by everyone on every machine.
            std::os::unix::fs::symlink("/dev/null", dev.join(name)).unwrap();
        }
        let roots = Roots {
            driver: directory.path().to_owned(),
            dev: directory.path().to_owned(),
            ..Roots::default()
        };
        let of = |driver: OtherDriver| {
            let mut edits = ContainerEdits::default();
            driver.add(&roots, &mut edits);
            let nodes: Vec<String> = edits.device_nodes.into_iter().map(|node| node.path).collect();
            let mounts: Vec<String> = edits.mounts.into_iter().map(|mount| mount.host_path).collect();
            (nodes, mounts)
        };
        assert_eq!(of(OtherDriver::Gdrcopy), (vec!["/dev/gdrdrv".to_owned()], vec![]));
        // This node has no udev.
        let gds = ["/dev/nvidia-fs0", "/dev/nvidia-fs1"].map(str::to_owned).to_vec();
        assert_eq!(of(OtherDriver::Gds), (gds, vec!["/etc/cufile.json".to_owned()]));
        let infiniband = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"].map(str::to_owned).to_vec();
        assert_eq!(of(OtherDriver::Mofed), (infiniband, vec![]));

        fs::remove_file(dev.join("gdrdrv")).unwrap();
        assert_eq!(of(OtherDriver::Gdrcopy), (vec![], vec![]));
    }
}
