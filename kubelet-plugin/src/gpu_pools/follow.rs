//! Follows the pools, the node's labels, the API server's version and the machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tessera_api::API_GROUP;
use tessera_inventory::Machine;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handover::Handover;
use super::known::Told;
use super::known_file::KnownFile;
use super::{Known, Resolution, resolve};
use tessera_kube_util::backoff::WatchBackoff;
use tessera_kube_util::error_text::{shorten, with_causes};
use tessera_kube_util::node_labels::Labels;
use tessera_kube_util::server_version::ServerVersion;
use tessera_publish::PublishStatus;

/// How long to wait, after the start, for pools, labels and version of the API server: new pools with old labels may give a
/// result nobody ever wanted.
const ALL: Duration = Duration::from_secs(5);

/// Pause before a failed write of the file is retried.
const WRITE_AGAIN: Duration = Duration::from_secs(30);

const NO_KIND: &str = "the cluster has no kind GpuPool: every card is offered as if there were no pools";

/// Follows the pools.
pub struct PoolFollower {
    /// The DRA driver: the domain of the attributes used by selectors.
    pub driver_name: String,
    /// The API server.
    pub client: Client,
    /// Where the last known pools and labels are kept.
    pub file: PathBuf,
    /// Whether a file of MIG layouts is configured.
    pub has_layouts: bool,
    /// How long devices keep their taint after their card stopped being managed.
    pub handover: Duration,
    /// The node's labels.
    pub labels: Labels,
    /// The API server's version.
    pub kubernetes: ServerVersion,
    /// The machine.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Receives the machine as resolved by the pools.
    pub resolution: watch::Sender<Option<Arc<Resolution>>>,
    /// Receives how reading them goes.
    pub reading: watch::Sender<Reading>,
    /// How publishing goes.
    pub published: watch::Receiver<PublishStatus>,
}

/// How reading the pools and the node's labels goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether pools and API server version are known, now or from earlier; nothing is published before.
    pub is_known: bool,
    /// Why the pools cannot be read at present.
    pub trouble: Option<String>,
}

/// State kept between two events.
struct State {
    /// The pools, labels and version in force.
    known: Known,
    /// Data received from the API server since the start.
    pools: Told,
    labels: Option<BTreeMap<String, String>>,
    kubernetes: Option<String>,
    file: KnownFile,
    handover: Handover,
    /// The state of the previous process could not be read.
    lost: bool,
    /// The last error of the watch, logged once while it lasts.
    told: Option<String>,
    /// The file lacks something.
    unwritten: bool,
}

impl PoolFollower {
    /// Follows them until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        let mut state = State::open(self.file.clone(), self.handover);
        let events = pools(self.client.clone()).backoff(WatchBackoff::default());
        let mut events = pin!(events);
        let mut all = pin!(tokio::time::sleep(ALL));
        let mut waited = false;
        loop {
            state.labels.clone_from(&self.labels.borrow_and_update());
            state.kubernetes.clone_from(&self.kubernetes.borrow_and_update());
            state.settle(waited);
            let machine = self.machines.borrow_and_update().clone();
            let is_published = self.published.borrow_and_update().in_sync;
            let next = machine.and_then(|machine| self.resolve(&mut state, &machine, is_published));
            let taint_goes = state.handover.next().filter(|_| next.is_some());
            // Before anything is published: the next process must know the cards with the taint.
            state.keep();
            self.reading.send_if_modified(|reading| {
                let now = state.reading();
                let is_new = *reading != now;
                *reading = now;
                is_new
            });
            if let Some(next) = next {
                self.resolution.send_if_modified(|sent| {
                    let is_new = sent.as_deref() != Some(&next);
                    if is_new {
                        tell(sent.as_deref(), &next);
                        *sent = Some(Arc::new(next));
                    }
                    is_new
                });
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => state.observe(event),
                    // The watch retries after any error.
                    None => return,
                },
                // An error means the process is ending.
                changed = self.labels.changed() => if changed.is_err() { return std::future::pending().await },
                changed = self.kubernetes.changed() => if changed.is_err() { return std::future::pending().await },
                changed = self.machines.changed() => if changed.is_err() { return std::future::pending().await },
                () = &mut all, if !waited => waited = true,
                () = tokio::time::sleep(WRITE_AGAIN), if state.unwritten => {}
                changed = differs(&mut self.published, is_published), if taint_goes.is_some() => {
                    if changed.is_err() { return std::future::pending().await }
                }
                () = tokio::time::sleep_until(taint_goes.unwrap_or_else(Instant::now)), if taint_goes.is_some() => {}
            }
        }
    }

    /// Resolves the pools for the machine, including taints kept for a handover.
    fn resolve(&self, state: &mut State, machine: &Arc<Machine>, is_published: bool) -> Option<Resolution> {
        let mut next = resolve(&self.driver_name, &state.known, machine, self.has_layouts)?;
        state.handover.keep_taints(Instant::now(), is_published, &mut state.known.tainted, &mut next);
        Some(next)
    }
}

impl State {
    fn open(path: PathBuf, handover: Duration) -> Self {
        // Blocking is fine: a small file, read once.
        let (file, known) = KnownFile::open(path);
        if let Err(error) = &known {
            tracing::error!(
                error,
                "the last known GpuPools cannot be read; nothing is published until the API server tells them"
            );
        }
        let lost = known.is_err();
        Self {
            known: known.unwrap_or_default(),
            pools: Told::default(),
            labels: None,
            kubernetes: None,
            file,
            handover: Handover::new(handover),
            lost,
            told: None,
            unwritten: false,
        }
    }

