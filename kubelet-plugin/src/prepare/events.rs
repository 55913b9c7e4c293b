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

/// Tells users about the work on claims, as Kubernetes Events of claims and pods.
///
/// Sent by a task of its own, which ends with the last of these. An Event that can't be sent is only logged.
pub(super) struct Events {
    queue: mpsc::Sender<News>,
}

/// One thing to tell of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct News {
    operation: Operation,
    reason: &'static str,
    note: String,
    namespace: String,
    kind: String,
    api_version: String,
    name: String,
    uid: String,
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

    /// Work waits for `error` to pass: told of the claim and, of Prepare, of the pods that can't start meanwhile.
    pub(super) fn waiting(
        &self,
        operation: Operation,
        claim: &ClaimReference,
        pods: &[ObjectReference],
        error: &PrepareError,
    ) {
        let note = format!("{}; waiting for this to pass", with_causes(error));
        for object in std::iter::once(&claim_reference(claim)).chain(pods) {
            self.tell(operation, error.waiting_reason(), &note, object);
        }
    }

    /// The work on a claim failed. The kubelet tells the pod of it by itself.
    pub(super) fn failed(&self, operation: Operation, claim: &ClaimReference, error: &PrepareError) {
        let reason = match operation {
            Operation::Prepare => "PrepareFailed",
            Operation::Unprepare => "UnprepareFailed",
        };
        self.tell(operation, reason, &with_causes(error), &claim_reference(claim));
    }

    fn tell(&self, operation: Operation, reason: &'static str, note: &str, object: &ObjectReference) {
        let news = News {
            operation,
            reason,
            note: shorten(note, LONGEST_NOTE).to_owned(),
            namespace: object.namespace.clone().unwrap_or_default(),
            kind: object.kind.clone().unwrap_or_default(),
            api_version: object.api_version.clone().unwrap_or_default(),
            name: object.name.clone().unwrap_or_default(),
            uid: object.uid.clone().unwrap_or_default(),
        };
        if let Err(error) = self.queue.try_send(news) {
            tracing::debug!(%error, "an Event is left out");
        }
    }
}

impl Sender {
    async fn send(&mut self, news: News) {
        self.sent.retain(|_, sent| sent.last.elapsed() < SERIES);
        let events: Api<Event> = Api::namespaced(self.client.clone(), &news.namespace);
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
                tracing::debug!(%error, reason = news.reason, object = news.name, "cannot send an Event");
            }
            Err(_) => tracing::debug!(reason = news.reason, object = news.name, "no answer to an Event"),
        }
    }

    fn event(&self, news: &News) -> Event {
        let now = Timestamp::now();
        let time = format!(".{:x}", now.as_nanosecond());
        let name = format!("{}{time}", shorten(&news.name, LONGEST_NAME - time.len()));
        let action = match news.operation {
            Operation::Prepare => "Prepare",
            Operation::Unprepare => "Unprepare",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(news.namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some("Warning".to_owned()),
            reason: Some(news.reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(news.note.clone()),
            regarding: Some(ObjectReference {
                api_version: Some(news.api_version.clone()),
                kind: Some(news.kind.clone()),
                namespace: Some(news.namespace.clone()),
                name: Some(news.name.clone()),
                uid: Some(news.uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn claim_reference(claim: &ClaimReference) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    }
}
