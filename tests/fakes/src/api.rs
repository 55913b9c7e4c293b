use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;

/// An API server with only claims and Events.
#[derive(Clone, Default)]
pub struct Api {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    claims: BTreeMap<String, Value>,
    behaviour: Behaviour,
    behaviour_for_status: Behaviour,
    requests: Vec<String>,
    events: Vec<Value>,
    /// The existing Events, by path.
    stored: BTreeMap<String, Value>,
}

/// How the API server answers.
#[derive(Clone, Debug, Default)]
pub enum Behaviour {
    /// Normally.
    #[default]
    Good,
    /// Never.
    Silent,
    /// After a while.
    Slow(Duration),
    /// With a status and its text.
    Status(u16, &'static str),
    /// With this text in the place of an object.
    Text(&'static str),
}

impl Api {
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// Adds an allocated claim with these results (`(request, device)`) of the driver.
    pub fn allocate(&self, claim: &ClaimReference, results: &[(&str, &str)]) {
        let results = results.iter().map(|(request, device)| result(request, device)).collect();
        self.put(claim, results);
    }

    /// Adds a claim with these results.
    pub fn put(&self, claim: &ClaimReference, results: Vec<Value>) {
        self.put_status(claim, json!({"allocation": {"devices": {"results": results}}}));
    }

    /// Adds a claim with these results and opaque parameters: for each its source (`FromClaim`, `FromClass`), its
    /// requests, and the object.
    #[allow(dead_code)]
    pub fn put_configured(
        &self,
        claim: &ClaimReference,
        results: Vec<Value>,
        driver: &str,
        configs: &[(&str, &[&str], Value)],
    ) {
        let config = |(source, requests, parameters): &(&str, &[&str], Value)| {
            json!({
                "source": source, "requests": requests,
                "opaque": {"driver": driver, "parameters": parameters},
            })
        };
        let configs: Vec<Value> = configs.iter().map(config).collect();
        self.put_status(claim, json!({"allocation": {"devices": {"results": results, "config": configs}}}));
    }

    pub fn put_status(&self, claim: &ClaimReference, status: Value) {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "spec": {"devices": {}}, "status": status,
        });
        self.state.lock().unwrap().claims.insert(path(claim), object);
    }

    pub fn delete(&self, claim: &ClaimReference) {
        self.state.lock().unwrap().claims.remove(&path(claim));
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour = behaviour;
    }

    /// How changes of claims' status are answered.
    pub fn behave_for_status(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour_for_status = behaviour;
    }

    /// The current claim.
    pub fn claim(&self, claim: &ClaimReference) -> Option<Value> {
        self.state.lock().unwrap().claims.get(&path(claim)).cloned()
    }

    /// Requested paths, in order.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Created or changed Events, in order.
    pub fn events(&self) -> Vec<Value> {
        self.state.lock().unwrap().events.clone()
    }

    /// The existing Events.
    #[allow(dead_code)]
    pub fn stored_events(&self) -> Vec<Value> {
        self.state.lock().unwrap().stored.values().cloned().collect()
    }

    async fn event(&self, request: Request<Body>) -> Response<Body> {
        let (path, is_new) = (request.uri().path().to_owned(), request.method() == http::Method::POST);
        let body = request.into_body().collect_bytes().await.unwrap();
        let mut change: Value = serde_json::from_slice(&body).unwrap();
        let mut state = self.state.lock().unwrap();
        let path = match is_new {
            true => format!("{path}/{}", change["metadata"]["name"].as_str().unwrap()),
            false => path,
        };
        let version = state.events.len();
        let event = match (state.stored.get(&path).cloned(), is_new) {
            (Some(_), true) => return status(409, "already exists"),
            (None, false) => return status(404, "not found"),
            (None, true) => change.clone(),
            (Some(known), false) if change == json!({}) => {
                return Response::new(Body::from(known.to_string().into_bytes()));
            }
            (Some(mut known), false) => {
                let expected = change["metadata"]["resourceVersion"].take();
                if !expected.is_null() && expected != known["metadata"]["resourceVersion"] {
                    return status(409, "changed meanwhile");
                }
                merge(&mut known, &change);
                known
            }
        };
        let mut event = event;
        event["metadata"]["resourceVersion"] = version.to_string().into();
        state.events.push(change);
        state.stored.insert(path, event.clone());
        Response::new(Body::from(event.to_string().into_bytes()))
    }

    /// A server-side apply of `status.devices`, by the only manager here.
    async fn apply_devices(&self, path: &str, request: Request<Body>) -> Option<Value> {
        let body = request.into_body().collect_bytes().await.unwrap();
        let applied: Value = serde_json::from_slice(&body).unwrap();
        let mut state = self.state.lock().unwrap();
        let claim = state.claims.get_mut(path.strip_suffix("/status")?)?;
        assert_eq!(claim["metadata"]["uid"], applied["metadata"]["uid"], "of the claim that was read");
        claim["status"]["devices"] = applied["status"]["devices"].clone();
        Some(claim.clone())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if path.starts_with("/apis/events.k8s.io/v1/") {
            let behaviour = self.state.lock().unwrap().behaviour.clone();
            return match behaviour {
                Behaviour::Silent => std::future::pending().await,
                Behaviour::Status(code, message) => status(code, message),
                _ => self.event(request).await,
            };
        }
        let is_status = path.ends_with("/status");
        let (behaviour, claim) = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(path.clone());
            let behaviour = if is_status { &state.behaviour_for_status } else { &state.behaviour };
            (behaviour.clone(), state.claims.get(&path).cloned())
        };
        match behaviour {
            Behaviour::Good => {}
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Slow(pause) => tokio::time::sleep(pause).await,
            Behaviour::Status(code, message) => return status(code, message),
            Behaviour::Text(text) => return Response::new(Body::from(text.as_bytes().to_vec())),
        }
        let claim = match is_status {
            true => self.apply_devices(&path, request).await,
            false => claim,
        };
        match claim {
            Some(claim) => Response::new(Body::from(claim.to_string().into_bytes())),
            None => status(404, "not found"),
        }
    }
}

/// Merge by RFC 7386, of objects without nulls.
fn merge(known: &mut Value, change: &Value) {
    match change.as_object() {
        Some(change) => {
            for (key, value) in change.iter().filter(|(_, value)| !value.is_null()) {
                merge(&mut known[key], value);
            }
        }
        None => *known = change.clone(),
    }
}

/// A result of the driver under test on the node under test.
pub fn result(request: &str, device: &str) -> Value {
    json!({"request": request, "driver": "gpu.tessera.dev", "pool": "gpu.tessera.dev/node-a", "device": device})
}

fn path(claim: &ClaimReference) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name)
}

fn status(code: u16, message: &str) -> Response<Body> {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message,
        "reason": if code == 404 { "NotFound" } else { "InternalError" },
    });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
