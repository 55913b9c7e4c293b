//! Follows mps-host: reports what happens to the node's MPS daemons to the pods that use them, and counts it.

mod known;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

use self::known::{Known, Missing};
use self::tell::Teller;
use super::MpsMetrics;
use super::worker::Worker;
use super::{PrepareError, blocking};
use tessera_journal::MpsServers;
use tessera_kube_util::backoff::Backoff;
use tessera_mps_host::client::{Events, MpsHost, MpsHostError};
use tessera_mps_host::command::state;
use tessera_mps_host::protocol::{ClientProcess, Daemon, Event, EventKind, Fault};
use tessera_mps_host::{Abandoned, AbandonedError, DeviceUuid};

/// First and longest pause before connecting again to an absent mps-host. The node may not have one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Longest wait for an answer of mps-host.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long all daemons together may take to report their clients.
const CENSUS_PATIENCE: Duration = Duration::from_secs(15);

/// Interval between two looks at the daemons while nothing happens.
const LOOK: Duration = Duration::from_secs(15);

/// Shares that have been without mps-host this long are reported, and again at this interval.
const AWAY: Duration = Duration::from_secs(20);

/// Events queued while pods are looked up. mps-host waits when the queue is full; if it gives up, we connect again.
const QUEUE: usize = 64;

/// How long an event may arrive after the change it explains was seen.
const SUSPICION: Duration = Duration::from_millis(500);

/// Pause between two events, so that a daemon that dies in a loop does not take all of the plugin's time.
const BREATH: Duration = Duration::from_millis(10);

/// Follows mps-host.
pub(super) struct Follower {
    worker: Arc<Worker>,
    host: MpsHost,
    metrics: MpsMetrics,
    known: Known,
    teller: Teller,
    /// Daemons whose clients seem to have lost their contexts, and when to report that unless an event explains it.
    suspected: BTreeMap<DeviceUuid, (Instant, Missing)>,
    /// What was last written down for the next instance of the plugin.
    written: MpsServers,
    /// Since when mps-host is away, and when to check next whether there are shares that need it.
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

/// How long closing the cards of dead daemons may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);

impl Follower {
    pub fn new(worker: Arc<Worker>, metrics: MpsMetrics) -> Self {
        let host = MpsHost::new(&worker.options.mps_directory);
        let teller = Teller::new(worker.clone());
        Self {
            worker,
            host,
            metrics,
            known: Known::default(),
            teller,
            suspected: BTreeMap::new(),
            written: MpsServers::default(),
            away: None,
        }
    }

