use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tessera_api::{DeviceName, PciBusId};

use super::status::{CardStatus, LayoutState};
use crate::error_text::shorten;
use crate::metrics::Metrics;

/// The API server's limits in bytes: `note`, `reportingInstance`; and what leaves room for the end of a made-up name.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;
const LONGEST_PREFIX: usize = 240;
/// Where Events of objects without a namespace go.
const NAMESPACE: &str = "default";
/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same state of a card, for another reason, is told no sooner than so long after.
const PAUSE: Duration = Duration::from_secs(60);

/// Tells admins how layouts go: log, Events of the Node, metrics. Each thing once for as long as it stays so.
pub(super) struct Announcer {
    client: Client,
    driver_name: String,
    node_name: String,
    metrics: Metrics,
    told: BTreeMap<PciBusId, (CardStatus, Instant)>,
    source: Option<String>,
}

impl Announcer {
    pub(super) fn new(client: Client, driver_name: &str, node_name: &str, metrics: Metrics) -> Self {
        let (driver_name, node_name) = (driver_name.to_owned(), node_name.to_owned());
        Self { client, driver_name, node_name, metrics, told: BTreeMap::new(), source: None }
    }

    /// The file or the label can't be read; `None` when they can.
    pub(super) async fn source(&mut self, trouble: Option<String>) {
        self.metrics.layout_file_wrong.set(trouble.is_some().into());
        if self.source == trouble {
            return;
        }
        if let Some(trouble) = &trouble {
            tracing::error!("{trouble}; the cards' MIG layouts stay as they were");
            self.publish("Warning", "MigLayoutUnreadable", trouble).await;
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
        let (kind, reason, note) = match state {
            LayoutState::Applied => {
                tracing::info!(%card, layout, "the card is laid out");
                ("Normal", "MigLayoutApplied", format!("{device} is laid out as {layout} wants it"))
            }
            LayoutState::Pending => {
                tracing::warn!(%card, layout, message, "the layout waits until the card is free");
                let note =
                    format!("{device} can't be laid out as {layout} yet: {message}. It takes no new claims");
                ("Warning", "MigLayoutPending", note)
            }
            LayoutState::NeedsReset => {
                tracing::warn!(%card, layout, message, "the layout waits for a reset of the card");
                let note = format!("{device} must be reset before it can be laid out as {layout}: {message}");
                ("Warning", "MigLayoutNeedsReset", note)
            }
            LayoutState::Failed => {
                tracing::error!(%card, layout, message, "the card can't be laid out");
                let note = format!("{device} can't be laid out as {layout}: {message}");
                ("Warning", "MigLayoutFailed", note)
            }
        };
        self.publish(kind, reason, &note).await;
    }

    async fn publish(&self, kind: &str, reason: &str, note: &str) {
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}.", shorten(&self.node_name, LONGEST_PREFIX))),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some("LayOut".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(shorten(note, LONGEST_NOTE).to_owned()),
            reason: Some(reason.to_owned()),
            // As the kubelet does it: a Node's Events are found by its name.
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node_name.clone()),
                uid: Some(self.node_name.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(self.driver_name.clone()),
            reporting_instance: Some(shorten(&self.node_name, LONGEST_INSTANCE).to_owned()),
            type_: Some(kind.to_owned()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let parameters = PostParams::default();
        match tokio::time::timeout(PATIENCE, events.create(&parameters, &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an Event is left out"),
            Err(_) => tracing::debug!("an Event is left out: no answer"),
        }
    }
}
