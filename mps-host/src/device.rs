//! UUIDs of devices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// UUID of a card (`GPU-…`) or a MIG partition (`MIG-…`), as reported by NVML and accepted by `CUDA_VISIBLE_DEVICES`.
/// Validated, because the UUID becomes the name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceUuid(String);

/// A text is not the UUID of a device.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no UUID of a card or partition; one looks like GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d")]
pub struct InvalidDeviceUuid(String);

impl DeviceUuid {
    /// Whether the device is a partition.
    #[must_use]
    pub fn is_partition(&self) -> bool {
        self.0.starts_with("MIG-")
    }

    /// The UUID in NVML's spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceUuid {
    type Err = InvalidDeviceUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uuid = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"));
        let groups: Vec<&str> = uuid.map(|uuid| uuid.split('-').collect()).unwrap_or_default();
        let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        if lengths == [8, 4, 4, 4, 12] && groups.iter().all(is_hex) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidDeviceUuid(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for DeviceUuid {
    type Error = InvalidDeviceUuid;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceUuid> for String {
    fn from(uuid: DeviceUuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_could_leave_the_directory_is_no_uuid() {
        let uuid: DeviceUuid = "MIG-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d".parse().unwrap();
        assert!(uuid.is_partition());
        for wrong in [
            "",
            "GPU-",
            "GPU-../../../../etc/passwd",
            "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4",
            "5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d",
            "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d/x",
            "GPU-5e3a1b2g-0d4f-4a6b-8c7d-9e0f1a2b3c4d",
        ] {
            assert!(wrong.parse::<DeviceUuid>().is_err(), "{wrong}");
        }
    }
}
