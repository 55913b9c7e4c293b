//! The fleet page: allocation and use of every card, partition and share, as HTML and JSON, for people. Read-only.
//!
//! On a loopback address, the default, the page is open to everyone allowed to forward a port to the pod. On any other address, a
//! token known to the API server and with access to the fleet is required.

mod authentication;
mod chart;
mod history;
mod map;
mod merge;
mod observed;
mod page;
mod prices;
mod store;
mod stored;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use prometheus_client::metrics::counter::Counter;
use tessera_api::fleet_view::{FleetView, PATH};
use tessera_cluster::Kind;
use tessera_decide::FleetSnapshot;
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::http_server::{Limits, serve_connections};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::usage::Usages;
use history::History;
use observed::Observed;
use prices::Prices;
pub use store::Store;

/// Requests to the decision loop for a view of the fleet.
pub type Asks = mpsc::Sender<oneshot::Sender<FleetSnapshot>>;

/// Maximum age of a cached answer, so that a crowd of readers costs no more than one.
const FRESH: Duration = Duration::from_secs(5);

/// Interval of the points of the history.
const MINUTE: Duration = Duration::from_secs(60);

/// The history is stored after this many new points. After a killed replica, the next one lacks no more points than this.
const KEPT_EVERY: u32 = 2;

/// Attempts to read the stored history, and the pause after each.
const RESTORE_TRIES: u32 = 6;
const RESTORE_PAUSE: Duration = Duration::from_secs(10);

/// Maximum wait for the use of cards, before the first point.
const FIRST_USAGE: Duration = Duration::from_secs(30);

/// Allows no content from elsewhere, no inline style or script, and no embedding into other pages.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Sources of the page.
pub struct FleetPage {
    asks: Asks,
    usages: watch::Receiver<Usages>,
    driver: String,
    prices: Result<Prices, String>,
    history: Mutex<History>,
    observed: Mutex<Observed>,
    latest: tokio::sync::Mutex<Option<(Instant, Arc<FleetView>)>>,
}

impl FleetPage {
    /// A page about this driver's cards. An unusable price list is reported on the page.
    #[must_use]
    pub fn new(
        driver: &str,
        asks: Asks,
        usages: watch::Receiver<Usages>,
        prices: Option<PathBuf>,
    ) -> Arc<Self> {
        let read = |file: PathBuf| {
            Prices::read(&file).map_err(|error| {
                let text = with_causes(&error);
                tracing::error!(file = %file.display(), "the price list {text}: there are no costs, and no card counts more than another");
                text
            })
        };
        Arc::new(FleetPage {
            asks,
            usages,
            driver: driver.to_owned(),
            prices: prices.map_or_else(|| Ok(Prices::default()), read),
            history: Mutex::default(),
            observed: Mutex::default(),
            latest: tokio::sync::Mutex::default(),
        })
    }

    /// Price of an hour of a card, by product name; none where the list cannot be used.
    pub fn per_card_hour(&self) -> BTreeMap<String, f64> {
        self.prices.as_ref().map(|prices| prices.per_card_hour.clone()).unwrap_or_default()
    }

    /// The fleet as of now or a few seconds ago; `None` while the process ends.
    async fn view(self: &Arc<Self>) -> Option<Arc<FleetView>> {
        let mut latest = self.latest.lock().await;
        if let Some((at, view)) = &*latest
            && at.elapsed() < FRESH
        {
            return Some(view.clone());
        }
        let (sender, answer) = oneshot::channel();
        self.asks.send(sender).await.ok()?;
        let snapshot = answer.await.ok()?;
        let view = Arc::new(self.aside(move |page| page.complete(snapshot)).await?);
        *latest = Some((Instant::now(), view.clone()));
        Some(view)
    }

