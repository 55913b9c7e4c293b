//! The device nodes of cards and of the driver.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use tessera_api::PciBusId;

use super::{DeviceNode, Roots};

/// Major number of the driver's own nodes, registered with the kernel (Documentation/admin-guide/devices.txt).
const NVIDIA_MAJOR: u32 = 195;
/// Minor number of `/dev/nvidiactl`.
const CONTROL_MINOR: u32 = 255;
/// Default permission bits of the driver's nodes (`NVreg_DeviceFileMode`).
const FILE_MODE: u32 = 0o666;
/// Minor number of `/dev/nvidia-modeset`.
const MODESET_MINOR: u32 = 254;

/// The nodes of one card: `/dev/nvidia<minor>`, and the card's nodes under `/dev/dri` if there is a display engine.
pub(super) fn card(roots: &Roots, address: PciBusId, minor: u32) -> Vec<DeviceNode> {
    let mut nodes = vec![card_of_partition(roots, minor)];
    nodes.extend(graphics(roots, address));
    nodes
}

/// The node of the card whose partition a container uses. A partition has no display engine.
pub(super) fn card_of_partition(roots: &Roots, minor: u32) -> DeviceNode {
    let name = format!("nvidia{minor}");
    existing(roots, &name).unwrap_or_else(|| numbered(&name, NVIDIA_MAJOR, minor))
}

/// The nodes opened by every CUDA program, whatever its cards. None of them alone gives access to a card.
///
/// A host may lack nodes until the first program in need of them makes them with `nvidia-modprobe`. Their numbers are
/// known anyway, and a container is given numbers.
pub(super) fn control(roots: &Roots) -> Vec<DeviceNode> {
    let mut nodes = vec![
        existing(roots, "nvidiactl").unwrap_or_else(|| numbered("nvidiactl", NVIDIA_MAJOR, CONTROL_MINOR)),
    ];
    let unified_memory = major_of(&roots.proc, "nvidia-uvm");
    for (name, minor) in [("nvidia-uvm", 0), ("nvidia-uvm-tools", 1)] {
        let by_number = || unified_memory.map(|major| numbered(name, major, minor));
        nodes.extend(existing(roots, name).or_else(by_number));
    }
    let modeset = || {
        major_of(&roots.proc, "nvidia-modeset").map(|major| numbered("nvidia-modeset", major, MODESET_MINOR))
    };
    nodes.extend(existing(roots, "nvidia-modeset").or_else(modeset));
    nodes
}

/// Whether the module for unified memory, needed by every CUDA program, is loaded. Blocks for the file system.
#[must_use]
pub fn has_unified_memory(roots: &Roots) -> bool {
    major_of(&roots.proc, "nvidia-uvm").is_some()
}

/// The node `/dev/<name>` with its numbers, if there is a character device of this name.
pub(super) fn existing(roots: &Roots, name: &str) -> Option<DeviceNode> {
    let seen = roots.dev.join("dev").join(name);
    let metadata = fs::metadata(&seen).ok()?;
    if !metadata.file_type().is_char_device() {
        return None;
    }
    let path = format!("/dev/{name}");
    let host_path = roots.on_host(&seen).to_string_lossy().into_owned();
    Some(DeviceNode {
        host_path: (host_path != path).then_some(host_path),
        path,
        kind: Some("c".into()),
        major: Some(rustix::fs::major(metadata.rdev())),
        minor: Some(rustix::fs::minor(metadata.rdev())),
        file_mode: Some(metadata.mode() & 0o777),
    })
}

fn numbered(name: &str, major: u32, minor: u32) -> DeviceNode {
    DeviceNode {
        path: format!("/dev/{name}"),
        host_path: None,
        kind: Some("c".into()),
        major: Some(major),
        minor: Some(minor),
        file_mode: Some(FILE_MODE),
    }
}

/// The card's nodes of the kernel's graphics subsystem, opened by Vulkan and EGL.
fn graphics(roots: &Roots, address: PciBusId) -> Vec<DeviceNode> {
    let directory = roots.sysfs.join("bus/pci/devices").join(address.to_string()).join("drm");
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("card") || name.starts_with("renderD"))
        .collect();
    names.sort_unstable();
    names.iter().filter_map(|name| existing(roots, &format!("dri/{name}"))).collect()
}

