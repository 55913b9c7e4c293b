//! Runs the publishing of one instance of the plugin.

use std::{path::PathBuf, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::{
    Client,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, InitialListStrategy},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use tessera_kube_util::backoff::{Backoff, WatchBackoff};
use tessera_kube_util::events::{Events, NodeEvents};
use tessera_slices::Slice;

use crate::{
    desired::{Desired, PoolIdentity},
    lock::{LockError, PublishLock},
    server::Server,
    session::{Next, Session},
    status::{PublishStatus, Role},
};

/// One event is usually followed by more (a kubelet deletes one slice after another). Events within this time are
/// handled together.
const GATHER: Duration = Duration::from_millis(10);
/// Time limit of requests in flight when the publisher ends.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Interval at which an API server that drops fields of some feature is probed again. Feature gates change when an API
/// server is restarted.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// The options of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// The DRA driver's name.
    pub driver_name: String,
    /// The name of this node's Node object.
    pub node_name: String,
    /// The plugin directory, shared by all instances on the node. Its lock files decide which instance publishes.
    pub lock_directory: PathBuf,
    /// Identifies this instance there: the pod's UID.
    pub instance: String,
}

/// Keeps the ResourceSlices of this node equal to the offer of the hardware.
pub struct Publisher {
    server: Server,
    events: NodeEvents,
    identity: PoolIdentity,
    lock: PublishLock,
    probe_interval: Duration,
    status: watch::Sender<PublishStatus>,
    before: watch::Sender<Option<Arc<[Slice]>>>,
}

impl Publisher {
    /// A publisher writing through `client`, see [`tessera_kube_util::client::connect`].
    #[must_use]
    pub fn new(client: Client, options: PublishOptions) -> Self {
        Self {
            events: NodeEvents::new(
                Events::start(client.clone(), &options.driver_name, &options.node_name),
                &options.node_name,
            ),
            server: Server::new(client),
            identity: PoolIdentity::new(&options.driver_name, &options.node_name),
            lock: PublishLock::new(&options.lock_directory, &options.instance),
            probe_interval: PROBE_INTERVAL,
            status: watch::Sender::default(),
            before: watch::Sender::default(),
        }
    }

    /// Sets the interval at which an API server that drops fields of some feature is probed again; five minutes otherwise.
    #[must_use]
    pub fn probe_every(self, interval: Duration) -> Self {
        Self { probe_interval: interval, ..self }
    }

