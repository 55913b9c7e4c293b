//! Writes reports on claims, one after another.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tessera_dra_kubelet::ClaimReference;
use tessera_kube_util::backoff::Backoff;
use tessera_kube_util::error_text::with_causes;
use tokio::sync::mpsc;

use super::Told;
use super::entries::entries;
use crate::prepare::PrepareError;
use crate::prepare::claim::{Found, api};

/// Number of tries of a write after a conflict with a change of the claim or while the API server is unavailable.
const TRIES: u32 = 3;

pub(super) struct Writer {
    client: Client,
    driver_name: String,
    /// Contains the driver's name, so entries of another driver of ours in the same claim stay.
    field_manager: String,
    patience: Duration,
    /// The last write was refused and the refusal was logged.
    is_refused: bool,
}

/// Why something was not written.
pub(super) struct Unwritten {
    pub(super) reason: String,
    pub(super) may_pass: bool,
}

impl Writer {
    pub(super) fn new(client: Client, driver_name: &str, patience: Duration) -> Self {
        let field_manager = format!("{driver_name}/kubelet-plugin");
        Self { client, driver_name: driver_name.to_owned(), field_manager, patience, is_refused: false }
    }

    /// Writes until all senders of the queue are dropped.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Told>) {
        while let Some(told) = queue.recv().await {
            let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
            let result = loop {
                match self.write(&told).await {
                    Err(error) if error.may_pass && backoff.attempts() + 1 < TRIES => backoff.sleep().await,
                    result => break result,
                }
            };
            self.report(&told.claim, result);
        }
    }

    async fn write(&self, told: &Told) -> Result<(), Unwritten> {
        let Found::Claim(found) = api::get(&self.client, &told.claim, self.patience).await? else {
            return Ok(());
        };
        let allocation = found.status.as_ref().and_then(|status| status.allocation.as_ref());
        if allocation != told.allocation.as_ref() {
            return Ok(());
        }
        // Conditions have whole seconds.
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        match entries(&found, &self.driver_name, &told.outcome, Time(now)) {
            Some(entries) => {
                let (client, patience) = (&self.client, self.patience);
                apply(client, &self.field_manager, patience, &told.claim, &found, &entries).await
            }
            None => Ok(()),
        }
    }

    fn report(&mut self, claim: &ClaimReference, result: Result<(), Unwritten>) {
        match result {
            Ok(()) => self.is_refused = false,
            Err(Unwritten { reason, .. }) if !std::mem::replace(&mut self.is_refused, true) => {
                tracing::warn!(%claim, error = reason, "cannot tell in status.devices of claims what cannot be prepared");
            }
            Err(Unwritten { reason, .. }) => {
                tracing::debug!(%claim, error = reason, "cannot write status.devices")
            }
        }
    }
}

/// Makes these the field manager's only entries, unless the claim has changed since `found`.
pub(super) async fn apply(
    client: &Client,
    field_manager: &str,
    patience: Duration,
    claim: &ClaimReference,
    found: &ResourceClaim,
    entries: &[AllocatedDeviceStatus],
) -> Result<(), Unwritten> {
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "resourceVersion": found.metadata.resource_version,
        },
        "status": {"devices": entries},
    });
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.namespace);
    let parameters = PatchParams::apply(field_manager).force();
    let patch = Patch::Apply(patch);
    let applied = claims.patch_status(&claim.name, &parameters, &patch);
    match tokio::time::timeout(patience, applied).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) => Err(Unwritten {
            may_pass: matches!(status.code, 408 | 409 | 429 | 500..),
            reason: format!("{} ({})", status.message, status.code),
        }),
        Ok(Err(error)) => Err(Unwritten { reason: with_causes(&error), may_pass: true }),
        Err(_) => Err(Unwritten { reason: format!("no answer within {patience:?}"), may_pass: true }),
    }
}

impl From<PrepareError> for Unwritten {
    fn from(error: PrepareError) -> Self {
        Self { reason: with_causes(&error), may_pass: error.may_pass() }
    }
}