    /// Puts the API server's data in force; `anyway` even if only a part has arrived.
    fn settle(&mut self, anyway: bool) {
        if anyway || (self.pools.pools.is_some() && self.labels.is_some() && self.kubernetes.is_some()) {
            self.known.pools = self.pools.pools.clone().or_else(|| self.known.pools.take());
            self.known.labels = self.labels.clone().or_else(|| self.known.labels.take());
            self.known.kubernetes = self.kubernetes.clone().or_else(|| self.known.kubernetes.take());
        }
    }

    fn observe(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) {
        match event {
            Ok(event) => {
                // `Init` is emitted before the first request to the server.
                if !matches!(event, Event::Init) && self.told.take().is_some() {
                    tracing::info!("GpuPools can be read again");
                }
                self.pools.observe(event, self.known.pools.as_ref());
            }
            Err(error) => {
                let code = code(&error);
                // An expired watch is renewed with a list, and is no trouble to anybody.
                if code == Some(410) {
                    return;
                }
                if code == Some(404) && self.known.pools.is_none() && !self.lost {
                    tracing::warn!("{NO_KIND}");
                    self.pools.pools = Some(BTreeMap::new());
                    self.told = Some(NO_KIND.to_owned());
                    return;
                }
                let first = self.told.is_none();
                let message = shorten(&with_causes(&error), 500).to_owned();
                if first && self.known.pools.is_some() {
                    tracing::error!(error = message, "cannot read GpuPools: what was known last holds");
                } else if first {
                    tracing::error!(error = message, "cannot read GpuPools: nothing is published yet");
                }
                self.told.get_or_insert(message);
            }
        }
    }

    fn reading(&self) -> Reading {
        let Known { labels, pools, kubernetes, tainted: _ } = &self.known;
        let is_known = labels.is_some() && pools.is_some() && kubernetes.is_some();
        Reading { is_known, trouble: self.told.clone() }
    }

    /// Writes the known pools, labels and version to the file.
    fn keep(&mut self) {
        if self.file.holds(&self.known) {
            self.unwritten = false;
            return;
        }
        // Blocking is fine: a small file, changing as rarely as pools and labels do.
        match self.file.write(&self.known) {
            Ok(()) => self.unwritten = false,
            Err(error) => {
                if !std::mem::replace(&mut self.unwritten, true) {
                    tracing::error!(%error, "cannot write down the GpuPools; a restart without the API server would not know them");
                }
            }
        }
    }
}

/// Waits until the slices become as wanted, or stop being so.
async fn differs(
    published: &mut watch::Receiver<PublishStatus>,
    is_published: bool,
) -> Result<(), watch::error::RecvError> {
    published.wait_for(|status| status.in_sync != is_published).await.map(drop)
}

/// All pools, whatever is in them.
fn pools(client: Client) -> impl Stream<Item = watcher::Result<Event<DynamicObject>>> + Send {
    let resource = ApiResource {
        group: API_GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: format!("{API_GROUP}/v1alpha1"),
        kind: "GpuPool".to_owned(),
        plural: "gpupools".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    watcher(api, watcher::Config::default())
}

/// The API server's code of an error, if any.
fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// Logs changes.
fn tell(before: Option<&Resolution>, now: &Resolution) {
    if let Some(advice) =
        now.advice.as_ref().filter(|_| before.is_none_or(|before| before.advice != now.advice))
    {
        tracing::warn!("of this node {advice}");
    }
    let old_pools = before.map(|before| &before.pools);
    for (name, report) in &now.pools {
        if old_pools.and_then(|old| old.get(name)) == Some(report) {
            continue;
        }
        if let Some(error) = &report.error {
            tracing::error!(pool = name, error, "a GpuPool cannot be used as it is");
        }
        if let Some(advice) = &report.advice {
            tracing::warn!(pool = name, advice, "a GpuPool is hardly what is wanted");
        }
    }
    for (card, report) in &now.cards {
        if before.and_then(|before| before.cards.get(card)) != Some(report) {
            let (pool, layout) = (report.pool.as_deref(), now.layouts.get(card));
            tracing::info!(%card, pool, layout, outranked = ?report.outranked, "what decides on the card");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu_pools::KnownPool;

    #[test]
    fn the_last_known_version_holds_until_all_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpu-pools.json");
        let known = Known {
            labels: Some(BTreeMap::new()),
            pools: Some(BTreeMap::new()),
            kubernetes: Some("v1.36.6".to_owned()),
            ..Known::default()
        };
        KnownFile::open(path.clone()).0.write(&known).unwrap();
        let mut state = State::open(path.clone(), Duration::ZERO);
        assert!(state.reading().is_known);
        state.pools.pools = Some([("new".to_owned(), KnownPool::default())].into());
        state.labels = Some(BTreeMap::new());
        state.settle(false);
        assert_eq!(state.known, known, "new pools with the old version may say what nobody wanted");
        state.kubernetes = Some("v1.37.2".to_owned());
        state.settle(false);
        assert_eq!(
            (state.known.kubernetes.as_deref(), state.known.pools.as_ref().unwrap().len()),
            (Some("v1.37.2"), 1)
        );
        state.keep();

        // The next process begins without the API server.
        let mut state = State::open(path, Duration::ZERO);
        state.settle(true);
        assert_eq!(state.known.kubernetes.as_deref(), Some("v1.37.2"));
    }
}
