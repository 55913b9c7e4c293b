use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tessera_api::{DeviceName, PciBusId};

use super::status::{CardStatus, LayoutState};
use crate::error_text::shorten;
use crate::metrics::Metrics;

/// The API server's limit of an Event's note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Tells admins how layouts go: log, Events of the Node, metrics. Each thing once for as long as it stays so.
pub(super) struct Announcer {
    recorder: Recorder,
    node: ObjectReference,
    metrics: Metrics,
    told: BTreeMap<PciBusId, CardStatus>,
    source: Option<String>,
}

impl Announcer {
    pub(super) fn new(client: Client, driver_name: &str, node_name: &str, metrics: Metrics) -> Self {
        let reporter = Reporter { controller: driver_name.to_owned(), instance: Some(node_name.to_owned()) };
        let node = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node_name.to_owned()),
            // As the kubelet does it: a Node's Events are found by its name.
            uid: Some(node_name.to_owned()),
            ..ObjectReference::default()
        };
        let recorder = Recorder::new(client, reporter);
        Self { recorder, node, metrics, told: BTreeMap::new(), source: None }
    }

    /// The file or the label can't be read; `None` when they can.
    pub(super) async fn source(&mut self, trouble: Option<String>) {
        self.metrics.layout_file_wrong.set(trouble.is_some().into());
        if self.source == trouble {
            return;
        }
        if let Some(trouble) = &trouble {
            tracing::error!("{trouble}; the cards' MIG layouts stay as they were");
            self.publish(EventType::Warning, "MigLayoutUnreadable", trouble).await;
        } else {
            tracing::info!("MIG layouts can be read again");
        }
        self.source = trouble;
    }

    /// How far the cards are.
    pub(super) async fn cards(&mut self, cards: &BTreeMap<PciBusId, CardStatus>) {
        for state in LayoutState::ALL {
            let count = cards.values().filter(|status| status.state == state).count();
            self.metrics.layout_cards(state).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (card, status) in cards {
            if self.told.get(card) != Some(status) {
                self.card(*card, status).await;
            }
        }
        self.told.clone_from(cards);
    }

    async fn card(&self, card: PciBusId, status: &CardStatus) {
        let CardStatus { layout, state, message, .. } = status;
        let device = DeviceName::Card(card);
        let (kind, reason, note) = match state {
            LayoutState::Applied => {
                tracing::info!(%card, layout, "the card is laid out");
                (EventType::Normal, "MigLayoutApplied", format!("{device} is laid out as {layout} wants it"))
            }
            LayoutState::Pending => {
                tracing::warn!(%card, layout, message, "the layout waits until the card is free");
                let note =
                    format!("{device} can't be laid out as {layout} yet: {message}. It takes no new claims");
                (EventType::Warning, "MigLayoutPending", note)
            }
            LayoutState::NeedsReset => {
                tracing::warn!(%card, layout, message, "the layout waits for a reset of the card");
                let note = format!("{device} must be reset before it can be laid out as {layout}: {message}");
                (EventType::Warning, "MigLayoutNeedsReset", note)
            }
            LayoutState::Failed => {
                tracing::error!(%card, layout, message, "the card can't be laid out");
                let note = format!("{device} can't be laid out as {layout}: {message}");
                (EventType::Warning, "MigLayoutFailed", note)
            }
        };
        self.publish(kind, reason, &note).await;
    }

    async fn publish(&self, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(shorten(note, LONGEST_NOTE).to_owned()),
            action: "LayOut".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &self.node).await {
            tracing::debug!(%error, "an Event is left out");
        }
    }
}
