//! Step 2: the claim, read from the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};

use crate::prepare::{ClaimReference, PrepareError};
use tessera_kube_util::error_text::with_causes;

/// At most this many pods of a claim get an Event about a wait, and are kept in its record.
const MOST_PODS: usize = 8;

/// Result of looking a claim up in the API.
#[derive(Debug)]
pub(in crate::prepare) enum Found {
    /// The requested claim.
    Claim(Box<ResourceClaim>),
    /// There is no claim with this name.
    Gone,
    /// Another claim has this name, with this UID.
    Other(String),
}

/// Reads a claim.
///
/// # Errors
/// [`PrepareError::Api`] if the API server doesn't answer in time, or answers with something other than a claim.
pub(in crate::prepare) async fn get(
    client: &Client,
    claim: &ClaimReference,
    patience: Duration,
) -> Result<Found, PrepareError> {
    let failed = |reason, may_pass| PrepareError::Api { claim: claim.to_string(), reason, may_pass };
    let claims = Api::<ResourceClaim>::namespaced(client.clone(), &claim.namespace);
    let answer = tokio::time::timeout(patience, claims.get_opt(&claim.name))
        .await
        .map_err(|_| failed(format!("no answer within {patience:?}"), true))?;
    match answer {
        Ok(Some(found)) => {
            let uid = found.metadata.uid.clone().unwrap_or_default();
            Ok(if uid == claim.uid { Found::Claim(Box::new(found)) } else { Found::Other(uid) })
        }
        Ok(None) => Ok(Found::Gone),
        Err(kube::Error::Api(status)) => {
            let may_pass = matches!(status.code, 408 | 429 | 500..);
            Err(failed(format!("{} ({})", status.message, status.code), may_pass))
        }
        Err(error) => {
            let may_pass = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
            Err(failed(with_causes(&error), may_pass))
        }
    }
}

/// The pods a claim is reserved for, as references for Events; only the first few, because a claim may have 256.
pub(in crate::prepare) fn pods(claim: &ResourceClaim) -> Vec<ObjectReference> {
    let reserved =
        claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    let pods = reserved.iter().filter(|consumer| {
        consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty()
    });
    let pod = |pod: &ResourceClaimConsumerReference| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    };
    pods.take(MOST_PODS).map(pod).collect()
}

/// When the claim's devices were allocated. If the API server does not keep the time (feature gate `DRADeviceBindingConditions`),
/// the claim's creation: the allocation was then or later.
pub(in crate::prepare) fn allocated_at(claim: &ResourceClaim) -> Option<Timestamp> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let allocated = allocation.and_then(|allocation| allocation.allocation_timestamp.as_ref());
    allocated.or(claim.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Whether a claim still allocated will be free soon: the claim is being deleted, or reserved for no pod.
pub(in crate::prepare) fn is_leaving(claim: &ResourceClaim) -> bool {
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
    claim.metadata.deletion_timestamp.is_some() || reserved.is_none_or(Vec::is_empty)
}
