//! The labels of this node, watched, so that a change takes effect at once. Without the right to watch, or while the
//! connection is broken, they are read from time to time.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::WatchParams;
use kube::core::WatchEvent;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error_text::{shorten, with_causes};

/// Timeout of a watch at the API server, seconds; a longer silence means a lost connection.
const LENGTH: u32 = 290;
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause before the next watch: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The labels of the node; `None` until the first answer.
pub type Labels = watch::Receiver<Option<BTreeMap<String, String>>>;

/// Sends the labels of the Node called `node_name` to `labels` until `shutdown`. Only the Node's metadata are
/// requested.
pub async fn follow(
    client: Client,
    node_name: String,
    labels: watch::Sender<Option<BTreeMap<String, String>>>,
    shutdown: CancellationToken,
) {
    let watched = Watched { nodes: Api::all(client), node_name, labels };
    let watch = async {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match watched.once().await {
                Ok(()) => backoff.reset(),
                Err(reason) => {
                    // Logged once for each outage.
                    if backoff.attempts() == 0 {
                        tracing::warn!(
                            reason,
                            "the labels of this node are not watched, only read from time to time"
                        );
                    }
                }
            }
            backoff.sleep().await;
        }
    };
    shutdown.run_until_cancelled(watch).await;
}

struct Watched {
    nodes: Api<Node>,
    node_name: String,
    labels: watch::Sender<Option<BTreeMap<String, String>>>,
}

impl Watched {
    /// One watch: the current values, then changes until the watch ends.
    async fn once(&self) -> Result<(), String> {
        let failed = |error: kube::Error| shorten(&with_causes(&error), 500).to_owned();
        let node = tokio::time::timeout(PATIENCE, self.nodes.get_metadata(&self.node_name)).await;
        let node = node.map_err(|_| format!("no answer within {PATIENCE:?}"))?.map_err(failed)?;
        self.take(&node.metadata);
        let version = node.metadata.resource_version.unwrap_or_default();
        let fields = format!("metadata.name={}", self.node_name);
        let parameters = WatchParams::default().fields(&fields).timeout(LENGTH);
        let events = tokio::time::timeout(PATIENCE, self.nodes.watch_metadata(&parameters, &version)).await;
        let events = events.map_err(|_| format!("no watch within {PATIENCE:?}"))?.map_err(failed)?;
        let mut events = std::pin::pin!(events);
        loop {
            let event = tokio::time::timeout(LONGEST_SILENCE, events.next()).await;
            match event.map_err(|_| "the connection is silent".to_owned())? {
                Some(Ok(WatchEvent::Added(node) | WatchEvent::Modified(node))) => self.take(&node.metadata),
                Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
                // The resource version is too old: start over with a new one.
                Some(Ok(WatchEvent::Error(status))) => return Err(status.message),
                Some(Err(error)) => return Err(failed(error)),
                None => return Ok(()),
            }
        }
    }

    fn take(&self, metadata: &ObjectMeta) {
        let now = metadata.labels.clone().unwrap_or_default();
        self.labels.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&now);
            *known = Some(now);
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn node(version: u32, labels: Value) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "node-a", "resourceVersion": version.to_string(), "labels": labels},
        })
    }

    /// An API server: a read of the Node returns `first`; each watch sends the next of `watches` and ends; after the
    /// last, watches are forbidden.
    fn server(first: Value, watches: Vec<Value>, asked: Arc<Mutex<Vec<String>>>) -> Client {
        let count = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let accept = request.headers()[http::header::ACCEPT].to_str().unwrap_or_default().to_owned();
            let answer = if uri.contains("watch=true") {
                asked.lock().unwrap().push(format!("{uri} {accept}"));
                watches.get(count.fetch_add(1, Ordering::Relaxed)).cloned()
            } else {
                Some(first.clone())
            };
            let (code, answer) = match answer {
                Some(answer) => (200, answer),
                None => {
                    (403, json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"}))
                }
            };
            let body = Body::from(format!("{answer}\n").into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_change_is_told_and_whoever_may_not_watch_is_none_the_worse() {
        let (sender, mut labels) = watch::channel(None);
        let (asked, shutdown) = (Arc::default(), CancellationToken::new());
        let first = node(5, json!({"example.com/a": "one", "other": "x"}));
        let changed = json!({"type": "MODIFIED", "object": node(6, json!({"example.com/b": "two"}))});
        let too_old =
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
        let client = server(first, vec![changed, too_old], Arc::clone(&asked));
        let followed = tokio::spawn(follow(client, "node-a".into(), sender, shutdown.clone()));
        let is = |expected: Value| {
            move |labels: &Option<BTreeMap<String, String>>| {
                labels.as_ref().is_some_and(|labels| json!(labels) == expected)
            }
        };
        labels.wait_for(is(json!({"example.com/b": "two"}))).await.unwrap();
        // The next watches start from the Node as read then.
        labels.wait_for(is(json!({"example.com/a": "one", "other": "x"}))).await.unwrap();
        while asked.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let asked = asked.lock().unwrap().clone();
        for part in [
            "/api/v1/nodes?",
            "fieldSelector=metadata.name%3Dnode-a",
            "resourceVersion=5",
            "PartialObjectMetadata",
        ] {
            assert!(asked[0].contains(part), "{part}: {}", asked[0]);
        }
        shutdown.cancel();
        followed.await.unwrap();
    }
}