/// The major number of a module's character devices (`/proc/devices`).
pub(super) fn major_of(proc_root: &Path, name: &str) -> Option<u32> {
    let devices = fs::read_to_string(proc_root.join("devices")).ok()?;
    devices
        .lines()
        .take_while(|line| !line.starts_with("Block devices"))
        .filter_map(|line| line.trim().split_once(' '))
        .find(|(_, module)| *module == name)
        .and_then(|(major, _)| major.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        let roots = Roots {
            driver: root.clone(),
            host_driver: root.clone(),
            dev: root.clone(),
            sysfs: root.join("sys"),
            proc: root.join("proc"),
            ..Roots::default()
        };
        (directory, roots)
    }

    #[test]
    fn numbers_are_known_where_the_host_has_no_nodes_yet() {
        let (_directory, roots) = machine();
        fs::write(
            roots.proc.join("devices"),
            "Character devices:\n  1 mem\n195 nvidia\n508 nvidia-uvm\n\nBlock devices:\n  9 nvidia-modeset\n",
        )
        .unwrap();
        let nodes: Vec<_> = control(&roots)
            .into_iter()
            .map(|node| (node.path, node.major.unwrap(), node.minor.unwrap(), node.host_path))
            .collect();
        assert_eq!(
            nodes,
            [
                ("/dev/nvidiactl".into(), 195, 255, None),
                ("/dev/nvidia-uvm".into(), 508, 0, None),
                ("/dev/nvidia-uvm-tools".into(), 508, 1, None),
            ]
        );
        let card = card(&roots, "0000:3b:00.0".parse().unwrap(), 3);
        assert_eq!(card, [numbered("nvidia3", 195, 3)]);
    }

    #[test]
    fn a_plain_file_is_no_device_node() {
        let (_directory, roots) = machine();
        fs::write(roots.dev.join("dev/nvidia3"), "").unwrap();
        assert_eq!(card(&roots, "0000:3b:00.0".parse().unwrap(), 3), [numbered("nvidia3", 195, 3)]);
    }

    #[test]
    fn numbers_come_from_the_node_where_there_is_one() {
        let (_directory, mut roots) = machine();
        // The one character device readable by everyone on every machine.
        std::os::unix::fs::symlink("/dev/null", roots.dev.join("dev/nvidia3")).unwrap();
        let host = roots.dev.join("dev/nvidia3").to_string_lossy().into_owned();
        let expected = DeviceNode {
            path: "/dev/nvidia3".into(),
            host_path: Some(host),
            kind: Some("c".into()),
            major: Some(1),
            minor: Some(3),
            file_mode: Some(0o666),
        };
        assert_eq!(card(&roots, "0000:3b:00.0".parse().unwrap(), 3), [expected]);

        roots.host_driver = "/".into();
        assert_eq!(card(&roots, "0000:3b:00.0".parse().unwrap(), 3)[0].host_path, None);
    }

    #[test]
    fn graphics_nodes_of_this_card_only() {
        let (_directory, roots) = machine();
        for (card, nodes) in
            [("0000:3b:00.0", ["card1", "renderD128"]), ("0000:5e:00.0", ["card2", "renderD129"])]
        {
            let drm = roots.sysfs.join("bus/pci/devices").join(card).join("drm");
            fs::create_dir_all(&drm).unwrap();
            fs::create_dir_all(roots.dev.join("dev/dri")).unwrap();
            for node in nodes {
                fs::create_dir(drm.join(node)).unwrap();
                std::os::unix::fs::symlink("/dev/null", roots.dev.join("dev/dri").join(node)).unwrap();
            }
        }
        let paths: Vec<_> =
            card(&roots, "0000:5e:00.0".parse().unwrap(), 1).into_iter().map(|node| node.path).collect();
        assert_eq!(paths, ["/dev/nvidia1", "/dev/dri/card2", "/dev/dri/renderD129"]);
    }
}
