use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::managed::{Nomination, RefusedNodes};
use tessera_cluster::Key;

/// A claim in one of its versions. A write to another uid or version must fail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimReference {
    /// Namespace and name.
    pub key: Key,
    /// Uid.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// Devices for a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimAllocation {
    /// The claim, which has none.
    pub claim: ClaimReference,
    /// `status.allocation`, but for the time.
    pub allocation: AllocationResult,
}

/// A pod, as opposed to others of the same name before and after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodReference {
    /// Namespace and name.
    pub key: Key,
    /// Uid; empty where the object had none. A write to a pod with another must fail.
    pub uid: String,
}

/// What is to be done. What became of each must be observed, but for [`Intent::Tell`],
/// [`Intent::Note`] and [`Intent::Nominate`].
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// Write these allocations, one after the other: to each claim the finalizer and the epoch, then its status. Then, where
    /// `lifts_gate`, propose the node and remove the gate.
    Allocate {
        /// The pod.
        pod: PodReference,
        /// The node of all of them.
        node: String,
        /// What the claims get. Empty where the pod has its devices, and only its gate is in its way.
        claims: Vec<ClaimAllocation>,
        /// The epoch of this term.
        epoch: String,
        /// Whether the pod has our gate, and is to lose it: that of a gang is kept until all of the gang have devices.
        lifts_gate: bool,
        /// Why this node, for the Event.
        why: String,
    },
    /// Take the devices of these claims back, where nobody has reserved them.
    Clear {
        /// The pod that uses them, if any is left.
        pod: Option<PodReference>,
        /// The claims.
        claims: Vec<ClaimReference>,
        /// Why, for the Event.
        why: String,
    },
    /// Write the epoch of this term on these claims.
    Fence {
        /// The claims, which have no devices.
        claims: Vec<ClaimReference>,
        /// The epoch.
        epoch: String,
    },
    /// Begin the watch of claims anew with a list that is not from the API server's cache; observe what it says, then
    /// [`crate::Observation::ClaimsListed`].
    ListClaims,
    /// Write on the pod what a restart must not forget of it and its like.
    Note {
        /// The pod.
        pod: PodReference,
        /// Until when nodes that refused them are left out.
        nodes: RefusedNodes,
        /// How many were evicted.
        evictions: u32,
    },
    /// Write on the pod what it will get when others that are in its way have ended, or, with `None`, that nothing is planned
    /// for it any more.
    Nominate {
        /// The pod.
        pod: PodReference,
        /// What it will get.
        nomination: Option<Nomination>,
    },
    /// Evict the pod (`policy/v1` Eviction).
    Evict {
        /// The pod.
        pod: PodReference,
        /// Why, for the Event.
        why: String,
    },
    /// Propose a node for the pod (`status.nominatedNodeName`), then remove the gate.
    Steer {
        /// The pod.
        pod: PodReference,
        /// The node.
        node: String,
        /// Why this node, for the Event.
        why: String,
    },
    /// Remove the gate and propose nothing: kube-scheduler decides alone.
    Release {
        /// The pod.
        pod: PodReference,
        /// Why, for the Event.
        why: String,
    },
    /// Tell the pod's owner something.
    Tell {
        /// The pod.
        pod: PodReference,
        /// What it is about.
        topic: Topic,
        /// What.
        message: String,
    },
}

/// What a pod's owner is told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Why it is not sent to a node.
    NotSteered,
    /// Why it gets no devices of managed cards.
    NotAllocated,
    /// A device of its claims has another owner.
    Overlap,
}

impl Intent {
    /// The pod it is about.
    #[must_use]
    pub fn pod(&self) -> Option<&PodReference> {
        match self {
            Intent::Allocate { pod, .. }
            | Intent::Note { pod, .. }
            | Intent::Evict { pod, .. }
            | Intent::Nominate { pod, .. }
            | Intent::Steer { pod, .. }
            | Intent::Release { pod, .. }
            | Intent::Tell { pod, .. } => Some(pod),
            Intent::Clear { pod, .. } => pod.as_ref(),
            Intent::Fence { .. } | Intent::ListClaims => None,
        }
    }
}
