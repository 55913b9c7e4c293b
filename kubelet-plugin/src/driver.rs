//! Keeps the driver library open. The library may come and go: a node can boot before its driver is installed.

mod closer;
mod kernel_list;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tessera_kube_util::{backoff::Backoff, metrics::add};
use tessera_nvml::{DriverRoot, Library, Nvml, OpenError};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use closer::Request;
use kernel_list::KernelList;

pub(crate) use closer::is_not_let_go;
pub use closer::{Closed, DriverCloser, LetGo};

/// The open driver library; `None` while it is missing, too old or finds no cards. The reason is in
/// [`DriverKeeper::reason`].
pub type Driver = watch::Receiver<Option<Arc<dyn Nvml>>>;

/// First and longest pause after a failed attempt to open the library.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Interval of checks of the open library.
const CHECK: Duration = Duration::from_secs(15);

/// How long the library may be away, to be opened anew, before the cards count as lost.
pub(crate) const AWAY: Duration = Duration::from_secs(8);

/// Reason for a missing library before the first attempt has ended.
const OPENING: &str = "the driver library is being opened";

/// How long opening may take before the attempt counts as failed. Without persistence mode the driver wakes up one card after the
/// other, some seconds each. A card that hangs never returns.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// How long the library's users have to release the library before it is opened anew. Event listeners take half a second. A
/// hanging call may take for ever.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// How often a lasting problem is logged again.
const REMIND: Duration = Duration::from_secs(600);

/// Opens the library: [`Library::open_below`], or a stand-in of a test.
type Open = dyn Fn(&DriverRoot) -> Result<Arc<dyn Nvml>, OpenError> + Send + Sync;

/// Whether this process has closed all sessions with the library: [`Library::is_closed_within`], or a stand-in of a test.
type IsClosed = dyn Fn(&DriverRoot) -> bool + Send + Sync;

/// Metrics of the driver library. Clones share their values.
#[derive(Clone, Debug)]
pub struct DriverMetrics {
    ready: Gauge,
    failures: Family<ReasonLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Opens the driver library as soon as a working one is installed, and again after the driver was replaced.
pub struct DriverKeeper {
    driver_root: DriverRoot,
    proc_root: PathBuf,
    open: Arc<Open>,
    is_closed: Arc<IsClosed>,
    driver: watch::Sender<Option<Arc<dyn Nvml>>>,
    reason: watch::Sender<Option<String>>,
    let_go: watch::Sender<bool>,
    closer: DriverCloser,
    requests: mpsc::Receiver<Request>,
    metrics: DriverMetrics,
}

impl DriverMetrics {
    /// Registers the metrics, all zero.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            ready: add(registry, "hardware_ready", "1 while the driver library answers"),
            failures: add(registry, "hardware_failures", "Failed attempts to read the hardware"),
        }
    }

    fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabel { reason }).inc();
    }
}

impl DriverKeeper {
    /// A keeper of the driver installed below `driver_root`, whose kernel module's files are below `proc_root`; nothing is
    /// opened before [`Self::run`].
    #[must_use]
    pub fn new(driver_root: DriverRoot, proc_root: PathBuf, metrics: DriverMetrics) -> Self {
        let open = |root: &DriverRoot| -> Result<Arc<dyn Nvml>, OpenError> {
            Ok(Arc::new(Library::open_anew_below(root, CLOSED_WITHIN)?))
        };
        let is_closed = |root: &DriverRoot| Library::is_closed_within(root, CLOSED_WITHIN);
        Self {
            is_closed: Arc::new(is_closed),
            ..Self::with_open(driver_root, proc_root, Arc::new(open), metrics)
        }
    }

    fn with_open(
        driver_root: DriverRoot,
        proc_root: PathBuf,
        open: Arc<Open>,
        metrics: DriverMetrics,
    ) -> Self {
        let reason = watch::Sender::new(Some(OPENING.to_owned()));
        let (closer, requests) = DriverCloser::new();
        Self {
            driver_root,
            proc_root,
            open,
            is_closed: Arc::new(|_| true),
            driver: watch::Sender::new(None),
            reason,
            let_go: watch::Sender::new(false),
            closer,
            requests,
            metrics,
        }
    }