    /// Follows mps-host until dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        self.remember().await;
        loop {
            match self.host.events(PATIENCE).await {
                Ok(events) => {
                    let since = Instant::now();
                    let error = self.follow(events).await;
                    self.metrics.host_up.set(0);
                    self.close_abandoned().await;
                    tracing::warn!(reason = %error, "mps-host is not to be heard any more");
                    // An mps-host that ends at once is not tried more often than one that is away.
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

    /// Closes cards whose daemons died with mps-host, so that no program gets onto them until it is back.
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
            // The thread holds the lock as long as it takes, so that there is no second one.
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

    /// Counts and reports that mps-host is away. Without it nobody restarts daemons, which matters if there are
    /// shares.
    async fn is_away(&mut self, error: &MpsHostError) {
        self.metrics.host_up.set(0);
        let now = Instant::now();
        let (since, next) = *self.away.get_or_insert((now, now + AWAY));
        if now >= next {
            self.away = Some((since, now + AWAY));
            if self.worker.shares_by_mps().await {
                tracing::warn!(%error, away = ?since.elapsed(), "shares are without mps-host");
                self.teller.away(error, AWAY);
            }
        }
    }

    /// Follows one connection to its end, and returns why it ended.
    async fn follow(&mut self, mut events: Events) -> String {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        // Reading in a task of its own: a read that is cancelled half-way, to look at the daemons, would lose data.
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
        // Catch up on changes that could not be sent while mps-host was away.
        self.worker.unsettled.notify_one();
        let mut clock = tokio::time::interval(LOOK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let suspicion = self.suspected.values().map(|(at, _)| *at).min().unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                event = queue.recv() => {
                    let Some(event) = event else { return "it ended the connection".to_owned() };
                    self.happened(event).await;
                    tokio::time::sleep(BREATH).await;
                    // Queued events change the picture too, so handle them first.
                    if !queue.is_empty() {
                        continue;
                    }
                }
                () = tokio::time::sleep_until(suspicion), if !self.suspected.is_empty() => {
                    self.tell_suspected().await;
                    continue;
                }
                _ = clock.tick() => self.count_clients().await,
            }
            if let Err(error) = self.look().await {
                return error.to_string();
            }
        }
    }

    /// Looks at the daemons. A change that no event explains happened while nobody listened.
    async fn look(&mut self) -> Result<(), MpsHostError> {
        let daemons = self.host.list(PATIENCE).await?;
        let mut by_state = BTreeMap::new();
        for daemon in &daemons {
            *by_state.entry(state(daemon)).or_insert(0_i64) += 1;
        }
        let changes = self.known.update(&daemons);
        self.metrics.daemons(&by_state);
        self.metrics.restarts.inc_by(changes.restarts);
        for missing in changes.missing {
            self.suspected.insert(missing.device.clone(), (Instant::now() + SUSPICION, missing));
        }
        for device in changes.faults {
            if let Some(daemon) = daemons.iter().find(|daemon| daemon.device == device) {
                self.found_fault(daemon).await;
            }
        }
        // Writing now would hide a suspicion from the next instance before it was reported.
        if self.suspected.is_empty() {
            self.write_down().await;
        }
        Ok(())
    }

    /// Reports a fault without an event: it happened before this instance listened.
    async fn found_fault(&mut self, daemon: &Daemon) {
        let Some(Fault { id, clients }) = &daemon.fault else { return };
        let clients = clients.iter().map(|pid| ClientProcess::of(*pid)).collect();
        let (device, card, id) = (daemon.device.clone(), daemon.card, Some(id.clone()));
        self.teller.happened(&Event { device, card, kind: EventKind::ServerFault { clients }, id }).await;
    }

    /// Loads what the last instance of the plugin knew, to notice servers that were replaced since.
    async fn remember(&mut self) {
        let journal = self.worker.journal.clone();
        match blocking::run(move || journal.mps_servers()).await {
            Ok(Ok(seen)) => {
                self.written.clone_from(&seen);
                self.known = Known::of(seen);
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot tell which MPS servers there were: pods are not told of servers that died \
                    while no plugin ran");
            }
            Err(error) => tracing::warn!(%error, "cannot tell which MPS servers there were"),
        }
    }

    /// Writes down what is known for the next instance. A failure is tried again at the next look.
    async fn write_down(&mut self) {
        let seen = self.known.to_journal();
        if seen == self.written {
            return;
        }
        let (journal, copy) = (self.worker.journal.clone(), seen.clone());
        match blocking::run(move || journal.put_mps_servers(&copy)).await {
            Ok(Ok(())) => self.written = seen,
            Ok(Err(error)) => tracing::debug!(%error, "cannot write down which MPS servers there are"),
            Err(error) => tracing::debug!(%error, "cannot write down which MPS servers there are"),
        }
    }

    /// Reports changes that no event has explained.
    async fn tell_suspected(&mut self) {
        let now = Instant::now();
        let due: Vec<Missing> = self
            .suspected
            .values()
            .filter(|(at, _)| *at <= now)
            .map(|(_, missing)| missing.clone())
            .collect();
        for missing in due {
            self.suspected.remove(&missing.device);
            self.teller.replaced(&missing).await;
        }
        if self.suspected.is_empty() {
            self.write_down().await;
        }
    }

    async fn count_clients(&self) {
        let Ok(of_daemons) = self.host.clients(CENSUS_PATIENCE).await else { return };
        let clients: usize = of_daemons.iter().map(|daemon| daemon.clients.len()).sum();
        self.metrics.clients.set(i64::try_from(clients).unwrap_or(i64::MAX));
        let silent = of_daemons.iter().filter(|daemon| daemon.error.is_some());
        self.metrics.silent_daemons.set(i64::try_from(silent.count()).unwrap_or(i64::MAX));
    }

    async fn happened(&mut self, event: Event) {
        let Event { device, kind, id, .. } = &event;
        tracing::debug!(%device, ?kind, "event of mps-host");
        self.count(kind, device, id.as_deref());
        if *kind == EventKind::Restarted {
            // A new daemon has none of the old one's static partitions.
            self.worker.unsettled.notify_one();
        }
        self.teller.happened(&event).await;
    }

    fn count(&mut self, kind: &EventKind, device: &DeviceUuid, id: Option<&str>) {
        match kind {
            EventKind::DaemonDied { .. } => drop(self.metrics.daemon_deaths.inc()),
            EventKind::ServerDied { .. } => drop(self.metrics.server_deaths.inc()),
            EventKind::ServerFault { .. } => {
                self.metrics.server_faults.inc();
                self.known.fault_is_told(device, id.unwrap_or_default());
            }
            EventKind::ClientsEnded { clients } => {
                self.metrics.clients_ended.inc_by(clients.len() as u64);
            }
            _ => {}
        }
        // The event explains the new server, or that there is none.
        if matches!(kind, EventKind::DaemonDied { .. } | EventKind::ServerDied { .. } | EventKind::Stopped) {
            self.known.is_told(device);
            self.suspected.remove(device);
        }
    }
}
