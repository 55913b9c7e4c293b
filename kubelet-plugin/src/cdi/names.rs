//! Names in and of CDI specs.

use std::fmt;

use super::CdiError;

/// The class of the specs of claims: kind `<driver>/claim`.
pub const CLASS: &str = "claim";

/// The class of the specs of claims' metadata: kind `<driver>/metadata`, as in Kubernetes' own library for drivers.
pub(super) const METADATA_CLASS: &str = "metadata";

/// A driver name as a CDI vendor: the first part of our specs' kinds and file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendor(String);

impl Vendor {
    /// The vendor of a driver.
    ///
    /// # Errors
    /// [`CdiError::Vendor`] if the name is not allowed as a CDI vendor: its first character must be a letter.
    pub fn new(driver_name: &str) -> Result<Self, CdiError> {
        let letter = |byte: u8| byte.is_ascii_alphabetic();
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let bytes = driver_name.as_bytes();
        let valid = bytes.first().is_some_and(|first| letter(*first))
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|byte| inner(*byte));
        if valid { Ok(Self(driver_name.to_owned())) } else { Err(CdiError::Vendor(driver_name.to_owned())) }
    }

    /// `<driver>/claim`.
    #[must_use]
    pub fn kind(&self) -> String {
        format!("{}/{CLASS}", self.0)
    }

    /// The fully qualified name of a claim's device, passed by the kubelet to the container runtime.
    #[must_use]
    pub fn device_id(&self, device_name: &str) -> String {
        format!("{}/{CLASS}={device_name}", self.0)
    }

    /// File name of a claim's spec, by CDI's convention for transient specs: `<vendor>-<class>_<id>.json`.
    pub(super) fn file_name(&self, uid: &str) -> String {
        format!("{}-{CLASS}_{uid}.json", self.0)
    }

    /// File name of the spec of a claim's metadata.
    pub(super) fn metadata_file_name(&self, uid: &str) -> String {
        format!("{}-{METADATA_CLASS}_{uid}.json", self.0)
    }

    /// The claim's UID from the file name of its spec or of its metadata's spec; `None` if the file is not ours.
    pub(super) fn uid<'a>(&self, file_name: &'a str) -> Option<&'a str> {
        let (vendor, uid) =
            vendor_and_uid(file_name, CLASS).or_else(|| vendor_and_uid(file_name, METADATA_CLASS))?;
        (vendor == self.0).then_some(uid)
    }

    /// Driver name and claim UID from the file name of a spec possibly written by another installation of Tessera,
    /// under another driver name.
    pub(super) fn other<'a>(&self, file_name: &'a str) -> Option<(&'a str, &'a str)> {
        vendor_and_uid(file_name, CLASS)
            .filter(|(vendor, _)| *vendor != self.0 && Vendor::new(vendor).is_ok())
    }
}

/// Vendor and UID of `<vendor>-<class>_<uid>.json`. A driver's name is a DNS name, so contains no `_`.
fn vendor_and_uid<'a>(file_name: &'a str, class: &str) -> Option<(&'a str, &'a str)> {
    let (vendor, uid) = file_name.strip_suffix(".json")?.split_once('_')?;
    let vendor = vendor.strip_suffix(class)?.strip_suffix('-')?;
    (!uid.is_empty() && !vendor.is_empty()).then_some((vendor, uid))
}

impl fmt::Display for Vendor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A device's name in the spec of its claim: `<uid>-<device>[-<share id>]`, unique on the node.
#[must_use]
pub fn device_name(uid: &str, device: &str, share_id: Option<&str>) -> String {
    match share_id {
        None => format!("{uid}-{device}"),
        Some(share_id) => format!("{uid}-{device}-{share_id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_the_convention() {
        let vendor = Vendor::new("gpu.tessera.dev").unwrap();
        assert_eq!(vendor.kind(), "gpu.tessera.dev/claim");
        assert_eq!(vendor.device_id("u-gpu-3b-00"), "gpu.tessera.dev/claim=u-gpu-3b-00");
        assert_eq!(vendor.file_name("u-1"), "gpu.tessera.dev-claim_u-1.json");
        assert_eq!(device_name("u", "gpu-3b-00", None), "u-gpu-3b-00");
        assert_eq!(device_name("u", "gpu-3b-00-ts", Some("s")), "u-gpu-3b-00-ts-s");
    }

    #[test]
    fn only_our_own_files_are_ours() {
        let vendor = Vendor::new("gpu.tessera.dev").unwrap();
        assert_eq!(vendor.uid("gpu.tessera.dev-claim_u-1.json"), Some("u-1"));
        assert_eq!(vendor.uid(&vendor.metadata_file_name("u-1")), Some("u-1"));
        for other in [
            "gpu.tessera.dev-claim_.json",
            "gpu.tessera.dev-claim_u.yaml",
            "gpu.tessera.dev-claims_u.json",
            "other.gpu.tessera.dev-claim_u.json",
            ".gpu.tessera.dev-claim_u.json.new",
            "k8s.gpu.nvidia.com-claim_u.yaml",
            "nvidia.json",
        ] {
            assert_eq!(vendor.uid(other), None, "{other}");
        }
    }

    #[test]
    fn files_of_other_installations() {
        let vendor = Vendor::new("gpu.tessera.dev").unwrap();
        assert_eq!(vendor.other("gpu.nvidia.com-claim_u-1.json"), Some(("gpu.nvidia.com", "u-1")));
        for other in [
            "gpu.tessera.dev-claim_u-1.json",
            "gpu.nvidia.com-metadata_u-1.json",
            ".gpu.nvidia.com-claim_u.json.new",
            "-claim_u.json",
            "nvidia.json",
        ] {
            assert_eq!(vendor.other(other), None, "{other}");
        }
    }

    #[test]
    fn vendors_that_cdi_refuses() {
        for name in ["", "3com.example", "-a", "a-", "a/b", "a b"] {
            assert!(Vendor::new(name).is_err(), "{name:?}");
        }
    }
}