    /// The open library, followed as it comes and goes.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.driver.subscribe()
    }

    /// Reason for a missing library.
    #[must_use]
    pub fn reason(&self) -> watch::Receiver<Option<String>> {
        self.reason.subscribe()
    }

    /// Whether the library is closed on request.
    #[must_use]
    pub fn let_go(&self) -> LetGo {
        self.let_go.subscribe()
    }

    /// Has the library closed for a while.
    #[must_use]
    pub fn closer(&self) -> DriverCloser {
        self.closer.clone()
    }

    /// Keeps the library open until `shutdown`. All driver calls are on blocking threads, so a hanging call does not
    /// delay this task.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let work = async {
            loop {
                // List before opening: a card added in between then counts as new instead of being overlooked.
                let listed = KernelList::read_in_background(&self.proc_root).await;
                let nvml = self.open().await;
                self.reason.send_replace(None);
                self.metrics.ready.set(1);
                self.driver.send_replace(Some(Arc::clone(&nvml)));
                self.let_go.send_replace(false);
                let end = tokio::select! {
                    end = until_it_ends(nvml, listed, &self.proc_root) => end,
                    // The channel never ends: this keeps a sender.
                    Some(request) = self.requests.recv() => End::Asked(request),
                };
                let mut asked = None;
                let why = match end {
                    End::Failed(error) => {
                        tracing::warn!(error, "the driver library does not answer any more; opening it anew");
                        self.metrics.failed("stopped_answering");
                        error
                    }
                    End::Outdated(news) => {
                        tracing::info!(
                            news,
                            "opening the driver library anew, which knows nothing of what came meanwhile"
                        );
                        format!("{news}: the driver library is being opened anew")
                    }
                    End::Asked(request) => {
                        tracing::info!(why = request.why, "closing the driver library for a while");
                        // Before the library is gone: nobody takes the cards for lost then.
                        self.let_go.send_replace(true);
                        let why = request.why.clone();
                        asked = Some(request);
                        why
                    }
                };
                self.metrics.ready.set(0);
                self.reason.send_replace(Some(why));
                self.driver.send_replace(None);
                if let Some(request) = asked {
                    self.keep_closed(request).await;
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Returns when the requester is done; or, after an answer to the requester, when hanging driver calls keep the library open.
    async fn keep_closed(&self, request: Request) {
        let (is_closed, root) = (Arc::clone(&self.is_closed), self.driver_root.clone());
        if tokio::task::spawn_blocking(move || is_closed(&root)).await.unwrap_or(false) {
            request.keep_closed().await;
        } else {
            request.refuse(format!("calls of the driver have not returned within {CLOSED_WITHIN:?}"));
        }
    }

    /// Retries until the library is open.
    async fn open(&self) -> Arc<dyn Nvml> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut told: Option<(String, Instant)> = None;
        loop {
            let (open, root) = (Arc::clone(&self.open), self.driver_root.clone());
            let since = Instant::now();
            let mut opening = tokio::task::spawn_blocking(move || open(&root));
            let opened = match tokio::time::timeout(OPEN_WITHIN, &mut opening).await {
                Ok(opened) => opened,
                Err(_) => {
                    self.let_go.send_replace(false);
                    opening.await
                }
            };
            let (message, label) = match opened {
                Ok(Ok(nvml)) => {
                    tracing::info!(elapsed = ?since.elapsed(), "driver library open");
                    return nvml;
                }
                Ok(Err(error)) => (error.to_string(), label(&error)),
                Err(panic) => (format!("opening the driver library broke off: {panic}"), "panic"),
            };
            self.let_go.send_replace(false);
            self.metrics.failed(label);
            if told.as_ref().is_none_or(|(last, at)| *last != message || at.elapsed() > REMIND) {
                tracing::warn!(
                    "no claim can be prepared, and no GPU of this node gets new ones: {message} (trying again every \
                     {LONGEST_PAUSE:?})"
                );
                told = Some((message.clone(), Instant::now()));
            }
            self.reason.send_replace(Some(message));
            backoff.sleep().await;
        }
    }
}

