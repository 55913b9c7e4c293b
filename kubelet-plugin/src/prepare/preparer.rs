//! The public interface to all work on claims.

mod layout_hold;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use kube::Client;
use tessera_inventory::Machine;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::MpsMetrics;
use super::attempt::{Call, Pending, Work, held_cards};
use super::cards::{Files, Sharing, Worker};
use super::claim::reference;
use super::tell::{
    Activities, Activity, DeviceStatus, OwnTime, Unreleased, UsageCondition, claim_events, usage_condition,
};
use super::upkeep::Follower;
use super::{
    Answers, ClaimReference, Operation, PrepareError, PrepareObserver, PrepareOptions, PreparedDevice,
};
use crate::cdi;
use crate::driver::Driver;
use tessera_api::PciBusId;
use tessera_card::{LockState, Locks};
use tessera_journal::{ClaimRecord, Journal};
use tessera_kube_util::events::Events;
use tessera_nvml::DriverCalls;

/// The file of the card locks in the CDI directory, shared by every installation of Tessera on the node, whatever its driver's
/// name. Container runtimes read `.json` and `.yaml` only.
const CARD_LOCKS: &str = ".tessera-card-locks";

/// Buffer of released claims for waiting attempts. An attempt lagging further behind reads the journal again.
const RELEASES: usize = 256;

/// Prepares and unprepares claims. Clones share everything.
///
/// # Guarantees
/// - Each claim's work runs in a task of its own. The task survives a dropped call, and a later call for the same work gets
///   its answer.
/// - After a kill at any moment, the next start converges to the journal's complete records.
/// - Two claims never hold one card, whatever the API says.
#[derive(Clone)]
pub struct Preparer {
    worker: Arc<Worker>,
    work: Arc<Work>,
}

impl Preparer {
    /// Makes the node agree with the journal: undoes interrupted work and drops devices prepared by an earlier boot. Needs
    /// neither API server nor driver: while the driver is not open, work to undo on cards is left to [`Preparer::run`]. Takes
    /// milliseconds.
    ///
    /// `journal` comes from [`PrepareOptions::open_journal`]. `published` is the machine as published; a card differing from the
    /// published one is refused.
    ///
    /// # Errors
    /// [`PrepareError::Journal`] if the journal can't be listed or its lock file can't be created,
    /// [`PrepareError::Cdi`] if the CDI directory can't be read or the driver's name is no CDI vendor.
    pub async fn open(
        options: PrepareOptions,
        journal: Arc<Journal>,
        client: Client,
        hardware: Driver,
        published: watch::Receiver<Option<Arc<Machine>>>,
        observer: Arc<dyn PrepareObserver>,
    ) -> Result<Self, PrepareError> {
        let vendor = cdi::Vendor::new(&options.driver_name)?;
        let metadata = options.state_directory.join("device-metadata");
        let cdi =
            cdi::Directory::new(options.file_system.clone(), options.cdi_directory.clone(), metadata, vendor);
        let locks = Locks::open(journal.directory().join("locks"), options.cdi_directory.join(CARD_LOCKS))?;
        let events = Events::start(client.clone(), &options.driver_name, &options.node_name);
        let worker = Worker {
            sharing: Sharing::new(&options, published.clone()),
            device_status: DeviceStatus::start(client.clone(), &options),
            calls: DriverCalls::new(options.driver_answers_within),
            options,
            client,
            hardware,
            published,
            journal,
            cdi: Arc::new(cdi),
            locks,
            files: Files::default(),
            profiles: Arc::default(),
            observer: Arc::new(OwnTime::new(observer)),
            events,
            unsettled: Notify::new(),
            activities: Activities::default(),
            unreleased: Unreleased::default(),
            released: broadcast::Sender::new(RELEASES),
            done: watch::Sender::default(),
        };
        worker.recover().await?;
        Ok(Self { worker: Arc::new(worker), work: Arc::default() })
    }

