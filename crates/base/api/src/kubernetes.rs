//! Releases of Kubernetes with differing schedulers or CEL expressions.

use std::fmt;

/// A release with a change in the results of kube-scheduler's allocator or of the CEL of DeviceClasses and ResourceClaims.
/// Facts: diffs of `k8s.io/dynamic-resource-allocation` and the changelogs of Kubernetes 1.36 and 1.37.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubernetesVersion {
    /// 1.36.3, the nearest known release for all earlier ones.
    V1_36_3,
    /// 1.36.4: counters of pools are told apart by driver.
    V1_36_4,
    /// 1.36.5 and later patches of 1.36: a claim with too many devices is refused in other words.
    V1_36_5,
    /// 1.37, the nearest known release for all later ones.
    #[default]
    V1_37,
}

/// Why a text is no version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version of Kubernetes, such as 1.37 or v1.36.3")]
pub struct NotAVersion(pub String);

/// Nodes with counters from which kube-scheduler before 1.37 takes a second or more for each pod with devices; the time grows with
/// the square of their number. Measured with eight H100 a node, on two cores: 0.1 s at 10 nodes, 1.1 s at 50, 3.4 s at 100.
pub const SLOW_FROM_NODES: usize = 50;

impl KubernetesVersion {
    /// All releases, oldest first.
    pub const ALL: [Self; 4] = [Self::V1_36_3, Self::V1_36_4, Self::V1_36_5, Self::V1_37];

    /// The release matching an API server of this version: `gitVersion` of its `/version`, such as `v1.36.3` or
    /// `v1.37.2-gke.1200`, or a short form, `1.37`. A minor version without a patch means its newest patch. Versions older or newer
    /// than the known ones map to the nearest ([`is_newer_than_known`] tells newer ones).
    ///
    /// # Errors
    /// The text does not begin with two numbers.
    pub fn of(text: &str) -> Result<Self, NotAVersion> {
        let (minor, patch) = numbers(text).ok_or_else(|| NotAVersion(text.to_owned()))?;
        Ok(match (minor, patch) {
            ((1, 36), None) => Self::V1_36_5,
            ((1, 36), Some(patch)) if patch >= 5 => Self::V1_36_5,
            ((1, 36), Some(4)) => Self::V1_36_4,
            (minor, _) if minor <= (1, 36) => Self::V1_36_3,
            _ => Self::V1_37,
        })
    }
}

impl KubernetesVersion {
    /// Whether kube-scheduler goes through the counters of all nodes for each node tried
    /// (`allocator_incubating.go` of `k8s.io/dynamic-resource-allocation` before 0.37: a slice with counters is relevant for every
    /// node), so that counters on [many nodes](SLOW_FROM_NODES) make it slow for the whole cluster.
    #[must_use]
    pub const fn counters_cost_every_node(self) -> bool {
        !matches!(self, Self::V1_37)
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_36_3 => "1.36.3",
            Self::V1_36_4 => "1.36.4",
            Self::V1_36_5 => "1.36.5",
            Self::V1_37 => "1.37",
        })
    }
}

impl std::str::FromStr for KubernetesVersion {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::of(text)
    }
}

/// Whether an API server of this version is newer than every release tried with Tessera. The newest known release is used
/// instead. `false` for a text without a version.
#[must_use]
pub fn is_newer_than_known(text: &str) -> bool {
    numbers(text).is_some_and(|(minor, _)| minor > (1, 37))
}

/// Major with minor number, and the patch if present.
fn numbers(text: &str) -> Option<((u32, u32), Option<u32>)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let mut parts = text[..end].split('.').map(|part| part.parse().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    Some(((major, minor), parts.next().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_api_servers_say() {
        for (text, version) in [
            ("v1.36.3", KubernetesVersion::V1_36_3),
            ("v1.35.9", KubernetesVersion::V1_36_3),
            ("v1.36.4-eks-1a2b", KubernetesVersion::V1_36_4),
            ("v1.36.6+k3s1", KubernetesVersion::V1_36_5),
            ("1.36", KubernetesVersion::V1_36_5),
            ("1.37", KubernetesVersion::V1_37),
            ("v1.37.2-gke.1200", KubernetesVersion::V1_37),
            ("v1.38.0-alpha.2", KubernetesVersion::V1_37),
        ] {
            assert_eq!(KubernetesVersion::of(text), Ok(version), "{text}");
        }
        for version in KubernetesVersion::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!(
            is_newer_than_known("v1.38.0") && !is_newer_than_known("v1.37.9") && !is_newer_than_known("x")
        );
        assert!(
            KubernetesVersion::ALL.map(KubernetesVersion::counters_cost_every_node)
                == [true, true, true, false]
        );
        for text in ["", "v1", "one.two", "1.x"] {
            assert_eq!(KubernetesVersion::of(text), Err(NotAVersion(text.to_owned())));
        }
    }
}
