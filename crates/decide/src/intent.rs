use tessera_cluster::Key;

/// A pod, as opposed to others of the same name before and after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodReference {
    /// Namespace and name.
    pub key: Key,
    /// Uid; empty where the object had none. A write to a pod with another must fail.
    pub uid: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Propose a node for the pod (`status.nominatedNodeName`), then remove the gate. Its result must be observed.
    Steer {
        /// The pod.
        pod: PodReference,
        /// The node.
        node: String,
        /// Why this node, for the Event.
        why: String,
    },
    /// Remove the gate and propose nothing: kube-scheduler decides alone. Its result must be observed.
    Release {
        /// The pod.
        pod: PodReference,
        /// Why, for the Event.
        why: String,
    },
    /// Tell the pod's owner why it waits.
    Tell {
        /// The pod.
        pod: PodReference,
        /// Why.
        message: String,
    },
}

impl Intent {
    /// The pod it is about.
    #[must_use]
    pub fn pod(&self) -> &PodReference {
        match self {
            Intent::Steer { pod, .. } | Intent::Release { pod, .. } | Intent::Tell { pod, .. } => pod,
        }
    }
}
