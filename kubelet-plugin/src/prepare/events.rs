mod once;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::{ClaimReference, Operation, PrepareError};
use crate::error_text::{shorten, with_causes};

/// Events that wait to be sent. What does not fit is left out: the work on claims never waits for an Event.
const QUEUE: usize = 128;
/// Between two requests: at most ten a second, whatever happens on the node.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same said again within this time counts up the first Event (client-go's recorder: 6 minutes).
const SERIES: Duration = Duration::from_secs(360);
/// The API server's limits in bytes: `note`, `reportingInstance`, and a name.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;
const LONGEST_NAME: usize = 253;
/// Where Events of objects without a namespace go.
const NAMESPACE: &str = "default";

/// Tells users about the work on claims, as Kubernetes Events of claims and pods.
///
/// Sent by a task of its own, which ends with the last of these. An Event that can't be sent is only logged.
pub(super) struct Events {
    queue: mpsc::Sender<News>,
}

/// One thing to tell of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct News {
    action: &'static str,
    kind: &'static str,
    reason: &'static str,
    note: String,
    object: Object,
    /// As [`Telling::happening`].
    happening: Option<String>,
}

/// Whom an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    /// None of a Node.
    namespace: Option<String>,
    kind: String,
    api_version: String,
    name: String,
    uid: String,
}

/// What an Event says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling<'a> {
    /// What was being done, in one word.
    pub action: &'static str,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// What happened, in one word.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub note: &'a str,
    /// What tells this happening from all others, where other instances of the plugin see and tell it too: it is told once.
    pub happening: Option<&'a str>,
}

impl<'a> Telling<'a> {
    const fn of_work(operation: Operation, reason: &'static str, note: &'a str) -> Self {
        let action = match operation {
            Operation::Prepare => "Prepare",
            Operation::Unprepare => "Unprepare",
        };
        Self { action, kind: "Warning", reason, note, happening: None }
    }
}

/// Sends Events, the same again as a series.
struct Sender {
    client: Client,
    controller: String,
    instance: String,
    sent: HashMap<News, Sent>,
}

struct Sent {
    name: String,
    count: i32,
    last: Instant,
}

impl Events {
    /// Starts the task that sends. `controller` is the driver's name, `instance` the node's.
    pub(super) fn start(client: Client, controller: &str, instance: &str) -> Self {
        let (queue, mut news) = mpsc::channel(QUEUE);
        let mut sender = Sender {
            client,
            controller: controller.to_owned(),
            instance: shorten(instance, LONGEST_INSTANCE).to_owned(),
            sent: HashMap::new(),
        };
        tokio::spawn(async move {
            while let Some(one) = news.recv().await {
                sender.send(one).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { queue }
    }

    /// Tells something of an object. What does not fit into the queue is left out.
    pub(super) fn tell(&self, telling: &Telling<'_>, object: &ObjectReference) {
        let news = News {
            action: telling.action,
            kind: telling.kind,
            reason: telling.reason,
            note: shorten(telling.note, LONGEST_NOTE).to_owned(),
            object: Object {
                namespace: object.namespace.clone(),
                kind: object.kind.clone().unwrap_or_default(),
                api_version: object.api_version.clone().unwrap_or_default(),
                name: object.name.clone().unwrap_or_default(),
                uid: object.uid.clone().unwrap_or_default(),
            },
            happening: telling.happening.map(str::to_owned),
        };
        if let Err(error) = self.queue.try_send(news) {
            tracing::debug!(%error, "an Event is left out");
        }
    }

    /// Work waits for `error` to pass: told of the claim and, of Prepare, of the pods that can't start meanwhile.
    pub(super) fn waiting(
        &self,
        operation: Operation,
        claim: &ClaimReference,
        pods: &[ObjectReference],
        error: &PrepareError,
    ) {
        let note = format!("{}; waiting for this to pass", with_causes(error));
        let telling = Telling::of_work(operation, error.waiting_reason(), &note);
        for object in std::iter::once(&claim_reference(claim)).chain(pods) {
            self.tell(&telling, object);
        }
    }

    /// The work on a claim failed. The kubelet tells the pod of it by itself.
    pub(super) fn failed(&self, operation: Operation, claim: &ClaimReference, error: &PrepareError) {
        let reason = match operation {
            Operation::Prepare => "PrepareFailed",
            Operation::Unprepare => "UnprepareFailed",
        };
        self.tell(&Telling::of_work(operation, reason, &with_causes(error)), &claim_reference(claim));
    }
}

impl Sender {
    async fn send(&mut self, news: News) {
        self.sent.retain(|_, sent| sent.last.elapsed() < SERIES);
        let namespace = news.object.namespace.as_deref().unwrap_or(NAMESPACE);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Some(happening) = &news.happening {
            let told = tokio::time::timeout(PATIENCE, self.send_once(&events, &news, happening)).await;
            let error = told.map_or_else(
                |_| Some("no answer".to_owned()),
                |told| told.err().map(|error| error.to_string()),
            );
            if let Some(error) = error {
                tracing::debug!(
                    error,
                    reason = news.reason,
                    object = news.object.name,
                    "cannot send an Event"
                );
            }
            return;
        }
        let known = self.sent.get(&news).map(|sent| (sent.name.clone(), sent.count + 1));
        let request = async {
            match known {
                Some((name, count)) => {
                    let series =
                        json!({"series": {"count": count, "lastObservedTime": MicroTime(Timestamp::now())}});
                    events.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await?;
                    Ok((name, count))
                }
                None => {
                    let event = self.event(&news);
                    let name = event.metadata.name.clone().unwrap_or_default();
                    events.create(&PostParams::default(), &event).await.map(|_| (name, 1))
                }
            }
        };
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(Ok((name, count))) => {
                self.sent.insert(news, Sent { name, count, last: Instant::now() });
            }
            Ok(Err(error)) => {
                let error: kube::Error = error;
                self.sent.remove(&news);
                tracing::debug!(%error, reason = news.reason, object = news.object.name, "cannot send an Event");
            }
            Err(_) => {
                tracing::debug!(reason = news.reason, object = news.object.name, "no answer to an Event")
            }
        }
    }

    fn event(&self, news: &News) -> Event {
        let now = Timestamp::now();
        let time = format!(".{:x}", now.as_nanosecond());
        let object = &news.object;
        let name = format!("{}{time}", shorten(&object.name, LONGEST_NAME - time.len()));
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(object.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(news.kind.to_owned()),
            reason: Some(news.reason.to_owned()),
            action: Some(news.action.to_owned()),
            note: Some(news.note.clone()),
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

/// A node. Its Events are found by its name in the place of its UID, as the kubelet has it.
pub(super) fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// A claim.
pub(super) fn claim_reference(claim: &ClaimReference) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    }
}