    /// Runs slow work for a large fleet on a thread of its own; `None` after a panic.
    async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let page = self.clone();
        tokio::task::spawn_blocking(move || work(&page)).await.ok()
    }

    /// The decision loop's view, with the use and cost of cards.
    fn complete(&self, snapshot: FleetSnapshot) -> FleetView {
        let mut view = snapshot.into_view();
        let none = Prices::default();
        let prices = self.prices.as_ref().unwrap_or(&none);
        let usages = self.usages.borrow().clone();
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        merge::merge(&mut view, &usages, &observed, prices);
        drop(observed);
        view.prices_error = self.prices.as_ref().err().cloned();
        view.pools = merge::pools(&view);
        let has_prices = !prices.per_card_hour.is_empty();
        view.day = self.history().view(has_prices);
        view
    }

    /// Records the history until `shutdown`, starting once no watched kind is `missing`. Continues from the history in the store,
    /// and writes to the store. Counts busy time in the metrics.
    pub async fn keep_history(
        self: Arc<Self>,
        mut missing: watch::Receiver<BTreeSet<Kind>>,
        mut store: Option<Store>,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) {
        let begun = async {
            if let Some(store) = &mut store {
                self.restore(store).await;
            }
            // Before, nodes and claims would seem to be gone, and cards idle until their plugins have answered.
            let _ = missing.wait_for(BTreeSet::is_empty).await;
            let mut usages = self.usages.clone();
            let _ = tokio::time::timeout(FIRST_USAGE, usages.wait_for(|usages| !usages.is_empty())).await;
        };
        if shutdown.run_until_cancelled(begun).await.is_none() {
            return;
        }
        let mut minutes = tokio::time::interval(MINUTE);
        let mut minute: u32 = 0;
        while shutdown.run_until_cancelled(minutes.tick()).await.is_some() {
            let Some(view) = self.view().await else { break };
            self.add_point(&view, &metrics);
            minute = minute.wrapping_add(1);
            if let Some(store) = store.as_mut().filter(|_| minute.is_multiple_of(KEPT_EVERY)) {
                self.keep(store).await;
            }
        }
        // The Lease is held until all tasks have ended.
        if let Some(store) = &mut store {
            self.keep(store).await;
        }
    }

    /// Adds a point to the history, and busy time to the metrics while there are teams: the leader alone knows teams, and counts allocated time
    /// while there are any.
    fn add_point(&self, view: &FleetView, metrics: &Metrics) {
        let none = Prices::default();
        let prices = self.prices.as_ref().unwrap_or(&none);
        let added = self.history().add(view, prices);
        if !view.teams.is_empty() {
            metrics.add_busy(added.iter().map(|(namespace, tally)| (*namespace, tally.busy * 3600.0)));
        }
    }

    async fn restore(&self, store: &mut Store) {
        for _ in 0..RESTORE_TRIES {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            if let Some(history) = store.read(now.as_secs()).await {
                *self.history() = history;
                return;
            }
            tokio::time::sleep(RESTORE_PAUSE).await;
        }
    }

    async fn keep(&self, store: &mut Store) {
        let text = stored::write(&self.history());
        store.write(&text).await;
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the peak use of each claim, from round to round of the plugins' answers, until `shutdown`.
    pub async fn keep_observed(self: Arc<Self>, shutdown: CancellationToken) {
        let mut usages = self.usages.clone();
        while let Some(Ok(())) = shutdown.run_until_cancelled(usages.changed()).await {
            let round = usages.borrow_and_update().clone();
            self.observed.lock().unwrap_or_else(PoisonError::into_inner).add(&round);
        }
        // The sender is gone: no plugins are asked, or the process ends.
        shutdown.cancelled().await;
    }

    fn html(&self, view: &FleetView) -> String {
        page::page(view, &self.driver).into_string()
    }
}

/// Starts to listen. The log names the actual port for port 0.
///
/// # Errors
/// If listening on the address fails.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let port = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for the fleet page: choose another --fleet-address")
    })?;
    tracing::info!(address = %port.local_addr().unwrap_or(address), "fleet page");
    Ok(port)
}

