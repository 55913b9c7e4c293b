//! Keeps the driver library open. It may come and go: a node can boot before its driver is installed.

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
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use kernel_list::KernelList;

/// The open driver library; `None` while it is missing, too old or finds no cards. The reason is in
/// [`DriverKeeper::reason`].
pub type Driver = watch::Receiver<Option<Arc<dyn Nvml>>>;

/// First and longest pause after a failed attempt to open the library.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often to check that the open library still answers.
const CHECK: Duration = Duration::from_secs(15);

/// How long the library may be away, because it is opened anew, before the cards count as lost.
pub(crate) const AWAY: Duration = Duration::from_secs(8);

/// Why there is no open library before the first attempt has ended.
const OPENING: &str = "the driver library is being opened";

/// How long opening may take before it counts as failed. Without persistence mode the driver wakes up one card after the other,
/// some seconds each; one that hangs never returns.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// How long whoever uses the library has to let go of it before it is opened anew. Those who listen to events take half a
/// second; a call that hangs may take for ever.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// How often a lasting problem is logged again.
const REMIND: Duration = Duration::from_secs(600);

/// Opens the library: [`Library::open_below`], or a stand-in of a test.
type Open = dyn Fn(&DriverRoot) -> Result<Arc<dyn Nvml>, OpenError> + Send + Sync;

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

/// Opens the driver library as soon as there is one that works, and again after the driver was replaced.
pub struct DriverKeeper {
    driver_root: DriverRoot,
    proc_root: PathBuf,
    open: Arc<Open>,
    driver: watch::Sender<Option<Arc<dyn Nvml>>>,
    reason: watch::Sender<Option<String>>,
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
    /// A keeper of the driver installed below `driver_root`, whose kernel side tells below `proc_root` of itself; nothing is
    /// opened before [`Self::run`].
    #[must_use]
    pub fn new(driver_root: DriverRoot, proc_root: PathBuf, metrics: DriverMetrics) -> Self {
        let open = |root: &DriverRoot| -> Result<Arc<dyn Nvml>, OpenError> {
            Ok(Arc::new(Library::open_anew_below(root, CLOSED_WITHIN)?))
        };
        Self::with_open(driver_root, proc_root, Arc::new(open), metrics)
    }

    fn with_open(
        driver_root: DriverRoot,
        proc_root: PathBuf,
        open: Arc<Open>,
        metrics: DriverMetrics,
    ) -> Self {
        let reason = watch::Sender::new(Some(OPENING.to_owned()));
        Self { driver_root, proc_root, open, driver: watch::Sender::new(None), reason, metrics }
    }

    /// The open library, as it comes and goes.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.driver.subscribe()
    }

    /// Why there is no open library.
    #[must_use]
    pub fn reason(&self) -> watch::Receiver<Option<String>> {
        self.reason.subscribe()
    }

    /// Keeps the library open until `shutdown`. All driver calls are on blocking threads; one that hangs does not
    /// delay this.
    pub async fn run(self, shutdown: CancellationToken) {
        let work = async {
            loop {
                // Before the library: what comes in between is then news, not overlooked.
                let listed = KernelList::read_in_background(&self.proc_root).await;
                let nvml = self.open().await;
                self.reason.send_replace(None);
                self.metrics.ready.set(1);
                self.driver.send_replace(Some(Arc::clone(&nvml)));
                let why = match until_it_ends(nvml, listed, &self.proc_root).await {
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
                };
                self.metrics.ready.set(0);
                self.reason.send_replace(Some(why));
                self.driver.send_replace(None);
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Tries until it succeeds.
    async fn open(&self) -> Arc<dyn Nvml> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut told: Option<(String, Instant)> = None;
        loop {
            let (open, root) = (Arc::clone(&self.open), self.driver_root.clone());
            let since = Instant::now();
            let (message, label) = match tokio::task::spawn_blocking(move || open(&root)).await {
                Ok(Ok(nvml)) => {
                    tracing::info!(elapsed = ?since.elapsed(), "driver library open");
                    return nvml;
                }
                Ok(Err(error)) => (error.to_string(), label(&error)),
                Err(panic) => (format!("opening the driver library broke off: {panic}"), "panic"),
            };
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

/// Returns when the library has not been open for [`AWAY`], and could not be opened or takes very long.
pub(crate) async fn is_away(mut driver: Driver, mut reason: watch::Receiver<Option<String>>) {
    loop {
        // Both senders live as long as the plugin: an error means that it is ending.
        if driver.wait_for(Option::is_none).await.is_err() {
            return std::future::pending().await;
        }
        let failed = async {
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
    /// What the kernel lists and the library, which looked for cards when it was opened, cannot know.
    Outdated(String),
}

/// Returns when the driver's version can't be read any more, which is so after the kernel module was unloaded or replaced;
/// when the kernel lists a card that was not there when the library was opened; or when the library was opened beside calls that
/// hung, which kept it from looking for cards, and they have returned.
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
