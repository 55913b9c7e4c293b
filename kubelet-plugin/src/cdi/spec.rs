//! The CDI spec format.

use serde::{Deserialize, Serialize};

/// A CDI spec file, in versions 0.3.0 to 1.0.0 of the format
/// (<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>). Omits fields neither written by Tessera
/// nor taken over from `nvidia-ctk`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the format, as low as the content allows: a runtime refuses specs newer than its own version.
    pub cdi_version: String,
    /// `<vendor>/<class>`.
    pub kind: String,
    /// Devices available to containers, by `<kind>=<name>`.
    pub devices: Vec<Device>,
    /// Edits for every container with any of the devices, applied once.
    #[serde(default, skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// One device of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Unique in its spec.
    pub name: String,
    /// Edits for a container with this device.
    pub container_edits: ContainerEdits,
}

/// Changes to a container's OCI spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEdits {
    /// `NAME=value`; replaces a variable of the image or the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes, with permission to use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Files and directories of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Programs of the host, run by the runtime while creating the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Supplementary groups of the container's process.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "additionalGids")]
    pub additional_gids: Vec<u32>,
}

/// A device node in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Its path in the container.
    pub path: String,
    /// Its path on the host, if different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `c` for a character device.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    /// Major number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// Minor number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Permission bits of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
}

/// A file or directory of the host in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Its path on the host.
    pub host_path: String,
    /// Its path in the container.
    pub container_path: String,
    /// Mount options, see mount(8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// File system type; bind mounts need none.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
}

/// A program of the host, run by the runtime while creating the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// The stage of the hook: `createContainer`, ….
    pub hook_name: String,
    /// The program.
    pub path: String,
    /// Its arguments, the program's name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Timeout in seconds, after which the program is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

impl ContainerEdits {
    /// Whether there are no edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
