//! State shared by all work on claims.

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

use super::activity::{self, Activities};
use super::device_status::DeviceStatus;
use super::driver_files::Files;
use super::need::Profiles;
use super::sharing::Sharing;
use super::sweep::Unreleased;
use super::{Operation, Phase, PrepareError, PrepareObserver, PrepareOptions, blocking};
use crate::cdi;
use crate::driver::Driver;

/// State shared by all work on claims. An [`Attempt`](super::attempt::Attempt) works on one claim for the kubelet; the plugin's
/// own work (recover, repair, sweep, specs, MPS) is in files of the same names.
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
    pub(super) device_status: DeviceStatus,
    /// Notified when an MPS daemon may differ from the journal.
    pub(super) unsettled: Notify,
    /// Running work on claims.
    pub(super) activities: Activities,
    /// Ended claims still holding devices.
    pub(super) unreleased: Unreleased,
    /// UIDs of claims after the release of their devices.
    pub(super) released: broadcast::Sender<Arc<str>>,
}

impl Worker {
    /// The claim's record; `None` for an unreadable one.
    pub(super) async fn recorded(&self, uid: &str) -> Result<Option<ClaimRecord>, PrepareError> {
        Ok(self.record_or_damage(uid).await?.unwrap_or_default())
    }

    /// Whether the claim of a record is prepared now. Devices prepared by an earlier boot are gone.
    pub(super) fn is_prepared(&self, record: &ClaimRecord) -> bool {
        record.stage == Stage::Complete && record.boot_id == *self.journal.boot_id()
    }

    /// The driver.
    pub(super) fn nvml(&self) -> Result<Arc<dyn Nvml>, PrepareError> {
        let nvml = self.hardware.borrow().clone();
        nvml.ok_or_else(|| {
            let reason = self.options.driver_reason.borrow().clone();
            PrepareError::NoDriver {
                reason: reason.unwrap_or_else(|| "its library is not open yet".to_owned()),
            }
        })
    }

    /// Runs a phase of the work and reports its duration.
    pub(super) async fn timed<T, E>(
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
