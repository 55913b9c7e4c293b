use k8s_openapi::api::core::v1::ObjectReference;

use super::{Content, Events, Severity};

/// Events of one Node object, for admins.
#[derive(Clone, Debug)]
pub struct NodeEvents {
    events: Events,
    node: ObjectReference,
}

impl NodeEvents {
    /// Events of the Node called `node_name`.
    #[must_use]
    pub fn new(events: Events, node_name: &str) -> Self {
        Self { events, node: node_reference(node_name) }
    }

    /// Sends an Event with the attempted action (`action`, one word), the outcome (`reason`, one word), and a sentence
    /// (`note`). Returns whether the API server accepted the Event.
    pub async fn send(
        &self,
        severity: Severity,
        action: &'static str,
        reason: &'static str,
        note: &str,
    ) -> bool {
        let content = Content { severity, action, reason, note, occurrence: None };
        self.events.send_and_wait(&content, &self.node).await
    }
}

/// A node. Its Events have its name in place of its UID, as the kubelet's do.
#[must_use]
pub fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}
