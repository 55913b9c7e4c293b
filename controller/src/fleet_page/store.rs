//! A ConfigMap keeping the last day while replicas of the controller come and go.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tessera_kube_util::error_text::with_causes;

use super::history::History;
use super::stored;
use crate::carry_out::MayWrite;

/// The key in the ConfigMap.
const KEY: &str = "day.json";

/// Timeout of the API server.
const PATIENCE: Duration = Duration::from_secs(3);

/// Storage of the last day. All replicas read at the start, and the leader writes.
pub struct Store {
    maps: Api<ConfigMap>,
    name: String,
    may_write: MayWrite,
    /// The last error logged, so that a repeated error is logged once.
    told: String,
}

impl Store {
    /// A store in this existing ConfigMap.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, may_write: MayWrite) -> Self {
        let maps = Api::namespaced(client, namespace);
        Store { maps, name: name.to_owned(), may_write, told: String::new() }
    }

    /// The stored day, as of `now`; `None` without an answer. Unreadable content counts as empty.
    pub async fn read(&mut self, now: u64) -> Option<History> {
        let map = match tokio::time::timeout(PATIENCE, self.maps.get_opt(&self.name)).await {
            Ok(Ok(map)) => map,
            Ok(Err(error)) => {
                self.tell("read", &with_causes(&error));
                let is_answered = matches!(error, kube::Error::Api(_));
                return is_answered.then(History::default);
            }
            Err(_) => {
                self.tell("read", "the API server does not answer");
                return None;
            }
        };
        let text = map.and_then(|map| map.data?.remove(KEY)).unwrap_or_default();
        if text.is_empty() {
            return Some(History::default());
        }
        let read = stored::read(&text, now);
        Some(read.unwrap_or_else(|error| {
            tracing::warn!(
                config_map = self.name,
                "what was kept of the fleet's last day {error}: it begins anew"
            );
            History::default()
        }))
    }

    /// Stores the day, if this replica is the leader.
    pub async fn write(&mut self, history: &str) {
        if !(self.may_write)() {
            return;
        }
        let patch = Patch::Merge(json!({ "data": { KEY: history } }));
        let parameters = PatchParams::default();
        match tokio::time::timeout(PATIENCE, self.maps.patch(&self.name, &parameters, &patch)).await {
            Ok(Ok(_)) => self.told.clear(),
            Ok(Err(error)) => self.tell("kept", &with_causes(&error)),
            Err(_) => self.tell("kept", "the API server does not answer"),
        }
    }

    fn tell(&mut self, what: &str, why: &str) {
        let text = format!("{what}: {why}");
        if text != self.told {
            tracing::warn!(config_map = self.name, "the fleet's last day cannot be {text}");
            self.told = text;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::Value;

    use super::super::history::tests::fleet;
    use super::super::prices::Prices;
    use super::*;

    /// An API server with one ConfigMap, answering with the status in `code`.
    pub fn client(data: Arc<Mutex<Value>>, code: Arc<Mutex<u16>>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (data, code) = (data.clone(), code.clone());
            async move {
                assert_eq!(request.uri().path(), "/api/v1/namespaces/tessera-system/configmaps/day");
                let is_patch = request.method() == Method::PATCH;
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let code = *code.lock().unwrap();
                if is_patch && code == 200 {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    *data.lock().unwrap() = patch["data"].clone();
                }
                let answer = match code {
                    200 => json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "day" },
                        "data": data.lock().unwrap().clone() }),
                    _ => json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                        "reason": "Test", "message": "said so" }),
                };
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn the_leader_keeps_it_and_the_next_replica_has_it() {
        let (data, code) = (Arc::new(Mutex::new(Value::Null)), Arc::new(Mutex::new(200)));
        let leads = Arc::new(AtomicBool::new(false));
        let may_write: MayWrite = Arc::new({
            let leads = leads.clone();
            move || leads.load(Ordering::Relaxed)
        });
        let client = client(data.clone(), code.clone());
        let store = || Store::new(client.clone(), "tessera-system", "day", may_write.clone());
        let mut history = store().read(600).await.unwrap();
        assert_eq!(history.points().count(), 0, "an empty one");
        for minute in 0..10 {
            history.add(&fleet(60 * minute, 1, Some(0.3)), &Prices::default());
        }
        store().write(&stored::write(&history)).await;
        assert_eq!(*data.lock().unwrap(), Value::Null, "who follows writes nothing");
        leads.store(true, Ordering::Relaxed);
        store().write(&stored::write(&history)).await;
        let read = store().read(600).await.unwrap();
        assert_eq!(read.by_namespace(), history.by_namespace());

        *data.lock().unwrap() = json!({ "day.json": "{" });
        assert_eq!(store().read(600).await.unwrap().points().count(), 0, "what nobody can read");
        for said in [403, 404] {
            *code.lock().unwrap() = said;
            assert!(store().read(600).await.is_some(), "no right, or no such object: nothing is kept");
        }
    }
}