    /// The publishing status, as it changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<PublishStatus> {
        self.status.subscribe()
    }

    /// The slices of this node's pool when this publisher started; `None` until they have been read.
    #[must_use]
    pub fn published_before(&self) -> watch::Receiver<Option<Arc<[Slice]>>> {
        self.before.subscribe()
    }

    /// Publishes the latest of `desired` until `stop`. `None` means unknown hardware (so far): the published slices stay as
    /// they are, and another instance may go on publishing.
    ///
    /// Retries after any failure. The slices remain at the end: an upgrade of the plugin must not remove the node's
    /// devices.
    pub async fn run(self, mut desired: watch::Receiver<Option<Arc<Desired>>>, stop: CancellationToken) {
        let Self { server, events: node_events, identity, mut lock, probe_interval, status, before } = self;
        let watch = {
            let (server, identity) = (server.clone(), identity.clone());
            move |list| server.watch(&identity, list).backoff(WatchBackoff::default())
        };
        let mut events = pin!(watch(InitialListStrategy::StreamingList));
        let mut session = Session::new(server, node_events, identity, status.clone());
        let mut lock_failures = Backoff::default();
        let mut lock_retry = Instant::now();
        let mut due: Option<Instant> = None;
        let mut read_due = Instant::now();
        let mut probe = Instant::now() + probe_interval;
        let mut is_open = true;
        let mut known = desire(&mut session, &mut desired);

        loop {
            let publishing = lock.holds();
            let role = match (known, publishing) {
                (false, _) => Role::WaitingForHardware,
                (true, false) => Role::Standby,
                (true, true) => Role::Publishing,
            };
            status.send_if_modified(|status| std::mem::replace(&mut status.role, role) != role);

            tokio::select! {
                () = stop.cancelled() => return,
                changed = desired.changed(), if is_open => {
                    is_open = changed.is_ok();
                    if desire(&mut session, &mut desired) || !known {
                        due = Some(Instant::now());
                    }
                    known = known || desired.borrow().is_some();
                }
                event = events.next() => match event {
                    Some(Err(error)) if cannot_list_with_the_watch(&error) => {
                        events.set(watch(InitialListStrategy::ListWatch));
                    }
                    Some(event) => {
                        let soon = Instant::now() + GATHER;
                        // A back-off continues, unless its reason is gone.
                        if session.observe(event) || due.is_none() {
                            due = Some(soon);
                        }
                    }
                    // The watch never ends by itself but retries after any failure.
                    None => return,
                },
                turn = next_turn(&mut lock, lock_retry), if known => match turn {
                    Ok(Turn::Ours) => {
                        tracing::info!("this instance publishes the ResourceSlices");
                        lock_failures.reset();
                        due = Some(Instant::now());
                    }
                    Ok(Turn::Another) => {
                        tracing::info!("a newer instance publishes the ResourceSlices from now on");
                        lock.release();
                    }
                    Err(error) => {
                        if lock_failures.attempts() == 0 {
                            tracing::error!("cannot publish: {error}");
                        }
                        status.send_modify(|status| status.last_error = Some(error.to_string()));
                        lock_retry = Instant::now() + lock_failures.delay();
                    }
                },
                () = sleep_until(read_due), if before.borrow().is_none() && session.knows_server() => {
                    let Some(read) = stop.run_until_cancelled(session.published_before()).await else { return };
                    match read {
                        Ok(slices) => { before.send_replace(Some(slices)); }
                        Err(delay) => read_due = Instant::now() + delay,
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && publishing && session.knows_server() => {
                    due = None;
                    let round = session.round(&lock);
                    match finish(round, &stop).await {
                        Some(Next::Rest) => {}
                        Some(Next::After(delay)) => due = Some(Instant::now() + delay),
                        None => return,
                    }
                }
                () = sleep_until(probe), if publishing => {
                    probe = Instant::now() + probe_interval.mul_f64(1.0 + fastrand::f64() / 4.0);
                    if session.probe().await {
                        due = Some(Instant::now());
                    }
                }
            }
        }
    }
}

/// Whether the server refuses a watch with an initial list, because its feature gate `WatchList` is off.
fn cannot_list_with_the_watch(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status))
        if status.code == 422 && status.message.contains("sendInitialEvents"))
}

/// Who publishes from now on.
enum Turn {
    Ours,
    Another,
}

/// Waits until this instance may publish or, for the publishing instance, until its turn ends.
async fn next_turn(lock: &mut PublishLock, not_before: Instant) -> Result<Turn, LockError> {
    if lock.holds() {
        lock.superseded().await;
        return Ok(Turn::Another);
    }
    sleep_until(not_before).await;
    lock.acquire().await?;
    Ok(Turn::Ours)
}

/// Passes the latest of `desired`, if known, to `session`. Returns whether it is new.
fn desire(session: &mut Session, desired: &mut watch::Receiver<Option<Arc<Desired>>>) -> bool {
    let desired = desired.borrow_and_update().clone();
    desired.is_some_and(|desired| session.desire(&desired))
}

/// Waits for the end of `round`, but only a limited time after `stop`.
async fn finish(round: impl Future<Output = Next>, stop: &CancellationToken) -> Option<Next> {
    let mut round = pin!(round);
    tokio::select! {
        next = &mut round => Some(next),
        () = stop.cancelled() => {
            // If possible, do not leave a pool half written.
            let _ = timeout(LAST_REQUESTS, round).await;
            None
        }
    }
}