    /// Runs background work until `stop`: finds the driver's files (so no claim has to wait for `nvidia-ctk`), restores CDI specs
    /// of prepared claims, and releases claims the kubelet will never unprepare. Start this after publishing, because the work
    /// may keep a processor busy.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.worker.look_after() => {}
        }
    }

    /// Follows mps-host until `stop`: reports changes of MPS daemons to their pods, counts them, and catches up on ending and
    /// changing daemons when mps-host comes back.
    pub async fn follow_mps(&self, metrics: MpsMetrics, stop: CancellationToken) {
        let follower = Follower::new(self.worker.clone(), metrics);
        let follow = async { tokio::join!(follower.run(), self.worker.settle_when_needed()) };
        stop.run_until_cancelled(follow).await;
    }

    /// Rewrites missing or outdated CDI specs of prepared claims: after a driver update, a late answer of `nvidia-ctk`, new
    /// device node numbers, or a restarted MPS daemon with new names for its static partitions. [`Preparer::run`] calls this
    /// every ten minutes and whenever a driver is opened, [`Preparer::follow_mps`] after a restart of a daemon.
    ///
    /// # Errors
    /// [`PrepareError::NoDriver`], [`PrepareError::Journal`], [`PrepareError::Cdi`]. After [`PrepareError::DriverFiles`] all
    /// specs are unchanged. After other errors, all specs possible to write have been written.
    pub async fn restore_specs(&self) -> Result<(), PrepareError> {
        self.worker.restore_specs().await
    }

    /// Recreates partitions of prepared claims after somebody else has destroyed them. [`Preparer::run`] calls this every ten
    /// minutes and whenever a driver is opened.
    ///
    /// # Errors
    /// [`PrepareError::Journal`] if the journal can't be listed. An error with one claim is logged and reported in an
    /// Event.
    pub async fn repair(&self) -> Result<(), PrepareError> {
        self.worker.repair().await
    }

    /// Repeats the work of [`Preparer::open`], in case some of the work had failed, and releases claims the kubelet will
    /// never unprepare: unknown to the API and forgotten by the kubelet. [`Preparer::run`] calls this every ten minutes.
    ///
    /// # Errors
    /// [`PrepareError::Journal`], [`PrepareError::Cdi`] if a directory can't be listed. An error with one claim is
    /// logged.
    pub async fn sweep(&self) -> Result<(), PrepareError> {
        self.worker.sweep().await
    }

    /// Prepares claims concurrently. Idempotent. Waits up to [`PrepareOptions::answer_within`] for obstacles to pass by
    /// themselves ([`PrepareError::may_pass`]); stops waiting when the claim is unprepared or the plugin stops.
    pub async fn prepare(&self, claims: Vec<ClaimReference>) -> Answers<Vec<PreparedDevice>, PrepareError> {
        self.answers(Operation::Prepare, claims).await
    }

    /// Undoes claims concurrently. Succeeds for unknown claims. Like Prepare, waits for programs in a partition to
    /// end.
    pub async fn unprepare(&self, claims: Vec<ClaimReference>) -> Answers<(), PrepareError> {
        let answers = self.answers(Operation::Unprepare, claims).await;
        answers.into_iter().map(|(uid, answer)| (uid, answer.map(drop))).collect()
    }

    /// Takes no new work, ends waiting work with [`PrepareError::Stopping`], and returns when running work has ended,
    /// or after [`PrepareOptions::drain_within`] if something hangs, as a call of the driver may.
    pub async fn drain(&self) {
        let longest = self.worker.options.drain_within;
        if let Err(running) = self.work.drain(longest).await {
            tracing::warn!(
                running,
                ?longest,
                "work on claims did not end in time; the next instance takes over"
            );
        }
    }

    /// The journal, for readers of devices held by claims.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.worker.journal
    }

    /// Records of all currently prepared claims, by the journal on disk. Unreadable records are left out.
    ///
    /// # Errors
    /// [`PrepareError::Journal`] if the journal can't be listed.
    pub async fn prepared_claims(&self) -> Result<Vec<Arc<ClaimRecord>>, PrepareError> {
        let entries = self.worker.disk(|journal, _| journal.shared_claims()).await?;
        let records = entries.into_iter().filter_map(|entry| entry.record.ok());
        Ok(records.filter(|record| self.worker.is_prepared(record)).collect())
    }

    /// Writes in a claim's `status.devices` how its pods use its devices, unless the claim says so already.
    ///
    /// # Errors
    /// [`PrepareError::Api`].
    pub async fn write_usage_condition(
        &self,
        claim: &ClaimReference,
        condition: &UsageCondition,
    ) -> Result<(), PrepareError> {
        usage_condition::write(&self.worker.client, &self.worker.options, claim, condition).await
    }

    /// Running work on claims.
    #[must_use]
    pub fn at_work(&self) -> Vec<Activity> {
        self.worker.activities.list()
    }

    /// Cards locked by this process, or whose locks are being waited for.
    #[must_use]
    pub fn card_locks(&self) -> Vec<LockState> {
        self.worker.locks.states()
    }

    /// Running driver calls for claims: the card (`None` for the driver as a whole) and the start time.
    #[must_use]
    pub fn driver_calls(&self) -> Vec<(Option<PciBusId>, Instant)> {
        self.worker.calls.running()
    }

    /// Number of partitions made by this driver and of cards whose MIG mode was switched, by the journal on disk, as
    /// `mig_partition` and `mig_mode`.
    ///
    /// # Errors
    /// [`PrepareError::Journal`] if the journal can't be listed.
    pub async fn hardware_present(&self) -> Result<[(&'static str, usize); 2], PrepareError> {
        let records: Vec<_> = self
            .worker
            .disk(|journal, _| journal.hardware())
            .await?
            .into_iter()
            .flat_map(|entry| entry.record)
            .collect();
        let partitions = records.iter().filter(|record| record.partition().is_some()).count();
        let modes = records.iter().filter(|record| record.mode().is_some()).count();
        Ok([("mig_partition", partitions), ("mig_mode", modes)])
    }

    /// Number of ended pieces of work on claims: after each, claims may hold other devices.
    #[must_use]
    pub fn done(&self) -> watch::Receiver<u64> {
        self.worker.done.subscribe()
    }

    /// Names of the devices held by claims on this node, by the journal on disk. They must stay published.
    ///
    /// # Errors
    /// [`PrepareError::Journal`] if the journal can't be listed.
    pub async fn held_devices(&self) -> Result<BTreeSet<String>, PrepareError> {
        let entries = self.worker.disk(|journal, _| journal.claims()).await?;
        let records = entries.into_iter().filter_map(|entry| entry.record.ok());
        let held = records.filter(|record| !held_cards(record).is_empty()).flat_map(|record| record.devices);
        Ok(held.filter(|device| !device.admin_access).map(|device| device.device).collect())
    }

    async fn answers(
        &self,
        operation: Operation,
        claims: Vec<ClaimReference>,
    ) -> Answers<Vec<PreparedDevice>, PrepareError> {
        let pending: HashMap<String, Result<Pending, PrepareError>> = claims
            .into_iter()
            .map(|claim| (claim.uid.clone(), reference::check(&claim).map(|()| self.start(operation, claim))))
            .collect();
        let longest = self.worker.options.answer_at_the_latest;
        let unanswered = || PrepareError::Unanswered { operation, longest };
        let answers = pending.into_iter().map(|(uid, pending)| async move {
            let answer = match pending {
                Ok(pending) => {
                    tokio::time::timeout(longest, pending).await.unwrap_or_else(|_| Err(unanswered()))
                }
                Err(error) => Err(error),
            };
            (uid, answer)
        });
        join_all(answers).await.into_iter().collect()
    }

    fn start(&self, operation: Operation, claim: ClaimReference) -> Pending {
        let worker = self.worker.clone();
        let uid = claim.uid.clone();
        let (activities, of) = (worker.activities.clone(), claim.clone());
        let deadline = tokio::time::Instant::now() + worker.options.answer_within;
        self.work.join_or_start(&uid, operation, move |ending| {
            let span = tracing::info_span!(
                "claim",
                operation = operation.as_str(),
                namespace = claim.namespace,
                name = claim.name,
                uid = claim.uid,
            );
            let work = async move {
                let start = Instant::now();
                let call = Call::new(deadline, ending);
                let answer = worker.work(operation, &claim, &call).await;
                let outcome = answer.as_ref().map_or_else(PrepareError::reason, |_| "success");
                worker.observer.claim(operation, outcome, start.elapsed());
                worker.done.send_modify(|done| *done += 1);
                match (operation, &answer) {
                    (Operation::Prepare, Ok(_)) => {
                        worker.device_status.prepared(&claim, call.found().as_deref())
                    }
                    (Operation::Prepare, Err(error)) => {
                        worker.device_status.failed(&claim, call.found().as_deref(), error);
                    }
                    (Operation::Unprepare, _) => worker.device_status.forget(&claim.uid),
                }
                if let Err(error) = &answer {
                    tracing::warn!(%error, "failed");
                    if error.is_news() {
                        claim_events::failed(&worker.events, operation, &claim, error);
                    }
                }
                answer
            };
            let work = activities.during(operation, of, OwnTime::count(work));
            work.instrument(span)
        })
    }
}

impl fmt::Debug for Preparer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Preparer").field("options", &self.worker.options).finish_non_exhaustive()
    }
}
