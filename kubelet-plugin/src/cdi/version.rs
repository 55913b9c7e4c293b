//! The version of the CDI format needed by a spec.

use super::{ContainerEdits, Spec};

/// The lowest version of the format with all features used by the spec, by the rules of the reference implementation
/// (`MinimumRequiredVersion`, whose floor is 0.3.0).
pub(super) fn minimum_version(spec: &Spec) -> &'static str {
    let edits = || {
        std::iter::once(&spec.container_edits)
            .chain(spec.devices.iter().map(|device| &device.container_edits))
    };
    let uses = |feature: fn(&ContainerEdits) -> bool| edits().any(feature);
    if uses(|edits| !edits.additional_gids.is_empty()) {
        return "0.7.0";
    }
    if spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.')) {
        return "0.6.0";
    }
    let starts_with_digit = |name: &str| !name.starts_with(|first: char| first.is_ascii_alphabetic());
    if spec.devices.iter().any(|device| starts_with_digit(&device.name))
        || uses(|edits| edits.device_nodes.iter().any(|node| node.host_path.is_some()))
    {
        return "0.5.0";
    }
    if uses(|edits| edits.mounts.iter().any(|mount| mount.kind.is_some())) {
        return "0.4.0";
    }
    "0.3.0"
}

#[cfg(test)]
mod tests {
    use crate::cdi::{Device, DeviceNode, Mount};

    use super::*;

    fn spec() -> Spec {
        Spec {
            cdi_version: String::new(),
            kind: "gpu.example.com/claim".into(),
            devices: vec![Device { name: "a1-gpu-3b-00".into(), container_edits: ContainerEdits::default() }],
            container_edits: ContainerEdits::default(),
        }
    }

    fn node(host_path: Option<&str>) -> DeviceNode {
        DeviceNode {
            path: "/dev/nvidia0".into(),
            host_path: host_path.map(str::to_owned),
            kind: Some("c".into()),
            major: Some(195),
            minor: Some(0),
            file_mode: None,
        }
    }

    #[test]
    fn as_low_as_the_content_allows() {
        assert_eq!(minimum_version(&spec()), "0.3.0");

        let mut typed_mount = spec();
        typed_mount.container_edits.mounts.push(Mount {
            host_path: "/a".into(),
            container_path: "/a".into(),
            options: vec![],
            kind: Some("tmpfs".into()),
        });
        assert_eq!(minimum_version(&typed_mount), "0.4.0");

        let mut digit = spec();
        digit.devices[0].name = "0a-gpu-3b-00".into();
        assert_eq!(minimum_version(&digit), "0.5.0");

        let mut plain_node = spec();
        plain_node.devices[0].container_edits.device_nodes.push(node(None));
        assert_eq!(minimum_version(&plain_node), "0.3.0");
        let mut host_path = spec();
        host_path.devices[0].container_edits.device_nodes.push(node(Some("/root/dev/nvidia0")));
        assert_eq!(minimum_version(&host_path), "0.5.0");

        let mut class = spec();
        class.kind = "gpu.example.com/claim.v1".into();
        assert_eq!(minimum_version(&class), "0.6.0");

        let mut gids = class;
        gids.container_edits.additional_gids.push(44);
        assert_eq!(minimum_version(&gids), "0.7.0");
    }
}
