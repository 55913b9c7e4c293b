//! State shared by all work on claims.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use tessera_card::Locks;
use tessera_inventory::Machine;
use tessera_journal::{ClaimRecord, Journal, JournalError, Stage};
use tessera_kube_util::events::Events;
use tessera_nvml::{DriverCalls, Nvml};
use tokio::sync::{Notify, broadcast, watch};
use tracing::Instrument as _;

use super::driver_files::Files;
use super::sharing::Sharing;
use crate::cdi;
use crate::driver::Driver;
use crate::prepare::claim::Profiles;
use crate::prepare::tell::{Activities, DeviceStatus, Unreleased, activity};
use crate::prepare::{Operation, Phase, PrepareError, PrepareObserver, PrepareOptions, blocking};

/// State shared by all work on claims: an `Attempt` works on one claim for the kubelet; the plugin's own work is in `upkeep`.
pub(in crate::prepare) struct Worker {
    pub options: PrepareOptions,
    pub client: Client,
    pub hardware: Driver,
    pub published: watch::Receiver<Option<Arc<Machine>>>,
    pub journal: Arc<Journal>,
    pub cdi: Arc<cdi::Directory>,
    pub locks: Locks,
    pub calls: DriverCalls,
    pub files: Files,
    pub profiles: Arc<Profiles>,
    pub sharing: Sharing,
    pub observer: Arc<dyn PrepareObserver>,
    pub events: Events,
    pub device_status: DeviceStatus,
    /// Notified when an MPS daemon may differ from the journal.
    pub unsettled: Notify,
    /// Running work on claims.
    pub activities: Activities,
    /// Ended claims still holding devices.
    pub unreleased: Unreleased,
    /// UIDs of claims after the release of their devices.
    pub released: broadcast::Sender<Arc<str>>,
    /// Number of ended pieces of work on claims.
    pub done: watch::Sender<u64>,
}

impl Worker {
    /// The claim's record; `None` for an unreadable one.
    pub async fn recorded(&self, uid: &str) -> Result<Option<ClaimRecord>, PrepareError> {
        Ok(self.record_or_damage(uid).await?.unwrap_or_default())
    }

    /// The claim's record, or the error for an unreadable record.
    pub async fn record_or_damage(
        &self,
        uid: &str,
    ) -> Result<Result<Option<ClaimRecord>, JournalError>, PrepareError> {
        let uid = uid.to_owned();
        match self.disk(move |journal, _| journal.claim(&uid)).await {
            Err(PrepareError::Journal(error)) if error.is_corrupt() => {
                tracing::warn!(%error, "replacing the record");
                Ok(Err(error))
            }
            recorded => Ok(Ok(recorded?)),
        }
    }

    /// Whether the claim of a record is prepared now. Devices prepared by an earlier boot are gone.
    pub fn is_prepared(&self, record: &ClaimRecord) -> bool {
        record.stage == Stage::Complete && record.boot_id == *self.journal.boot_id()
    }

    /// The driver.
    pub fn nvml(&self) -> Result<Arc<dyn Nvml>, PrepareError> {
        let nvml = self.hardware.borrow().clone();
        nvml.ok_or_else(|| {
            let reason = self.options.driver_reason.borrow().clone();
            PrepareError::NoDriver {
                reason: reason.unwrap_or_else(|| "its library is not open yet".to_owned()),
            }
        })
    }

    /// Runs a phase of the work and reports its duration.
    pub async fn timed<T, E>(
        &self,
        operation: Operation,
        phase: Phase,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let span = tracing::debug_span!("phase", phase = phase.as_str());
        let start = Instant::now();
        let entered = activity::enter(phase);
        let result = work.instrument(span).await;
        drop(entered);
        self.observer.phase(operation, phase, result.is_ok(), start.elapsed());
        result
    }

    /// Runs work on the journal or the CDI directory on a blocking thread.
    pub async fn disk<T, E>(
        &self,
        work: impl FnOnce(&Journal, &cdi::Directory) -> Result<T, E> + Send + 'static,
    ) -> Result<T, PrepareError>
    where
        T: Send + 'static,
        E: Into<PrepareError> + Send + 'static,
    {
        let (journal, cdi) = (self.journal.clone(), self.cdi.clone());
        blocking::run(move || work(&journal, &cdi)).await?.map_err(Into::into)
    }
}
