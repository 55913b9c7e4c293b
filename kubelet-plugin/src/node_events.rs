//! Events of this node's Node object, for admins.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::error_text::shorten;

/// The API server's limits in bytes: `note`, `reportingInstance`, and a name.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;
const LONGEST_NAME: usize = 253;
/// Where Events of objects without a namespace go.
const NAMESPACE: &str = "default";
/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends Events of one Node. One that can't be sent is only logged.
#[derive(Clone)]
pub struct NodeEvents {
    client: Client,
    driver_name: String,
    node_name: String,
}

/// How much an Event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody should do something.
    Warning,
}

impl NodeEvents {
    /// Events of the Node called `node_name`, from the driver called `driver_name`.
    #[must_use]
    pub fn new(client: Client, driver_name: &str, node_name: &str) -> Self {
        Self { client, driver_name: driver_name.to_owned(), node_name: node_name.to_owned() }
    }

    /// Sends one: what was done or tried (`action`), in one word how it went (`reason`), and in a sentence (`note`). Answers
    /// whether the API server took it.
    pub async fn send(&self, severity: Severity, action: &str, reason: &str, note: &str) -> bool {
        let kind = match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let now = Timestamp::now();
        // As client-go's recorder names Events. The server's own names (`generateName`) can't follow a dot.
        let time = format!(".{:x}", now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}{time}", shorten(&self.node_name, LONGEST_NAME - time.len()))),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(action.to_owned()),
            event_time: Some(MicroTime(now)),
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
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => tracing::debug!(%error, "an Event is left out"),
            Err(_) => tracing::debug!("an Event is left out: no answer"),
        }
        false
    }
}
