use std::fmt;

/// A card's membership in an NVLink fabric (`nvmlDeviceGetGpuFabricInfoV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fabric {
    /// Registration with the fabric manager. Cluster and clique are meaningful only once the registration is completed.
    pub state: FabricState,
    /// The fabric. All zeros on a machine forming a fabric of its own.
    pub cluster: ClusterUuid,
    /// The clique inside the cluster: cards of one clique reach each other.
    pub clique: u32,
}

/// Registration of a card with the fabric manager (`nvmlGpuFabricState_t`). A card whose driver answers "not supported"
/// has no [`Fabric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FabricState {
    /// Not begun: no fabric manager has been seen.
    NotStarted,
    /// Under way.
    InProgress,
    /// Done and successful.
    Completed,
    /// Done with an error (state completed, status not success).
    Failed,
}

/// The name of an NVLink fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterUuid(
    /// Its bytes, in the order of the text form.
    pub [u8; 16],
);

impl Fabric {
    /// `<clusterUUID>.<cliqueId>` of a completed registration in a fabric spanning machines. `None` for the all-zero
    /// UUID, shared by all machines forming fabrics of their own, whose cards do not reach each other.
    #[must_use]
    pub fn domain(&self) -> Option<String> {
        let spans_machines = self.cluster != ClusterUuid::default();
        (self.state == FabricState::Completed && spans_machines)
            .then(|| format!("{}.{}", self.cluster, self.clique))
    }
}

/// As `nvidia-smi` writes it: `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, in lower case.
impl fmt::Display for ClusterUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(formatter, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_uuid_text() {
        let bytes = std::array::from_fn(|position| u8::try_from(position).unwrap() * 0x11);
        assert_eq!(ClusterUuid(bytes).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn only_a_successful_registration_has_a_domain() {
        let fabric = Fabric { state: FabricState::Completed, cluster: ClusterUuid([1; 16]), clique: 1 };
        assert_eq!(fabric.domain().as_deref(), Some("01010101-0101-0101-0101-010101010101.1"));
        for state in [FabricState::NotStarted, FabricState::InProgress, FabricState::Failed] {
            assert_eq!(Fabric { state, ..fabric }.domain(), None);
        }
    }

    #[test]
    fn a_fabric_within_one_machine_has_no_domain() {
        let fabric = Fabric { state: FabricState::Completed, cluster: ClusterUuid::default(), clique: 1 };
        assert_eq!(fabric.domain(), None);
    }
}
