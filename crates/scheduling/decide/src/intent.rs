use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::managed::{Nomination, RefusedNodes};
use tessera_cluster::Key;

/// A claim in one of its versions. A write must fail if the uid or version differs.
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
    /// The claim, still without an allocation.
    pub claim: ClaimReference,
    /// `status.allocation` without `allocationTimestamp`.
    pub allocation: AllocationResult,
}

/// A pod, distinguished by uid from earlier and later pods of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodReference {
    /// Namespace and name.
    pub key: Key,
    /// Uid; empty where the object had none. A write to a pod with another uid must fail.
    pub uid: String,
}

/// One of Kueue's Workloads in one of its versions. A write must fail if the uid or version differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadReference {
    /// The version of the API when read.
    pub api_version: String,
    /// Namespace and name.
    pub key: Key,
    /// Uid.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// An action for the caller to carry out. Its outcome must be observed, except for [`Intent::Tell`], [`Intent::Note`] and
/// [`Intent::Nominate`].
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// Write these allocations one after the other: to each claim first the finalizer and the epoch, then its status. With
    /// `lifts_gate`, propose the node afterwards and remove the gate.
    Allocate {
        /// The pod.
        pod: PodReference,
        /// The node of all allocations.
        node: String,
        /// The allocations. Empty where the pod has its devices already and only its gate remains.
        claims: Vec<ClaimAllocation>,
        /// The epoch of this term.
        epoch: String,
        /// Whether to remove the pod's gate. Pods of a gang keep their gates until the whole gang has devices.
        lifts_gate: bool,
        /// Number of pods of the gang that start together, written on the pod with the removal of its gate
        /// ([`tessera_api::gang::FORMED_ANNOTATION`]); `None` for a pod outside gangs.
        formed: Option<usize>,
        /// Reason for the choice of node, for the Event.
        why: String,
    },
    /// Remove the allocations of these claims unless reserved.
    Clear {
        /// A remaining pod using the claims, if any.
        pod: Option<PodReference>,
        /// The claims.
        claims: Vec<ClaimReference>,
        /// Reason, for the Event.
        why: String,
    },
    /// Write the epoch of this term on these claims.
    Fence {
        /// The claims, without devices.
        claims: Vec<ClaimReference>,
        /// The epoch.
        epoch: String,
    },
    /// Restart the watch of claims with a list bypassing the API server's cache. Observe the listed claims, then
    /// [`crate::Observation::ClaimsListed`].
    ListClaims,
    /// Annotate the pod with facts about its owner's pods or its gang needed after a restart.
    Note {
        /// The pod.
        pod: PodReference,
        /// Nodes to avoid because they refused pods of the owner, each with an end time.
        nodes: RefusedNodes,
        /// Number of evicted pods of the owner.
        evictions: u32,
        /// Size of its gang, if less than the number written on the pod ([`tessera_api::gang::FORMED_ANNOTATION`]); `None`
        /// leaves the annotation as it is.
        formed: Option<usize>,
        /// Uid of the idle pod in whose place it was made ([`tessera_api::gpu_pool::IDLE_EVICTED_ANNOTATION`]); `None` leaves the
        /// annotation as it is.
        idle_evicted: Option<String>,
    },
    /// Write the devices planned for the pod once the pods in its way have ended. `None` withdraws the plan.
    Nominate {
        /// The pod.
        pod: PodReference,
        /// The planned node and devices.
        nomination: Option<Nomination>,
    },
    /// Evict the pod (`policy/v1` Eviction).
    Evict {
        /// The pod.
        pod: PodReference,
        /// Reason, for the Event.
        why: String,
    },
    /// Propose a node for the pod (`status.nominatedNodeName`), then remove the gate.
    Steer {
        /// The pod.
        pod: PodReference,
        /// The node.
        node: String,
        /// Reason for the choice of node, for the Event.
        why: String,
    },
    /// Remove the gate without proposing a node: kube-scheduler decides alone.
    Release {
        /// The pod.
        pod: PodReference,
        /// Reason, for the Event.
        why: String,
    },
    /// Send a message to the pod's owner, as an Event on the pod.
    Tell {
        /// The pod.
        pod: PodReference,
        /// Topic of the message.
        topic: Topic,
        /// Text of the message.
        message: String,
    },
    /// Answer an AdmissionCheck of Kueue: first write the room kept for the Workload's pods, then the checks.
    Answer {
        /// The Workload.
        workload: WorkloadReference,
        /// `status.admissionChecks`.
        checks: Vec<serde_json::Value>,
        /// The value of [`tessera_api::kueue::ROOM_ANNOTATION`], or nothing; `None` leaves the annotation as it is.
        room: Option<Option<String>>,
    },
}

/// Topic of a message to a pod's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Why the pod is not sent to a node.
    NotSteered,
    /// Why the pod gets no devices of managed cards.
    NotAllocated,
    /// A device of the pod's claims has another owner.
    Overlap,
    /// The pod does not use its devices, and is to be evicted.
    Idle,
}

impl Intent {
    /// The pod concerned by the intent.
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
            Intent::Fence { .. } | Intent::ListClaims | Intent::Answer { .. } => None,
        }
    }
}