/// Returns when the library has not been open for [`AWAY`], not by request, and could not be opened or takes very long.
pub(crate) async fn is_away(
    mut driver: Driver,
    mut reason: watch::Receiver<Option<String>>,
    mut let_go: LetGo,
) {
    loop {
        // Both senders live as long as the plugin: an error means the plugin is ending.
        if driver.wait_for(Option::is_none).await.is_err() {
            return std::future::pending().await;
        }
        let failed = async {
            is_not_let_go(&mut let_go).await;
            tokio::time::sleep(AWAY).await;
            let has_failed =
                |reason: &Option<String>| reason.as_ref().is_some_and(|reason| reason != OPENING);
            let _ = tokio::time::timeout(OPEN_WITHIN, reason.wait_for(has_failed)).await;
        };
        tokio::select! {
            () = failed => return,
            Ok(_) = driver.wait_for(Option::is_some) => {}
        }
    }
}

/// Why an open library must be opened anew.
enum End {
    /// The library's error.
    Failed(String),
    /// The kernel's list differs from the library's, which looks for cards only when opened.
    Outdated(String),
    /// Closed on request.
    Asked(Request),
}

/// Returns when the driver's version can't be read any more (the kernel module was unloaded or replaced), when the kernel lists a
/// card added after the library was opened, or when the library was opened beside hanging calls, which kept the library from
/// looking for cards, and these calls have returned.
async fn until_it_ends(nvml: Arc<dyn Nvml>, mut listed: Option<KernelList>, proc_root: &Path) -> End {
    loop {
        tokio::time::sleep(CHECK).await;
        let now = KernelList::read_in_background(proc_root).await;
        if let (Some(before), Some(now)) = (&listed, &now)
            && let Some(news) = before.news(now)
        {
            return End::Outdated(news);
        }
        listed = now.or(listed);
        if nvml.is_outdated() {
            return End::Outdated("calls that hung when it was opened have returned".to_owned());
        }
        let nvml = Arc::clone(&nvml);
        match tokio::task::spawn_blocking(move || nvml.driver_version()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return End::Failed(error.to_string()),
            Err(panic) => return End::Failed(format!("asking the driver library broke off: {panic}")),
        }
    }
}