/// Serves until `shutdown`. `client` checks tokens with the API server.
pub async fn serve(
    port: TcpListener,
    fleet: Arc<FleetPage>,
    client: kube::Client,
    refused: Counter,
    shutdown: CancellationToken,
) {
    let is_local = port.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let router = Router::new()
        .route("/", get(html))
        .route(PATH, get(json))
        .route(
            "/fleet.css",
            get(async || ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("fleet_page/fleet.css"))),
        )
        .route(
            "/fleet.js",
            get(async || {
                ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("fleet_page/fleet.js"))
            }),
        )
        .with_state(fleet);
    let router = if is_local {
        router.layer(from_fn(authentication::local))
    } else {
        router.layer(from_fn_with_state(client, authentication::by_token))
    };
    let router = router.layer(from_fn(protect));
    serve_connections(TcpListenerStream::new(port), router, Limits::default(), &refused, &shutdown).await;
}

async fn html(State(fleet): State<Arc<FleetPage>>) -> Response {
    answer("text/html; charset=utf-8", &fleet, FleetPage::html).await
}

async fn json(State(fleet): State<Arc<FleetPage>>) -> Response {
    // Cannot fail: keys are strings, and numbers are finite or null.
    answer("application/json", &fleet, |_, view| serde_json::to_string(view).unwrap_or_default()).await
}

