//! Follows mps-host: reports changes of the node's MPS daemons to the pods using them, and counts the changes.
//!
//! Reports are differences between two reads of mps-host's list. The event connection covers the gaps of polling: a card must be
//! closed within milliseconds of mps-host's death, before the kubelet restarts a container with the card; an event triggers a read;
//! and a daemon whose clients were ended is no longer on the list.

mod lost;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

use self::tell::Teller;
use crate::prepare::MpsMetrics;
use crate::prepare::cards::Worker;
use crate::prepare::{PrepareError, blocking};
use tessera_kube_util::backoff::Backoff;
use tessera_mps_host::client::{Events, MpsHost, MpsHostError};
use tessera_mps_host::command::state;
use tessera_mps_host::protocol::{ClientProcess, Daemon, DaemonState, Event, EventKind, Fault};
use tessera_mps_host::{Abandoned, AbandonedError, DeviceUuid};

/// First and longest pause before connecting again to an absent mps-host. The node may not have one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Longest wait for an answer from mps-host.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time limit for the client reports of all daemons together.
const CENSUS_PATIENCE: Duration = Duration::from_secs(15);

/// Interval between two looks at the daemons while nothing happens, and while one of them does not run.
const LOOK: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Shares without mps-host for this long are reported, and again at this interval.
const AWAY: Duration = Duration::from_secs(20);

/// Events queued while pods are looked up. mps-host waits when the queue is full; after mps-host gives up, we connect again.
const QUEUE: usize = 64;

/// Pause after an event, so a daemon dying in a loop does not take all of the plugin's time.
const BREATH: Duration = Duration::from_millis(10);

/// Follows mps-host.
pub(in crate::prepare) struct Follower {
    worker: Arc<Worker>,
    host: MpsHost,
    metrics: MpsMetrics,
    teller: Teller,
    /// The daemons at the last look.
    daemons: BTreeMap<DeviceUuid, Daemon>,
    /// When mps-host went away, and when to check next for shares in need of mps-host.
    away: Option<(Instant, Instant)>,
}