fn label(error: &OpenError) -> &'static str {
    match error {
        OpenError::NotFound { .. } => "not_found",
        OpenError::OtherProcessor { .. } => "other_processor",
        OpenError::CutShort { .. } => "cut_short",
        OpenError::NotLoadable { .. } => "not_loadable",
        OpenError::NotStarted { .. } => "not_started",
        OpenError::NoCards { .. } => "no_cards",
        OpenError::TooOld { .. } => "too_old",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tessera_api::PciBusId;
    use tessera_nvml::{Identity, NvmlError};

    use super::*;

    struct NoCards;

    impl Nvml for NoCards {
        fn identify(&self, _: PciBusId) -> Result<Identity, NvmlError> {
            Err(NvmlError::MissingFunction { function: "nvmlDeviceGetHandleByPciBusId_v2" })
        }
    }

    #[tokio::test]
    async fn a_driver_that_is_installed_later_is_found_and_meanwhile_the_reason_is_told() {
        let attempts = Arc::new(AtomicU32::new(0));
        let open = {
            let attempts = Arc::clone(&attempts);
            move |root: &DriverRoot| -> Result<Arc<dyn Nvml>, OpenError> {
                match attempts.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(OpenError::NotFound { root: root.clone() }),
                    _ => Ok(Arc::new(NoCards)),
                }
            }
        };
        let keeper = DriverKeeper::with_open(
            DriverRoot::from(Path::new("/nowhere")),
            "/nowhere".into(),
            Arc::new(open),
            DriverMetrics::register(&mut Registry::default()),
        );
        let (mut hardware, mut reason) = (keeper.driver(), keeper.reason());
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(keeper.run(shutdown.clone()));
        let told = reason.wait_for(|reason| reason.as_ref().is_some_and(|r| r.contains("/nowhere"))).await;
        assert!(told.unwrap().as_ref().unwrap().contains("install the NVIDIA driver"));
        hardware.wait_for(Option::is_some).await.unwrap();
        assert_eq!(*reason.borrow_and_update(), None);
        shutdown.cancel();
        running.await.unwrap();
        assert_eq!(attempts.load(Ordering::SeqCst), 2);
    }

    /// A keeper whose library opens at once, and whose sessions have ended if `is_closed`.
    fn keeper(is_closed: bool) -> DriverKeeper {
        let open = |_: &DriverRoot| -> Result<Arc<dyn Nvml>, OpenError> { Ok(Arc::new(NoCards)) };
        let (root, metrics) =
            (DriverRoot::from(Path::new("/")), DriverMetrics::register(&mut Registry::default()));
        let keeper = DriverKeeper::with_open(root, "/nowhere".into(), Arc::new(open), metrics);
        DriverKeeper { is_closed: Arc::new(move |_| is_closed), ..keeper }
    }

    #[tokio::test]
    async fn a_library_that_is_closed_on_request_is_not_away() {
        let keeper = keeper(true);
        let (mut hardware, reason, mut let_go) = (keeper.driver(), keeper.reason(), keeper.let_go());
        let closer = keeper.closer();
        let running = tokio::spawn(keeper.run(CancellationToken::new()));
        hardware.wait_for(Option::is_some).await.unwrap();
        let mut away = tokio::spawn(is_away(hardware.clone(), reason.clone(), let_go.clone()));
        let closed = closer.close("a card is being reset".to_owned()).await.unwrap();
        assert!(hardware.borrow().is_none() && *let_go.borrow());
        assert_eq!(reason.borrow().as_deref(), Some("a card is being reset"));
        assert!(
            tokio::time::timeout(AWAY + Duration::from_secs(1), &mut away).await.is_err(),
            "it is not away"
        );
        drop(closed);
        hardware.wait_for(Option::is_some).await.unwrap();
        let_go.wait_for(|is_let_go| !is_let_go).await.unwrap();
        // The requester may have given up.
        closer.close("again".to_owned()).await.map(drop).unwrap();
        hardware.wait_for(Option::is_some).await.unwrap();
        running.abort();
    }

    #[tokio::test]
    async fn a_library_that_hangs_is_opened_again_and_who_asked_is_told() {
        let keeper = keeper(false);
        let (mut hardware, closer) = (keeper.driver(), keeper.closer());
        let running = tokio::spawn(keeper.run(CancellationToken::new()));
        hardware.wait_for(Option::is_some).await.unwrap();
        let refused = closer.close("a card is being reset".to_owned()).await.map(drop).unwrap_err();
        assert!(refused.contains("have not returned within 5s"), "{refused}");
        hardware.wait_for(Option::is_some).await.unwrap();
        running.abort();
    }

    #[tokio::test]
    async fn a_panicking_library_is_survived() {
        let attempts = Arc::new(AtomicU32::new(0));
        let open = move |_: &DriverRoot| -> Result<Arc<dyn Nvml>, OpenError> {
            assert!(attempts.fetch_add(1, Ordering::SeqCst) > 0, "first attempt");
            Ok(Arc::new(NoCards))
        };
        let keeper = DriverKeeper::with_open(
            DriverRoot::from(Path::new("/")),
            "/nowhere".into(),
            Arc::new(open),
            DriverMetrics::register(&mut Registry::default()),
        );
        let mut hardware = keeper.driver();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(keeper.run(shutdown.clone()));
        hardware.wait_for(Option::is_some).await.unwrap();
        shutdown.cancel();
        running.await.unwrap();
    }
}