/// Answers with a text made from the fleet.
async fn answer(
    form: &'static str,
    fleet: &Arc<FleetPage>,
    text: fn(&FleetPage, &FleetView) -> String,
) -> Response {
    let Some(view) = fleet.view().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    match fleet.aside(move |page| text(page, &view)).await {
        Some(text) => ([(CONTENT_TYPE, form)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ] {
        headers.insert(name, axum::http::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::{CardView, Holder, NodeView, TeamView};
    use tessera_api::usage::{CardUsage, ClaimUsage, DeviceUsage, NodeUsage};

    use super::*;

    /// A fleet of one card held by one claim.
    fn fleet() -> FleetSnapshot {
        let holder = Holder {
            device: "gpu-01-00".to_owned(),
            namespace: "team".to_owned(),
            claim: "claim".to_owned(),
            ..Holder::default()
        };
        let card = CardView { holders: vec![holder], ..CardView::default() };
        let cards = [("0000:01:00.0".parse().unwrap(), card)].into();
        let node = NodeView { name: "node-a".to_owned(), cards, ..NodeView::default() };
        FleetSnapshot::of_nodes(vec![node])
    }

    fn round(at: u64, memory: u64, activity: f64) -> Usages {
        let device = DeviceUsage {
            device: "gpu-01-00".to_owned(),
            memory_used_mib: Some(memory),
            sm_activity: Some(activity),
            ..DeviceUsage::default()
        };
        let claim = ClaimUsage {
            namespace: "team".to_owned(),
            name: "claim".to_owned(),
            uid: "uid".to_owned(),
            devices: vec![device],
            ..ClaimUsage::default()
        };
        let card = CardUsage { product_name: "A".to_owned(), memory_total_mib: 1000, ..CardUsage::default() };
        let cards = [("0000:01:00.0".parse().unwrap(), card)].into();
        let usage = NodeUsage { at, cards, claims: vec![claim] };
        Arc::new(BTreeMap::from([("node-a".to_owned(), Ok(Arc::new(usage)))]))
    }

    #[tokio::test]
    async fn what_a_claim_used_at_most_is_told_after_it_uses_less() {
        let prices = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(prices.path(), r#"{"currency": "USD", "perCardHour": {"A": 2.5}}"#).unwrap();
        let (asks_sender, mut asks) = mpsc::channel::<oneshot::Sender<FleetSnapshot>>(1);
        let (usages_sender, usages) = watch::channel(Usages::default());
        let page = FleetPage::new("gpu.tessera.dev", asks_sender, usages, Some(prices.path().to_owned()));
        let shutdown = CancellationToken::new();
        let keeping = tokio::spawn(page.clone().keep_observed(shutdown.clone()));
        tokio::spawn(async move {
            while let Some(ask) = asks.recv().await {
                let _ = ask.send(fleet());
            }
        });
        for (at, memory, activity) in [(1000, 10, 0.9), (1015, 700, 0.5), (1030, 20, 0.1)] {
            usages_sender.send_replace(round(at, memory, activity));
            // This runtime has one thread: the other task processes the round meanwhile.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let view = page.view().await.unwrap();
        let card = view.nodes[0].cards.values().next().unwrap();
        let holder = &card.holders[0];
        assert_eq!((view.currency.as_deref(), card.price_per_hour), (Some("USD"), Some(2.5)));
        assert_eq!((holder.memory_used_mib, holder.memory_peak_mib), (Some(20), Some(700)));
        assert_eq!(
            (holder.observed_seconds, holder.sm_mean, holder.sm_peak),
            (Some(30), Some(0.3), Some(0.5))
        );
        shutdown.cancel();
        keeping.await.unwrap();
    }

    #[test]
    fn busy_time_is_counted_while_there_are_teams() {
        let (asks, _) = mpsc::channel(1);
        let page = FleetPage::new("gpu.tessera.dev", asks, watch::channel(Usages::default()).1, None);
        let metrics = Metrics::new();
        let at = |second: u64, activity: Option<f64>| history::tests::fleet(second, 1, activity);
        page.add_point(&at(0, Some(0.5)), &metrics);
        page.add_point(&at(60, Some(0.5)), &metrics);
        assert!(!metrics.encode().unwrap().contains("team-0"), "no team");
        for (second, activity) in [(120, Some(0.5)), (180, None)] {
            let teams = vec![TeamView::default()];
            page.add_point(&FleetView { teams, ..at(second, activity) }, &metrics);
        }
        let line = "tessera_controller_busy_card_seconds_total{namespace=\"team-0\"} 30.0\n";
        assert!(
            metrics.encode().unwrap().contains(line),
            "the unknown is not busy: {}",
            metrics.encode().unwrap()
        );
    }

    #[tokio::test]
    async fn the_day_begins_with_what_was_kept_and_is_kept_at_the_end() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut before = History::default();
        for minutes in (1..60).rev() {
            before.add(&history::tests::fleet(now - 60 * minutes, 1, Some(0.3)), &Prices::default());
        }
        let text = stored::write(&before) + "\n";
        let data = Arc::new(Mutex::new(serde_json::json!({ "day.json": text })));
        let client = store::tests::client(data.clone(), Arc::new(Mutex::new(200)));
        let store = Store::new(client, "tessera-system", "day", Arc::new(|| true));

        let (asks_sender, mut asks) = mpsc::channel::<oneshot::Sender<FleetSnapshot>>(1);
        let (_usages_sender, usages) = watch::channel(round(1000, 10, 0.5));
        let page = FleetPage::new("gpu.tessera.dev", asks_sender, usages, None);
        let (missing_sender, missing) = watch::channel(BTreeSet::from([Kind::Node]));
        let shutdown = CancellationToken::new();
        let keeping =
            tokio::spawn(page.clone().keep_history(missing, Some(store), Metrics::new(), shutdown.clone()));
        tokio::time::timeout(Duration::from_millis(200), asks.recv())
            .await
            .expect_err("not all was seen yet");
        missing_sender.send_replace(BTreeSet::new());
        let ask = asks.recv().await.unwrap();
        ask.send(fleet()).unwrap();
        while page.history().points().count() <= before.points().count() / 5 {
            tokio::task::yield_now().await;
        }
        let day = page.history().view(false);
        assert_eq!(day.namespaces[0].namespace, "team-0", "{day:?}");
        shutdown.cancel();
        keeping.await.unwrap();
        let kept = data.lock().unwrap()["day.json"].as_str().unwrap().to_owned();
        assert!(kept.contains("team-0") && !kept.ends_with('\n'), "{kept}");
    }
}
