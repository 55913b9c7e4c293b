//! Why an intent was not carried out.

use tessera_decide::ClaimReference;

use super::PATIENCE;

/// Why an intent was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Another replica is the leader now.
    #[error("another replica leads")]
    NotLeading,
    /// A claim is gone.
    #[error("a ResourceClaim of the pod is gone")]
    ClaimGone,
    /// The API server rejects a change of a claim, and would reject a retry.
    #[error("ResourceClaim {} refuses to be changed: {why}", claim.key)]
    ClaimRefused {
        /// The claim.
        claim: ClaimReference,
        /// Message of the API server.
        why: String,
    },
    /// The API server rejects a change of the pod, and would reject a retry.
    #[error("the pod refuses to be changed: {0}")]
    PodRefused(String),
    /// No answer within [`PATIENCE`].
    #[error("no answer within {} s", PATIENCE.as_secs())]
    TimedOut,
    /// The API server rejected the write.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl WriteError {
    /// Classifies the error of a write to the claim. 403 and 422 mean a write without effect that would be rejected again, by a
    /// policy or because of the claim's content. A conflict may pass, and after other API server errors the effect is unknown.
    pub(super) fn of_claim(self, claim: &ClaimReference) -> Self {
        match self {
            WriteError::Api(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                WriteError::ClaimRefused { claim: claim.clone(), why: status.message.clone() }
            }
            other => other,
        }
    }

    /// As [`Self::of_claim`], for a write to the pod.
    pub(super) fn of_pod(self) -> Self {
        match self {
            WriteError::Api(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                WriteError::PodRefused(status.message.clone())
            }
            other => other,
        }
    }
}
