//! An HTTP proxy in front of the real API server, with injected faults.

mod chance;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::State, http::Method, response::Response};
use futures::StreamExt as _;
use kube::{Client, Config};
use tokio::{net::TcpListener, sync::watch};

use chance::Chance;

/// The proxy's action on a request.
#[derive(Clone)]
pub enum Act {
    /// Answers this status itself.
    Status(u16, serde_json::Value),
    /// Waits before forwarding the request.
    Delay(Duration),
    /// Closes the connection without forwarding the request.
    Hang,
    /// Forwards the request, and closes the connection without an answer.
    LoseAnswer,
    /// Ends the answer, a watch, after so long.
    Break(Duration),
    /// Removes fields from the object before forwarding it, like a server with the feature gate off.
    Strip(fn(&mut serde_json::Value)),
    /// Ends a watch with this event.
    WatchEvent(serde_json::Value),
}

/// A misbehaviour for the next `times` matching requests.
pub struct Fault {
    pub method: Method,
    pub watch: bool,
    pub times: usize,
    pub act: Act,
}

struct Shared {
    upstream: Client,
    faults: Mutex<Vec<Fault>>,
    chance: Mutex<Option<Chance>>,
    met: Mutex<BTreeMap<&'static str, usize>>,
    writes: AtomicUsize,
    requests: AtomicUsize,
    breaks: watch::Sender<usize>,
}

/// The proxy, stopped at the end of the test's runtime.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

impl Proxy {
    /// In front of the API server of this configuration.
    pub async fn before(mut config: Config) -> Self {
        config.default_retry = false;
        let shared = Arc::new(Shared {
            upstream: Client::try_from(config).expect("a client"),
            faults: Mutex::default(),
            chance: Mutex::default(),
            met: Mutex::default(),
            writes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            breaks: watch::Sender::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { shared, port }
    }

    /// The proxy's URL, without TLS.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn add(&self, fault: Fault) {
        self.shared.faults.lock().expect("unpoisoned").push(fault);
    }

    /// The next `times` requests of `method` (other than watches) meet `act`.
    pub fn next(&self, method: Method, times: usize, act: Act) {
        self.add(Fault { method, watch: false, times, act });
    }

    /// From now on requests meet faults of all kinds by chance; the same seed gives the same sequence.
    pub fn misbehave(&self, seed: u64) {
        *self.shared.chance.lock().expect("unpoisoned") = Some(Chance::new(seed));
    }

    /// From now on no request gets through, and watches end.
    pub fn cut_off(&self) {
        *self.shared.chance.lock().expect("unpoisoned") = Some(Chance::never());
        self.break_connections();
    }

    /// Passes everything on from now on.
    pub fn behave(&self) {
        self.shared.faults.lock().expect("unpoisoned").clear();
        *self.shared.chance.lock().expect("unpoisoned") = None;
    }

    /// Injected random faults so far, with their counts.
    pub fn met(&self) -> BTreeMap<&'static str, usize> {
        self.shared.met.lock().expect("unpoisoned").clone()
    }

    /// Ends the running watches.
    pub fn break_connections(&self) {
        self.shared.breaks.send_modify(|breaks| *breaks += 1);
    }

    /// POST, PUT, PATCH and DELETE requests so far.
    pub fn writes(&self) -> usize {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// All requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

/// A Kubernetes API server's refusal.
pub fn refusal(code: u16, reason: &str) -> Act {
    Act::Status(
        code,
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": format!("the proxy says {reason}")}),
    )
}

impl Shared {
    /// The fault for the next request, if any.
    fn act(&self, method: &Method, is_watch: bool) -> Option<Act> {
        let mut faults = self.faults.lock().expect("unpoisoned");
        let ordered = faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.method == *method && fault.watch == is_watch);
        if let Some(fault) = ordered {
            fault.times -= 1;
            return Some(fault.act.clone());
        }
        let act = self.chance.lock().expect("unpoisoned").as_mut()?.act(method, is_watch)?;
        *self.met.lock().expect("unpoisoned").entry(act.name()).or_default() += 1;
        Some(act)
    }
}

impl Act {
    fn name(&self) -> &'static str {
        match self {
            Act::Status(..) => "refused",
            Act::Delay(_) => "delayed",
            Act::Hang => "request lost",
            Act::LoseAnswer => "answer lost",
            Act::Break(_) => "watch broken",
            Act::Strip(_) => "stripped",
            Act::WatchEvent(_) => "watch expired",
        }
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: axum::extract::Request) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    if request.method() != Method::GET {
        shared.writes.fetch_add(1, Ordering::SeqCst);
    }
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let act = shared.act(request.method(), is_watch);
    match &act {
        Some(Act::Status(code, body)) => return json_response(*code, body),
        Some(Act::WatchEvent(event)) => return json_response(200, event),
        Some(Act::Hang) => return closed(),
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, 16 << 20).await else { return closed() };
    // The request arrives even when nobody waits for the answer any more.
    let sent = tokio::spawn(forward(shared, parts, bytes.to_vec(), act.clone()));
    match sent.await {
        Ok(_) if matches!(act, Some(Act::LoseAnswer)) => closed(),
        Ok(answer) => answer,
        Err(_) => closed(),
    }
}

async fn forward(
    shared: Arc<Shared>,
    mut parts: axum::http::request::Parts,
    mut bytes: Vec<u8>,
    act: Option<Act>,
) -> Response {
    match act {
        Some(Act::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Act::Strip(function)) => {
            let mut object = serde_json::from_slice(&bytes).expect("an object");
            function(&mut object);
            bytes = serde_json::to_vec(&object).expect("JSON");
        }
        _ => {}
    }
    parts.headers.remove("host");
    parts.headers.remove("content-length");
    parts.uri = parts.uri.path_and_query().expect("a path").as_str().parse().expect("a URI");
    let upstream = axum::http::Request::from_parts(parts, kube::client::Body::from(bytes));
    match shared.upstream.send(upstream).await {
        Ok(answer) => {
            let mut breaks = shared.breaks.subscribe();
            let broken = async move {
                let after = async {
                    match act {
                        Some(Act::Break(after)) => tokio::time::sleep(after).await,
                        _ => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = breaks.changed() => {}
                    () = after => {}
                }
            };
            answer.map(|body| {
                Body::from_stream(Body::new(body).into_data_stream().take_until(Box::pin(broken)))
            })
        }
        Err(error) => json_response(502, &serde_json::json!({"message": error.to_string()})),
    }
}

/// An answer closing the connection: a failing body makes hyper close it.
fn closed() -> Response {
    let failing = futures::stream::once(async { Err::<String, _>(std::io::Error::other("closed")) });
    Response::new(Body::from_stream(failing))
}

fn json_response(code: u16, body: &serde_json::Value) -> Response {
    let mut text = body.to_string();
    text.push('\n');
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Body::from(text))
        .expect("a response")
}
