//! Reports permanent errors of preparing devices in a claim's `status.devices`, and their end.
//!
//! A task of its own writes, so no work on a claim waits for a write or fails with one. The task reads the claim again first, so
//! nothing is reported about a former allocation. A failed write is repeated after the next attempt. A claim prepared at once
//! costs no request.

mod entries;
pub(in crate::prepare) mod usage_condition;
mod writer;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use kube::Client;
use tessera_api::limits;
use tessera_dra_kubelet::ClaimReference;
use tessera_kube_util::error_text::{shorten, with_causes};
use tokio::sync::mpsc;

use crate::prepare::{PrepareError, PrepareOptions};
use entries::Outcome;
use writer::Writer;

/// Length of the queue. Reports without room in the queue are sent again after the next attempt.
const QUEUE: usize = 128;

/// Reports the outcome of preparing claims. The task ends when this is dropped.
#[derive(Debug)]
pub(in crate::prepare) struct DeviceStatus {
    driver_name: String,
    queue: mpsc::Sender<Told>,
    /// UIDs of claims last reported as failed. Reads of a claim may not show the report yet.
    failed: Mutex<HashSet<String>>,
}

/// A report on a claim.
#[derive(Debug)]
struct Told {
    claim: ClaimReference,
    /// The allocation reported on. A claim with another allocation gets no report.
    allocation: Option<AllocationResult>,
    outcome: Outcome,
}

impl DeviceStatus {
    /// Starts the writing task.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(client: Client, options: &PrepareOptions) -> Self {
        let (queue, told) = mpsc::channel(QUEUE);
        let driver_name = options.driver_name.clone();
        tokio::spawn(Writer::new(client, &driver_name, options.patience).run(told));
        Self { driver_name, queue, failed: Mutex::default() }
    }

    /// A claim was prepared. `found` is the claim as read for Prepare, if the read succeeded.
    pub fn prepared(&self, claim: &ClaimReference, found: Option<&ResourceClaim>) {
        let Some(found) = found else { return };
        let was_told = self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(&claim.uid);
        if was_told || entries::says_failed(found, &self.driver_name) {
            self.tell(claim, found, Outcome::Prepared);
        }
    }

    /// Preparing a claim failed.
    pub fn failed(&self, claim: &ClaimReference, found: Option<&ResourceClaim>, error: &PrepareError) {
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
    pub fn forget(&self, uid: &str) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn tell(&self, claim: &ClaimReference, found: &ResourceClaim, outcome: Outcome) {
        let allocation = found.status.as_ref().and_then(|status| status.allocation.clone());
        if self.queue.try_send(Told { claim: claim.clone(), allocation, outcome }).is_err() {
            tracing::debug!("too much to tell of claims: the next attempt at this one tells again");
        }
    }
}
