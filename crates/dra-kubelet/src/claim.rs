//! What the kubelet says of claims, and what it is answered.

use std::collections::HashMap;
use std::fmt;

/// What the kubelet says of a claim (`dra.v1.Claim`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's `metadata.uid`.
    pub uid: String,
}

/// As messages name a claim: `namespace/name (uid)`.
impl fmt::Display for ClaimReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// One prepared device of a claim (`dra.v1.Device`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests it satisfies, without the subrequest's part (`req` of `req/sub`).
    pub request_names: Vec<String>,
    /// The pool it was published in.
    pub pool_name: String,
    /// Its name in that pool.
    pub device_name: String,
    /// Fully qualified CDI names that the container runtime injects.
    pub cdi_device_ids: Vec<String>,
    /// The allocated share, for devices that several claims may use.
    pub share_id: Option<String>,
}

/// The answer for each claim UID that was asked for.
pub type Answers<T, E> = HashMap<String, Result<T, E>>;