/// Why the cards of dead daemons could not be closed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum CloseError {
    Work(#[from] PrepareError),
    Abandoned(#[from] AbandonedError),
    Late(#[from] tokio::time::error::Elapsed),
}

/// Time limit for closing the cards of dead daemons.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);

impl Follower {
    pub fn new(worker: Arc<Worker>, metrics: MpsMetrics) -> Self {
        let host = MpsHost::new(&worker.options.mps_directory);
        let teller = Teller::new(worker.clone());
        Self { worker, host, metrics, teller, daemons: BTreeMap::new(), away: None }
    }

    /// Follows mps-host until dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.host.events(PATIENCE).await {
                Ok(events) => {
                    let since = Instant::now();
                    let error = self.follow(events).await;
                    self.metrics.host_up.set(0);
                    self.close_abandoned().await;
                    tracing::warn!(reason = %error, "mps-host is not to be heard any more");
                    // An mps-host ending at once is tried no more often than an absent one.
                    if since.elapsed() > LONGEST_PAUSE {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    self.close_abandoned().await;
                    self.is_away(&error).await;
                }
            }
            backoff.sleep().await;
        }
    }

    /// Closes cards whose daemons died with mps-host, so no program gets onto them until mps-host is back.
    async fn close_abandoned(&self) {
        let Ok(nvml) = self.worker.nvml() else { return };
        let directory = self.worker.options.mps_directory.clone();
        let close = async {
            let Some(abandoned) = blocking::run(move || Abandoned::find(&directory)).await?? else {
                return Ok(Vec::new());
            };
            let modes = abandoned.cards().into_iter().map(|card| {
                let nvml = nvml.clone();
                let mode = self.worker.calls.ask(card, move || nvml.card(card)?.compute_mode);
                async move { Some((card, mode.await.ok()?.ok()?)) }
            });
            let modes: BTreeMap<_, _> = join_all(modes).await.into_iter().flatten().collect();
            // The thread holds the lock until closing is done, so a second thread can't start.
            let closed = blocking::run(move || abandoned.close(&modes, &*nvml));
            Ok::<_, CloseError>(tokio::time::timeout(CLOSED_WITHIN, closed).await???)
        };
        match close.await {
            Ok(cards) if cards.is_empty() => {}
            Ok(cards) => {
                tracing::warn!(
                    ?cards,
                    "mps-host and its daemons have died: nobody gets onto their cards before it is back"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "programs may use a shared card without limits until mps-host is back");
            }
        }
    }

    /// Counts and reports the absence of mps-host. Without mps-host nobody restarts daemons, a problem only on nodes with shares.
    async fn is_away(&mut self, error: &MpsHostError) {
        self.metrics.host_up.set(0);
        let now = Instant::now();
        let (since, next) = *self.away.get_or_insert((now, now + AWAY));
        if now >= next {
            self.away = Some((since, now + AWAY));
            if self.worker.shares_by_mps().await {
                tracing::warn!(%error, away = ?since.elapsed(), "shares are without mps-host");
                self.teller.away(error);
            }
        }
    }

    /// Follows one connection to its end, and returns why the connection ended.
    async fn follow(&mut self, mut events: Events) -> String {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        // Reading in a task of its own: cancelling a read half-way, to look at the daemons, would lose data.
        let _reader = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        }));
        if let Err(error) = self.look().await {
            return error.to_string();
        }
        tracing::info!("following mps-host");
        self.away = None;
        self.metrics.host_up.set(1);
        // Catch up on changes not sent while mps-host was away.
        self.worker.unsettled.notify_one();
        let mut clock = tokio::time::interval(LOOK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let all_run = self.daemons.values().all(|daemon| daemon.state == DaemonState::Running);
            tokio::select! {
                biased;
                event = queue.recv() => {
                    let Some(event) = event else { return "it ended the connection".to_owned() };
                    self.happened(event).await;
                    tokio::time::sleep(BREATH).await;
                    // One look is enough for several events.
                    if !queue.is_empty() {
                        continue;
                    }
                }
                _ = clock.tick() => self.count_clients().await,
                () = tokio::time::sleep(LOOK_AGAIN), if !all_run => {}
            }
            if let Err(error) = self.look().await {
                return error.to_string();
            }
        }
    }

    /// Reads the list of daemons, and reports and counts changes.
    async fn look(&mut self) -> Result<(), MpsHostError> {
        let daemons = self.host.list(PATIENCE).await?;
        self.teller.lost_servers(&daemons).await;
        let mut by_state = BTreeMap::new();
        let (mut restarts, mut faults) = (0, 0);
        for daemon in &daemons {
            *by_state.entry(state(daemon)).or_insert(0_i64) += 1;
            let before = self.daemons.get(&daemon.device);
            if let Some(before) = before {
                restarts += daemon.restarts.saturating_sub(before.restarts);
            }
            let fault = |daemon: &Daemon| daemon.fault.as_ref().map(|fault| fault.id.clone());
            match &daemon.fault {
                Some(now) if before.and_then(fault).as_ref() != Some(&now.id) => {
                    faults += u64::from(before.is_some());
                    let clients = self.clients(&daemon.device, now).await;
                    self.teller.fault(&daemon.device, &now.id, &clients).await;
                }
                _ => {}
            }
            self.teller.changed(before, daemon).await;
        }
        self.daemons = daemons.into_iter().map(|daemon| (daemon.device.clone(), daemon)).collect();
        self.metrics.daemons(&by_state);
        self.metrics.server_faults.inc_by(faults);
        self.metrics.restarts.inc_by(restarts.into());
        if restarts > 0 {
            // A new daemon has none of the old one's static partitions.
            self.worker.unsettled.notify_one();
        }
        Ok(())
    }

    /// The clients ended by a fault, with details from mps-host, because the plugin does not see their processes.
    async fn clients(&self, device: &DeviceUuid, fault: &Fault) -> Vec<ClientProcess> {
        let of_daemons = self.host.clients(CENSUS_PATIENCE).await.unwrap_or_default();
        let known = of_daemons.into_iter().find(|daemon| daemon.device == *device);
        let known = known.map(|daemon| daemon.clients).unwrap_or_default();
        let process = |pid: &u32| {
            let unknown = || ClientProcess { pid: *pid, program: None, pod_uid: None };
            known.iter().find(|client| client.pid == *pid).cloned().unwrap_or_else(unknown)
        };
        fault.clients.iter().map(process).collect()
    }

    async fn count_clients(&self) {
        let Ok(of_daemons) = self.host.clients(CENSUS_PATIENCE).await else { return };
        let clients: usize = of_daemons.iter().map(|daemon| daemon.clients.len()).sum();
        self.metrics.clients.set(i64::try_from(clients).unwrap_or(i64::MAX));
        let silent = of_daemons.iter().filter(|daemon| daemon.error.is_some());
        self.metrics.silent_daemons.set(i64::try_from(silent.count()).unwrap_or(i64::MAX));
    }

    /// Reports clients ended with their daemon. All other events only trigger a read of the list.
    async fn happened(&mut self, Event { device, kind, id, .. }: Event) {
        tracing::debug!(%device, ?kind, "event of mps-host");
        match kind {
            EventKind::ClientsRemain { .. } => self.teller.clients_remain(device).await,
            EventKind::ClientsEnded { clients } => {
                self.metrics.clients_ended.inc_by(clients.len() as u64);
                self.teller.clients_ended(&device, &clients, id).await;
            }
            EventKind::Stopped => self.teller.stopped(&device),
            _ => {}
        }
    }
}
