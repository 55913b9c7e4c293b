//! Device nodes of MIG capabilities.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::device_nodes::major_of;
use super::{DeviceNode, Roots};

/// Name under which the driver registers the major number of capability nodes.
const MODULE: &str = "nvidia-caps";

/// Permission bits of a capability node if the driver does not report them: everyone may open the node, access is
/// granted by its number.
const FILE_MODE: u32 = 0o444;

/// Why the capability nodes of a partition are unknown.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct CapabilityError {
    /// The expected file of the numbers.
    pub path: PathBuf,
    /// The error.
    pub reason: String,
}

/// The two capability nodes needed by a container to use a MIG partition: one for its GPU instance, one for its
/// compute instance (`/dev/nvidia-caps/nvidia-cap<n>`; NVIDIA's MIG User Guide, "Device Nodes and Capabilities"). The
/// nodes may be missing on the host; their numbers are in `/proc/driver/nvidia/capabilities` while the instances
/// exist.
///
/// Blocks for file reads.
///
/// # Errors
/// [`CapabilityError`] if the driver doesn't report the numbers.
pub fn partition_nodes(
    roots: &Roots,
    minor: u32,
    gpu_instance: u32,
    compute_instance: u32,
) -> Result<Vec<DeviceNode>, CapabilityError> {
    let mig = roots.proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"));
    let major = major_of(&roots.proc, MODULE).ok_or_else(|| CapabilityError {
        path: roots.proc.join("devices"),
        reason: format!("there is no {MODULE}"),
    })?;
    [mig.join("access"), mig.join(format!("ci{compute_instance}/access"))]
        .into_iter()
        .map(|path| node(path, major))
        .collect()
}

fn node(path: PathBuf, major: u32) -> Result<DeviceNode, CapabilityError> {
    let error = |reason: String| CapabilityError { path: path.clone(), reason };
    let text = fs::read_to_string(&path).map_err(|failure: io::Error| error(failure.to_string()))?;
    let value = |name: &str| {
        text.lines().find_map(|line| {
            line.split_once(':').filter(|(key, _)| key.trim() == name)?.1.trim().parse().ok()
        })
    };
    let minor: u32 = value("DeviceFileMinor").ok_or_else(|| error("it names no DeviceFileMinor".into()))?;
    Ok(DeviceNode {
        path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
        host_path: None,
        kind: Some("c".into()),
        major: Some(major),
        minor: Some(minor),
        file_mode: Some(value("DeviceFileMode").unwrap_or(FILE_MODE)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_the_driver() {
        let directory = tempfile::tempdir().unwrap();
        let roots = Roots { proc: directory.path().to_owned(), ..Roots::default() };
        let capabilities = directory.path().join("driver/nvidia/capabilities/gpu3/mig/gi5/ci0");
        fs::create_dir_all(&capabilities).unwrap();
        let error = partition_nodes(&roots, 3, 5, 0).unwrap_err().to_string();
        assert!(error.contains("nvidia-caps"), "{error}");

        fs::write(directory.path().join("devices"), "Character devices:\n195 nvidia\n509 nvidia-caps\n")
            .unwrap();
        let access =
            |minor: u32| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(capabilities.join("../access"), access(48)).unwrap();
        let error = partition_nodes(&roots, 3, 5, 0).unwrap_err().to_string();
        assert!(error.contains("gi5/ci0/access"), "{error}");
        fs::write(capabilities.join("access"), access(49)).unwrap();
        let nodes: Vec<_> = partition_nodes(&roots, 3, 5, 0)
            .unwrap()
            .into_iter()
            .map(|node| (node.path, node.major.unwrap(), node.minor.unwrap(), node.file_mode.unwrap()))
            .collect();
        assert_eq!(
            nodes,
            [
                ("/dev/nvidia-caps/nvidia-cap48".to_owned(), 509, 48, 0o444),
                ("/dev/nvidia-caps/nvidia-cap49".to_owned(), 509, 49, 0o444),
            ]
        );
        fs::write(capabilities.join("access"), "nonsense").unwrap();
        assert!(partition_nodes(&roots, 3, 5, 0).is_err());
    }
}
