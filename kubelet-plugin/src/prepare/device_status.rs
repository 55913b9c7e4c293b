//! Tells in a claim's `status.devices` which of its devices cannot be prepared for good, and when that is over.
//!
//! A task of its own writes: no work on a claim waits for it or fails with it. It reads the claim again before, so that
//! nothing is said of an allocation that is gone. What cannot be written is told again after the next attempt. A claim that
//! is prepared at once costs no request.

mod entries;
mod writer;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use kube::Client;
use tessera_api::limits;
use tessera_dra_kubelet::ClaimReference;
use tessera_kube_util::error_text::{shorten, with_causes};
use tokio::sync::mpsc;

use super::{PrepareError, PrepareOptions};
use entries::Outcome;
use writer::Writer;

/// Length of the queue. What does not fit is told after the next attempt.
const QUEUE: usize = 128;

/// Tells what becomes of claims. The task ends with it.
#[derive(Debug)]
pub(super) struct DeviceStatus {
    driver_name: String,
    queue: mpsc::Sender<Told>,
    /// UIDs of claims of which was last told that they cannot be prepared; what that wrote may not be seen yet.
    failed: Mutex<HashSet<String>>,
}

/// Something to tell of a claim.
#[derive(Debug)]
struct Told {
    claim: ClaimReference,
    /// What it is about: nothing is said of another allocation.
    allocation: Option<AllocationResult>,
    outcome: Outcome,
}

impl DeviceStatus {
    /// Starts the task that writes.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn start(client: Client, options: &PrepareOptions) -> Self {
        let (queue, told) = mpsc::channel(QUEUE);
        let driver_name = options.driver_name.clone();
        tokio::spawn(Writer::new(client, &driver_name, options.patience).run(told));
        Self { driver_name, queue, failed: Mutex::default() }
    }

    /// A claim was prepared. `found` is the claim as read for that, if it could be.
    pub(super) fn prepared(&self, claim: &ClaimReference, found: Option<&ResourceClaim>) {
        let Some(found) = found else { return };
        let was_told = self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(&claim.uid);
        if was_told || entries::says_failed(found, &self.driver_name) {
            self.tell(claim, found, Outcome::Prepared);
        }
    }

    /// Preparing a claim failed.
    pub(super) fn failed(&self, claim: &ClaimReference, found: Option<&ResourceClaim>, error: &PrepareError) {
        let (Some(found), Some(about)) = (found, error.about()) else { return };
        let devices = entries::devices(found, &self.driver_name, about);
        if devices.is_empty() {
            return;
        }
        let message = shorten(&with_causes(error), limits::CONDITION_MESSAGE_BYTES).to_owned();
        let outcome = Outcome::Failed { devices, reason: error.condition_reason(), message };
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.uid.clone());
        self.tell(claim, found, outcome);
    }

    /// Forgets a claim, whose entries go with its allocation.
    pub(super) fn forget(&self, uid: &str) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn tell(&self, claim: &ClaimReference, found: &ResourceClaim, outcome: Outcome) {
        let allocation = found.status.as_ref().and_then(|status| status.allocation.clone());
        if self.queue.try_send(Told { claim: claim.clone(), allocation, outcome }).is_err() {
            tracing::debug!("too much to tell of claims: the next attempt at this one tells again");
        }
    }
}
