//! Deadline and cancellation of the work on a claim.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::prepare::PrepareError;
use crate::prepare::claim::api;
use tessera_api::limits;
use tessera_journal::{ClaimMetadata, ClaimPod};

/// Grace period for a request in flight (to the API server, to the driver) after cancellation.
const GRACE: Duration = Duration::from_secs(1);

/// The annotation of a claim made from a template: the name of its entry in the pod's `resourceClaims`
/// (`PodResourceClaimAnnotation` in `k8s.io/api/resource/v1`).
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// Cancels work still waiting.
#[derive(Clone, Debug, Default)]
pub(in crate::prepare) struct Ending {
    /// The plugin is stopping.
    pub stopping: CancellationToken,
    /// The kubelet has since called the opposite operation.
    pub overtaken: CancellationToken,
}

/// How long the work on a claim may wait, and the claim as read from the API.
#[derive(Debug)]
pub(in crate::prepare) struct Call {
    /// When the kubelet must have its answer.
    pub deadline: Instant,
    pub ending: Ending,
    found: Mutex<Option<Arc<ResourceClaim>>>,
}

impl Ending {
    /// Returns the reason when the work is cancelled.
    pub async fn asked(&self) -> PrepareError {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => PrepareError::Stopping,
            () = self.overtaken.cancelled() => PrepareError::Overtaken,
        }
    }
}

impl Call {
    pub fn new(deadline: Instant, ending: Ending) -> Self {
        Self { deadline, ending, found: Mutex::default() }
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The time left, but at least `least`.
    pub fn time_left(&self, least: Duration) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(least)
    }

    /// Runs read-only work, and drops the work [`GRACE`] after cancellation.
    pub async fn unless_ended<T, E: From<PrepareError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let ended = async {
            let reason = self.ending.asked().await;
            tokio::time::sleep(GRACE).await;
            reason
        };
        tokio::select! {
            biased;
            result = work => result,
            reason = ended => Err(reason.into()),
        }
    }

    /// The claim as last read from the API.
    pub fn found(&self) -> Option<Arc<ResourceClaim>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_found(&self, found: Arc<ResourceClaim>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// The pods the claim is reserved for, in the form kept in its record.
    pub fn pods(&self) -> Vec<ClaimPod> {
        let pod = |pod: ObjectReference| Some(ClaimPod { name: pod.name?, uid: pod.uid? });
        self.consumers().into_iter().filter_map(pod).collect()
    }

    /// The claim's part of its metadata, as kept in its record.
    pub fn metadata(&self) -> ClaimMetadata {
        let pod_claim =
            |found: Arc<ResourceClaim>| found.metadata.annotations.as_ref()?.get(POD_CLAIM).cloned();
        // The name becomes part of a path.
        let pod_claim = self.found().and_then(pod_claim).filter(|name| limits::is_dns_label(name));
        ClaimMetadata { pod_claim }
    }

    /// The pods the claim is reserved for.
    pub fn consumers(&self) -> Vec<ObjectReference> {
        self.found().map(|found| api::pods(&found)).unwrap_or_default()
    }
}
