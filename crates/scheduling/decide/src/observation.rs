//! Events for the decision loop.

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_cluster::{Key, Kind, Object, ObjectError};
use tessera_placement::Time;

use crate::intent::{ClaimReference, PodReference, WorkloadReference};

/// An event for the decision loop.
#[derive(Debug, Clone)]
pub enum Observation {
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object was deleted.
    Deleted(Kind, Key),
    /// An object was added or changed but cannot be read. The object counts as absent, and pods using it report the error.
    Unreadable {
        /// Kind of the object.
        kind: Kind,
        /// Namespace and name.
        key: Key,
        /// Why the object cannot be read.
        why: String,
        /// The readable part of a claim holding devices: these devices count as taken.
        holds: Option<Box<ResourceClaim>>,
    },
    /// Outcome of the writes of an intent for a pod. After a failure, the pod is decided again after a pause.
    Carried {
        /// The pod.
        pod: PodReference,
        /// Whether all writes succeeded.
        is_done: bool,
        /// Claims whose allocation was written, each with its resource version after the write.
        versions: Vec<(Key, String)>,
    },
    /// Outcome of [`crate::Intent::Fence`] or [`crate::Intent::Clear`] for these claims.
    ClaimsWritten {
        /// The claims.
        claims: Vec<Key>,
        /// Whether all writes succeeded.
        is_done: bool,
    },
    /// The API server refused to change a claim for a lasting reason: too many annotations, or a policy. The request was sent
    /// once and answered, so it had no effect and will have none.
    ClaimRefused {
        /// The claim, in the refused version.
        claim: ClaimReference,
        /// The pod whose devices were to be written; `None` for [`crate::Intent::Fence`] and [`crate::Intent::Clear`].
        pod: Option<PodReference>,
        /// Error from the API server.
        why: String,
    },
    /// The API server refused to change the pod for a lasting reason: too many annotations, or a policy. Observed before
    /// [`Observation::Carried`].
    PodRefused {
        /// The pod.
        pod: PodReference,
        /// Error from the API server.
        why: String,
    },
    /// Outcome of [`crate::Intent::Evict`].
    Evicted {
        /// The pod.
        pod: PodReference,
        /// Whether the eviction was accepted.
        is_done: bool,
    },
    /// Outcome of [`crate::Intent::Answer`].
    Answered {
        /// The Workload.
        workload: WorkloadReference,
        /// Whether all writes succeeded.
        is_done: bool,
    },
    /// All claims were listed again: each was observed as of `asked_at` or later, or as deleted.
    ClaimsListed {
        /// When the list was requested from the API server.
        asked_at: Time,
    },
}

/// Why an observation cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObservationError {
    /// The object contains a value the API server would not accept.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A slice's annotation is not a valid node report; the node counts as having no pools.
    #[error(
        "ResourceSlice {slice}: the annotation {} is no node report: {error}",
        tessera_api::node_report::ANNOTATION
    )]
    Report {
        /// Name of the slice.
        slice: String,
        /// Parse error.
        error: String,
    },
}
