//! Reports the state of layouts: log, Events, metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use tessera_api::{DeviceName, PciBusId};

use super::metrics::LayoutMetrics;
use super::status::{CardStatus, LayoutState, NO_LAYOUT};
use tessera_kube_util::events::{Events, NodeEvents, Severity};

/// Minimum pause before the same state of a card is reported again, for another reason.
const PAUSE: Duration = Duration::from_secs(60);

/// Reports the states of layouts to administrators, in log, Events of the Node and metrics. Each state once while it lasts.
pub(super) struct Announcer {
    events: NodeEvents,
    metrics: LayoutMetrics,
    told: BTreeMap<PciBusId, (CardStatus, Instant)>,
    source: Option<String>,
}

impl Announcer {
    pub(super) fn new(client: Client, driver_name: &str, node_name: &str, metrics: LayoutMetrics) -> Self {
        let events = NodeEvents::new(Events::start(client, driver_name, node_name), node_name);
        Self { events, metrics, told: BTreeMap::new(), source: None }
    }

    /// Reports why the file or the label can't be read; `None` if they can.
    pub(super) async fn source(&mut self, trouble: Option<String>) {
        self.metrics.file_wrong.set(trouble.is_some().into());
        if self.source == trouble {
            return;
        }
        if let Some(trouble) = &trouble {
            tracing::error!("{trouble}; the cards' MIG layouts stay as they were");
            self.publish(Severity::Warning, "MigLayoutUnreadable", trouble).await;
        } else {
            tracing::info!("MIG layouts can be read again");
        }
        self.source = trouble;
    }

    /// Reports the state of the cards.
    pub(super) async fn cards(&mut self, cards: &BTreeMap<PciBusId, CardStatus>) {
        for state in LayoutState::ALL {
            let count = cards.values().filter(|status| status.state == state).count();
            self.metrics.cards(state).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.told.retain(|card, _| cards.contains_key(card));
        for (card, status) in cards {
            if let Some((told, since)) = self.told.get(card) {
                let is_known = told == status;
                let is_like = told.state == status.state && told.layout == status.layout;
                if is_known || (is_like && since.elapsed() < PAUSE) {
                    continue;
                }
            }
            self.told.insert(*card, (status.clone(), Instant::now()));
            self.card(*card, status).await;
        }
    }

    async fn card(&self, card: PciBusId, status: &CardStatus) {
        let CardStatus { layout, state, message, .. } = status;
        let device = DeviceName::Card(card);
        let aim = match layout.as_str() {
            NO_LAYOUT => "be a whole card again, which it was before a layout that is gone".to_owned(),
            layout => format!("be laid out as {layout}"),
        };
        let (kind, reason, note) = match state {
            LayoutState::Applied => {
                tracing::info!(%card, layout, "the card is laid out");
                (Severity::Normal, "MigLayoutApplied", format!("{device} is laid out as {layout} wants it"))
            }
            LayoutState::Pending => {
                tracing::warn!(%card, layout, message, "the layout waits until the card is free");
                let note = format!("{device} can't {aim} yet: {message}. It takes no new claims");
                (Severity::Warning, "MigLayoutPending", note)
            }
            LayoutState::NeedsReset => {
                tracing::warn!(%card, layout, message, "the layout waits for a reset of the card");
                let note = format!("{device} must be reset before it can {aim}: {message}");
                (Severity::Warning, "MigLayoutNeedsReset", note)
            }
            LayoutState::Failed => {
                tracing::error!(%card, layout, message, "the card can't be laid out");
                let note = format!("{device} can't {aim}: {message}");
                (Severity::Warning, "MigLayoutFailed", note)
            }
        };
        self.publish(kind, reason, &note).await;
    }

    async fn publish(&self, severity: Severity, reason: &'static str, note: &str) {
        let _ = self.events.send(severity, "LayOut", reason, note).await;
    }
}
