//! What all work on claims shares.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use tessera_card::Locks;
use tessera_inventory::Machine;
use tessera_journal::{ClaimRecord, Journal, Stage};
use tessera_kube_util::events::Events;
use tessera_nvml::{DriverCalls, Nvml};
use tokio::sync::{Notify, broadcast, watch};
use tracing::Instrument as _;

use super::driver_files::Files;
use super::need::Profiles;
use super::sharing::Sharing;
use super::{Operation, Phase, PrepareError, PrepareObserver, PrepareOptions, blocking};
use crate::cdi;
use crate::driver::Driver;

/// What all work on claims shares. An [`Attempt`](super::attempt::Attempt) works on one claim for the kubelet; what the
/// plugin does by itself (recover, repair, sweep, specs, MPS) is in files named after it.
pub(super) struct Worker {
    pub(super) options: PrepareOptions,
    pub(super) client: Client,
    pub(super) hardware: Driver,
    pub(super) published: watch::Receiver<Option<Arc<Machine>>>,
    pub(super) journal: Arc<Journal>,
    pub(super) cdi: Arc<cdi::Directory>,
    pub(super) locks: Locks,
    pub(super) calls: DriverCalls,
    pub(super) files: Files,
    pub(super) profiles: Arc<Profiles>,
    pub(super) sharing: Sharing,
    pub(super) observer: Arc<dyn PrepareObserver>,
    pub(super) events: Events,
    /// Tells that an MPS daemon may not be as the journal says.
    pub(super) unsettled: Notify,
    /// UIDs of claims that hold nothing any more.
    pub(super) released: broadcast::Sender<Arc<str>>,
}

impl Worker {
    /// The claim's record; none where it can't be understood.
    pub(super) async fn recorded(&self, uid: &str) -> Result<Option<ClaimRecord>, PrepareError> {
        Ok(self.record_or_damage(uid).await?.unwrap_or_default())
    }

    /// Whether a record says that the claim is prepared now: what an earlier boot prepared is gone.
    pub(super) fn is_prepared(&self, record: &ClaimRecord) -> bool {
        record.stage == Stage::Complete && record.boot_id == *self.journal.boot_id()
    }

    /// The driver.
    pub(super) fn nvml(&self) -> Result<Arc<dyn Nvml>, PrepareError> {
        self.hardware.borrow().clone().ok_or(PrepareError::NoDriver)
    }

    /// Does a phase of the work and tells how long it took.
    pub(super) async fn timed<T, E>(
        &self,
        operation: Operation,
        phase: Phase,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let span = tracing::debug_span!("phase", phase = phase.as_str());
        let start = Instant::now();
        let result = work.instrument(span).await;
        self.observer.phase(operation, phase, result.is_ok(), start.elapsed());
        result
    }

    /// Runs what reads or writes the journal or the CDI directory, on a thread that may block.
    pub(super) async fn disk<T, E>(
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
