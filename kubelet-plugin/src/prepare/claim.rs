use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};

use super::{ClaimReference, PrepareError};

/// What the API says of the claim that was asked for.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there.
    Claim(Box<ResourceClaim>),
    /// There is no claim of that name.
    Gone,
    /// There is another claim of that name, with this UID.
    Other(String),
}

/// Reads a claim.
///
/// # Errors
/// [`PrepareError::Api`] where the API server doesn't answer in time, or not with a claim.
pub(super) async fn get(
    client: &Client,
    claim: &ClaimReference,
    patience: Duration,
) -> Result<Found, PrepareError> {
    let failed = |reason| PrepareError::Api { claim: claim.to_string(), reason };
    let claims = Api::<ResourceClaim>::namespaced(client.clone(), &claim.namespace);
    let answer = tokio::time::timeout(patience, claims.get_opt(&claim.name))
        .await
        .map_err(|_| failed(format!("no answer within {patience:?}")))?;
    match answer {
        Ok(Some(found)) => {
            let uid = found.metadata.uid.clone().unwrap_or_default();
            Ok(if uid == claim.uid { Found::Claim(Box::new(found)) } else { Found::Other(uid) })
        }
        Ok(None) => Ok(Found::Gone),
        Err(kube::Error::Api(status)) => Err(failed(format!("{} ({})", status.message, status.code))),
        Err(error) => Err(failed(error.to_string())),
    }
}
