/// A card's place in an NVLink fabric (`nvmlGpuFabricInfo`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fabric {
    /// How far the card's registration with the fabric got. Cluster and clique mean something only when completed.
    pub state: FabricState,
    /// UUID of the NVLink cluster, lower case with dashes. All zeros on a machine that is a fabric of its own.
    pub cluster_uuid: Option<String>,
    /// Number of the clique inside the cluster: cards of one clique reach each other.
    pub clique_id: u32,
}

/// Registration with the NVLink fabric (`nvmlGpuFabricState_t`; where that says "not supported" a card has no
/// [`Fabric`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FabricState {
    /// Not begun.
    NotStarted,
    /// Under way.
    InProgress,
    /// Done and successful.
    Completed,
    /// Done with an error (state completed, status not success).
    Failed,
}

impl Fabric {
    /// `<clusterUUID>.<cliqueId>` of a completed registration in a fabric that spans machines. `None` for the all-zero
    /// UUID: it is the same on every such machine, and their cards do not reach each other.
    #[must_use]
    pub fn domain(&self) -> Option<String> {
        let uuid =
            self.cluster_uuid.as_deref().filter(|uuid| uuid.bytes().any(|byte| !matches!(byte, b'0' | b'-')));
        match (self.state, uuid) {
            (FabricState::Completed, Some(uuid)) => Some(format!("{uuid}.{}", self.clique_id)),
            _ => None,
        }
    }
}
