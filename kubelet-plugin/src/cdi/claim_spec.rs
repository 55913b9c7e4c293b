//! Builds the CDI spec of a claim.

use tessera_api::PciBusId;

use super::device_nodes;
use super::version::minimum_version;
use super::{ContainerEdits, Device, DeviceNode, DriverFiles, Mount, OtherDriver, Roots, Spec, Vendor};
use tessera_journal::ClaimMps;

/// A device of a claim, with everything its spec needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSpecDevice {
    /// Its name in the spec, by [`device_name`](super::device_name).
    pub name: String,
    /// Its name in its pool.
    pub device: String,
    /// Address of its card.
    pub card: PciBusId,
    /// `N` of the card's `/dev/nvidiaN`.
    pub minor: u32,
    /// UUID of the device for CUDA programs.
    pub uuid: String,
    /// The capability nodes of a partition ([`partition_nodes`](super::partition_nodes)); `None` for a whole card.
    pub partition_nodes: Option<Vec<DeviceNode>>,
    /// Daemon and limits, if the device is shared by MPS.
    pub mps: Option<ClaimMps>,
}

/// The spec of one claim, with the node's devices of other drivers. Blocks: device nodes are looked up.
#[must_use]
pub fn claim_spec(
    vendor: &Vendor,
    roots: &Roots,
    devices: &[ClaimSpecDevice],
    files: &DriverFiles,
    other_drivers: &[OtherDriver],
) -> Spec {
    let mut spec = Spec {
        cdi_version: String::new(),
        kind: vendor.kind(),
        devices: Vec::with_capacity(devices.len()),
        container_edits: files.edits.clone(),
    };
    spec.container_edits.device_nodes = device_nodes::control(roots);
    for driver in other_drivers {
        driver.add(roots, &mut spec.container_edits);
    }
    let void = "NVIDIA_VISIBLE_DEVICES=void";
    if !spec.container_edits.env.iter().any(|variable| variable == void) {
        spec.container_edits.env.insert(0, void.to_owned());
    }
    for device in devices {
        // A device may serve two requests of a claim; for the container runtime it is one device.
        if spec.devices.iter().any(|known| known.name == device.name) {
            continue;
        }
        let device_nodes = match &device.partition_nodes {
            None => device_nodes::card(roots, device.card, device.minor),
            Some(capabilities) => {
                let card = device_nodes::card_of_partition(roots, device.minor);
                std::iter::once(card).chain(capabilities.iter().cloned()).collect()
            }
        };
        spec.devices.push(Device {
            name: device.name.clone(),
            container_edits: with_mps(
                ContainerEdits {
                    env: vec![format!("{}={}", variable(&device.device), device.uuid)],
                    device_nodes,
                    ..ContainerEdits::default()
                },
                device.mps.as_ref(),
            ),
        });
    }
    spec.cdi_version = minimum_version(&spec).to_owned();
    spec
}

/// Where a container finds its MPS daemon. CUDA looks here by default.
const PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";

/// Makes a container a client of an MPS daemon, with limits for each of its processes. A memory limit refers to
/// device 0, so is only set for a daemon with a single device.
fn with_mps(mut edits: ContainerEdits, mps: Option<&ClaimMps>) -> ContainerEdits {
    let Some(mps) = mps else { return edits };
    edits.env.push(format!("CUDA_MPS_PIPE_DIRECTORY={PIPE_DIRECTORY}"));
    let limit = mps.memory_limit_mib.map(|limit| format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={limit}M"));
    let compute = match &mps.static_partition {
        Some(partition) => Some(format!("CUDA_MPS_SM_PARTITION={partition}")),
        None => {
            mps.active_thread_percentage.map(|percent| format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}"))
        }
    };
    edits.env.extend(limit.into_iter().chain(compute));
    let mount = |host: &String, container: &str, access: &str| Mount {
        host_path: host.clone(),
        container_path: container.to_owned(),
        options: [access, "nosuid", "nodev", "bind"].map(str::to_owned).to_vec(),
        kind: None,
    };
    // Read-only is enough: connecting to a socket and writing into a named pipe need only the file's permissions. So
    // a container running as root can't plant files where the next daemon, root on the node, makes its
    // own.
    edits.mounts.extend(mps.pipe_directory.iter().map(|host| mount(host, PIPE_DIRECTORY, "ro")));
    edits.mounts.extend(mps.shm_directory.iter().map(|host| mount(host, "/dev/shm", "rw")));
    edits
}

/// Name of the variable for a device: `GPU_DEVICE_3B_00` for `gpu-3b-00`.
fn variable(device: &str) -> String {
    let name = device.strip_prefix("gpu-").unwrap_or(device);
    format!("GPU_DEVICE_{}", name.replace('-', "_").to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdi::{DriverFilesSource, device_name};

    fn device(name: &str, address: &str, minor: u32) -> ClaimSpecDevice {
        ClaimSpecDevice {
            name: device_name("uid", name, None),
            device: name.into(),
            card: address.parse().unwrap(),
            minor,
            uuid: format!("GPU-{minor}"),
            partition_nodes: None,
            mps: None,
        }
    }

    #[test]
    fn each_device_brings_its_own_card_only() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let roots = Roots { dev: root.clone(), sysfs: root.clone(), proc: root.clone(), ..Roots::default() };
        std::fs::create_dir(root.join("dev")).unwrap();
        std::os::unix::fs::symlink("/dev/null", root.join("dev/gdrdrv")).unwrap();
        let files = DriverFiles {
            edits: ContainerEdits::default(),
            source: DriverFilesSource::Search,
            unsafe_tool: None,
        };
        let devices = [
            device("gpu-3b-00", "0000:3b:00.0", 0),
            device("gpu-0008-01-00", "0008:01:00.0", 7),
            device("gpu-3b-00", "0000:3b:00.0", 0),
        ];
        let spec = claim_spec(
            &Vendor::new("gpu.tessera.dev").unwrap(),
            &roots,
            &devices,
            &files,
            &[OtherDriver::Gdrcopy],
        );

        assert_eq!(spec.kind, "gpu.tessera.dev/claim");
        // A node whose path on the host differs needs this version.
        assert_eq!(spec.cdi_version, "0.5.0");
        let cards: Vec<_> = spec
            .devices
            .iter()
            .map(|device| {
                let nodes: Vec<_> =
                    device.container_edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
                (device.name.as_str(), nodes, device.container_edits.env.clone())
            })
            .collect();
        assert_eq!(
            cards,
            [
                ("uid-gpu-3b-00", vec!["/dev/nvidia0"], vec!["GPU_DEVICE_3B_00=GPU-0".to_owned()]),
                ("uid-gpu-0008-01-00", vec!["/dev/nvidia7"], vec!["GPU_DEVICE_0008_01_00=GPU-7".to_owned()]),
            ]
        );
        assert_eq!(spec.container_edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
        let common: Vec<_> =
            spec.container_edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(common, ["/dev/nvidiactl", "/dev/gdrdrv"]);
    }
}
