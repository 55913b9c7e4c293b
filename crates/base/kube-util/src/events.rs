//! Kubernetes Events, sent by a separate task so that no work waits for them.
//!
//! Not kube's `Recorder`: its Events with the same reason count as equal, whatever their notes, and one instance can't
//! know whether another has already sent an Event.

mod node;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::error_text::shorten;

pub use node::{NodeEvents, node_reference};

/// Length of the queue. Events beyond are dropped: the work on claims never waits for an Event.
const QUEUE: usize = 128;
/// Pause between two requests: at most ten a second, whatever happens on the node.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A repetition within this time counts up the first Event (client-go's recorder: 6 minutes).
const SERIES: Duration = Duration::from_secs(360);
/// The API server's limits in bytes: `note`, `reportingInstance`, and a name.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;
const LONGEST_NAME: usize = 253;
/// Namespace of Events about objects without one.
const NAMESPACE: &str = "default";
/// The API server's code for an existing object.
const CONFLICT: u16 = 409;

/// Sends Events. Clones share the queue; the task ends with the last clone. A failure to send an Event is only logged.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Queued>,
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody should do something.
    Warning,
}

/// Content of an Event.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Severity of the Event.
    pub severity: Severity,
    /// The attempted action, one word.
    pub action: &'static str,
    /// The outcome, one word.
    pub reason: &'static str,
    /// The problem and its remedy. At most 1,024 bytes are sent.
    pub note: &'a str,
    /// Identifies an occurrence noticed by several instances of the program: only one of them then sends the Event.
    pub occurrence: Option<&'a str>,
}

/// An Event in the queue.
#[derive(Debug)]
struct Queued {
    message: Message,
    /// As [`Content::occurrence`].
    occurrence: Option<String>,
    /// Receives whether the API server accepted the Event.
    taken: Option<oneshot::Sender<bool>>,
}

/// Content and object of an Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Message {
    severity: Severity,
    action: &'static str,
    reason: &'static str,
    note: String,
    object: Object,
}

/// The object of an Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    /// `None` for a Node.
    namespace: Option<String>,
    kind: String,
    api_version: String,
    name: String,
    uid: String,
}

/// Sends Events, repetitions as a series.
struct Sender {
    client: Client,
    controller: String,
    instance: String,
    sent: HashMap<Message, Sent>,
}

struct Sent {
    name: String,
    count: i32,
    last: Instant,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Events {
    /// Starts the sending task. `controller` is the name of the reporting program, `instance` the name of the node or
    /// pod.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(client: Client, controller: &str, instance: &str) -> Self {
        let (queue, mut queued) = mpsc::channel::<Queued>(QUEUE);
        let mut sender = Sender {
            client,
            controller: controller.to_owned(),
            instance: shorten(instance, LONGEST_INSTANCE).to_owned(),
            sent: HashMap::new(),
        };
        tokio::spawn(async move {
            while let Some(Queued { message, occurrence, taken }) = queued.recv().await {
                let is_taken = sender.send(message, occurrence.as_deref()).await;
                if let Some(taken) = taken {
                    // The caller may have stopped waiting.
                    let _ = taken.send(is_taken);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { queue }
    }

    /// Queues an Event of an object, or drops the Event when the queue is full.
    pub fn send(&self, content: &Content<'_>, object: &ObjectReference) {
        self.enqueue(content, object, None);
    }

    /// Sends an Event and waits for the answer. Returns whether the API server accepted the Event.
    pub async fn send_and_wait(&self, content: &Content<'_>, object: &ObjectReference) -> bool {
        let (taken, answer) = oneshot::channel();
        self.enqueue(content, object, Some(taken));
        answer.await.unwrap_or(false)
    }

    fn enqueue(&self, content: &Content<'_>, object: &ObjectReference, taken: Option<oneshot::Sender<bool>>) {
        let (message, occurrence) = (Message::new(content, object), content.occurrence.map(str::to_owned));
        if let Err(error) = self.queue.try_send(Queued { message, occurrence, taken }) {
            tracing::debug!(%error, "an Event is left out");
        }
    }
}

impl Message {
    fn new(content: &Content<'_>, object: &ObjectReference) -> Self {
        Self {
            severity: content.severity,
            action: content.action,
            reason: content.reason,
            note: shorten(content.note, LONGEST_NOTE).to_owned(),
            object: Object {
                namespace: object.namespace.clone(),
                kind: object.kind.clone().unwrap_or_default(),
                api_version: object.api_version.clone().unwrap_or_default(),
                name: object.name.clone().unwrap_or_default(),
                uid: object.uid.clone().unwrap_or_default(),
            },
        }
    }

    /// The same for every instance of the program reporting the same occurrence.
    fn hash_with(&self, occurrence: &str) -> String {
        let object = &self.object;
        let mut hash = Sha256::new();
        for part in [&*object.kind, &*object.uid, self.action, self.reason, &*self.note, occurrence] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Sender {
    /// Returns whether the API server accepted the Event.
    async fn send(&mut self, message: Message, occurrence: Option<&str>) -> bool {
        self.sent.retain(|_, sent| sent.last.elapsed() < SERIES);
        let error = match tokio::time::timeout(PATIENCE, self.send_in_series(&message, occurrence)).await {
            Ok(Ok(sent)) => {
                self.sent.insert(message, sent);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        tracing::debug!(error, reason = message.reason, object = message.object.name, "cannot send an Event");
        self.sent.remove(&message);
        false
    }

    /// Counts up an earlier Event with the same content, or makes a new one.
    async fn send_in_series(&self, message: &Message, occurrence: Option<&str>) -> Result<Sent, kube::Error> {
        let namespace = message.object.namespace.as_deref().unwrap_or(NAMESPACE);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let (name, count) = match self.sent.get(message) {
            Some(sent) => {
                let (name, count) = (sent.name.clone(), sent.count + 1);
                let series =
                    json!({"series": {"count": count, "lastObservedTime": MicroTime(Timestamp::now())}});
                events.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await?;
                (name, count)
            }
            None => {
                let event = self.event(message, occurrence);
                match events.create(&PostParams::default(), &event).await {
                    // Another instance of the program has sent this Event.
                    Err(kube::Error::Api(status)) if status.code == CONFLICT && occurrence.is_some() => {}
                    created => drop(created?),
                }
                (event.metadata.name.unwrap_or_default(), 1)
            }
        };
        Ok(Sent { name, count, last: Instant::now() })
    }

    fn event(&self, message: &Message, occurrence: Option<&str>) -> Event {
        let now = Timestamp::now();
        let object = &message.object;
        let end = match occurrence {
            Some(occurrence) => message.hash_with(occurrence),
            None => format!("{:x}", now.as_nanosecond()),
        };
        let name = format!("{}.{end}", shorten(&object.name, LONGEST_NAME - 1 - end.len()));
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(object.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(message.severity.as_str().to_owned()),
            reason: Some(message.reason.to_owned()),
            action: Some(message.action.to_owned()),
            note: Some(message.note.clone()),
            regarding: Some(ObjectReference {
                api_version: Some(object.api_version.clone()),
                kind: Some(object.kind.clone()),
                namespace: object.namespace.clone(),
                name: Some(object.name.clone()),
                uid: Some(object.uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}
