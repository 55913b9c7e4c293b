//! Device nodes and links needed on the host for containers, which are given devices by number.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, chmod, makedev, mknodat};

use super::{DeviceNode, Roots, Spec};

/// A node or link missing on the host and impossible to make.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {}: {source}", path.display())]
pub struct HostNodeError {
    /// The node, or its link.
    pub path: PathBuf,
    /// The operating system's answer.
    source: io::Error,
}

/// Makes the nodes of a spec missing on the host, and the links `/dev/char/<major>:<minor>` to all of them.
///
/// In a user namespace the container runtime makes no nodes but mounts the host's. And systemd, when managing the
/// containers' cgroups, finds a device by its link: a `daemon-reload` takes devices without a link from running containers.
/// `nvidia-modprobe` makes the same nodes, and nobody removes them. Existing ones stay unchanged. Blocks for the file system.
///
/// # Errors
/// The first [`HostNodeError`]; all other nodes and links have been made.
pub fn complete_host_nodes(roots: &Roots, spec: &Spec) -> Result<(), HostNodeError> {
    let devices = spec.devices.iter().map(|device| &device.container_edits);
    let edits = std::iter::once(&spec.container_edits).chain(devices);
    let mut first = Ok(());
    for node in edits.flat_map(|edits| &edits.device_nodes) {
        first = first.and(complete(&roots.dev.join("dev"), node));
    }
    first
}

fn complete(dev: &Path, node: &DeviceNode) -> Result<(), HostNodeError> {
    let (Some(name), Some(major), Some(minor)) = (node.path.strip_prefix("/dev/"), node.major, node.minor)
    else {
        return Ok(());
    };
    let error = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| HostNodeError { path, source }
    };
    let path = dev.join(name);
    make_unless_there(&path, |path| {
        let mode = Mode::from_raw_mode(node.file_mode.unwrap_or(0o666));
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor))?;
        // Undo the process's umask.
        Ok(chmod(path, mode)?)
    })
    .map_err(error(&path))?;
    let link = dev.join(format!("char/{major}:{minor}"));
    make_unless_there(&link, |link| symlink(Path::new("..").join(name), link)).map_err(error(&link))
}

fn make_unless_there(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    match make(path) {
        // Work on another claim has made the file meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

    use super::*;
    use crate::cdi::{ContainerEdits, Device};

    fn node(path: &str, major: u32, minor: u32) -> DeviceNode {
        DeviceNode {
            path: path.to_owned(),
            host_path: None,
            kind: Some("c".to_owned()),
            major: Some(major),
            minor: Some(minor),
            file_mode: Some(0o444),
        }
    }

    fn spec(common: Vec<DeviceNode>, of_device: Vec<DeviceNode>) -> Spec {
        let edits = |device_nodes| ContainerEdits { device_nodes, ..ContainerEdits::default() };
        Spec {
            cdi_version: String::new(),
            kind: "gpu.example.com/claim".to_owned(),
            devices: vec![Device { name: "a".to_owned(), container_edits: edits(of_device) }],
            container_edits: edits(common),
        }
    }

    #[test]
    fn every_node_of_a_spec_has_a_link_by_its_numbers() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { dev: root.path().to_owned(), ..Roots::default() };
        let dev = root.path().join("dev");
        fs::create_dir_all(dev.join("char")).unwrap();
        fs::create_dir_all(dev.join("nvidia-caps")).unwrap();
        for name in ["nvidiactl", "nvidia3", "nvidia-caps/nvidia-cap48"] {
            fs::write(dev.join(name), "").unwrap();
        }
        symlink("../by-somebody-else", dev.join("char/195:3")).unwrap();
        let capability = node("/dev/nvidia-caps/nvidia-cap48", 509, 48);
        let of_device = vec![node("/dev/nvidia3", 195, 3), capability];
        complete_host_nodes(&roots, &spec(vec![node("/dev/nvidiactl", 195, 255)], of_device)).unwrap();
        for (link, target) in [
            ("195:255", "../nvidiactl"),
            ("195:3", "../by-somebody-else"),
            ("509:48", "../nvidia-caps/nvidia-cap48"),
        ] {
            assert_eq!(fs::read_link(dev.join("char").join(link)).unwrap(), Path::new(target));
        }
    }

    /// Without the right to make nodes (not root) an error is returned, and everything else is made.
    #[test]
    fn nodes_that_the_host_lacks_are_made_or_told() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { dev: root.path().to_owned(), ..Roots::default() };
        let dev = root.path().join("dev");
        fs::create_dir_all(&dev).unwrap();
        fs::write(dev.join("nvidiactl"), "").unwrap();
        let missing = vec![node("/dev/nvidia-caps/nvidia-cap48", 509, 48)];
        let path = dev.join("nvidia-caps/nvidia-cap48");
        match complete_host_nodes(&roots, &spec(missing, vec![node("/dev/nvidiactl", 195, 255)])) {
            Ok(()) => {
                let made = fs::metadata(&path).unwrap();
                assert!(made.file_type().is_char_device());
                assert_eq!((made.rdev(), made.mode() & 0o777), (makedev(509, 48), 0o444));
                assert_eq!(fs::metadata(dev.join("char/509:48")).unwrap().rdev(), makedev(509, 48));
            }
            Err(error) => assert_eq!(error.path, path),
        }
        assert!(fs::symlink_metadata(dev.join("char/195:255")).is_ok());
    }
}
