//! Claims in the kubelet's calls, and their answers.

use std::collections::HashMap;
use std::fmt;

/// A claim reference of the kubelet (`dra.v1.Claim`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's `metadata.uid`.
    pub uid: String,
}

/// The form in messages: `namespace/name (uid)`.
impl fmt::Display for ClaimReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// One prepared device of a claim (`dra.v1.Device`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests satisfied by the device, without the subrequest's part (`req` of `req/sub`).
    pub request_names: Vec<String>,
    /// The device's pool.
    pub pool_name: String,
    /// The device's name in the pool.
    pub device_name: String,
    /// Fully qualified CDI names to be injected by the container runtime.
    pub cdi_device_ids: Vec<String>,
    /// The allocated share, for devices usable by several claims.
    pub share_id: Option<String>,
}

/// The answer for each requested claim, by UID.
pub type Answers<T, E> = HashMap<String, Result<T, E>>;
