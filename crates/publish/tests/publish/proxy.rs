//! An HTTP proxy in front of the real API server, which can be told to misbehave.

use std::{
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

use crate::support::administrator;

/// What the proxy does to a request.
#[derive(Clone)]
pub enum Act {
    /// Answers this status itself.
    Status(u16, serde_json::Value),
    /// Waits before passing it on.
    Delay(Duration),
    /// Closes the connection without an answer.
    Hang,
    /// Removes fields from the object before passing it on, as a server does whose feature gate is off.
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
    writes: AtomicUsize,
    requests: AtomicUsize,
    breaks: watch::Sender<usize>,
}

/// The proxy; it ends with the test's runtime.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

impl Proxy {
    pub async fn new() -> Self {
        Self::before(administrator().await).await
    }

    pub async fn before(mut config: Config) -> Self {
        config.default_retry = false;
        let shared = Arc::new(Shared {
            upstream: Client::try_from(config).expect("a client"),
            faults: Mutex::default(),
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

    /// A client as the plugin has, through the proxy.
    pub fn client(&self) -> Client {
        let url = format!("http://127.0.0.1:{}", self.port).parse().expect("a URL");
        tessera_publish::client(Config::new(url)).expect("a client")
    }

    pub fn add(&self, fault: Fault) {
        self.shared.faults.lock().expect("unpoisoned").push(fault);
    }

    /// The next `times` requests of `method` (other than watches) meet `act`.
    pub fn next(&self, method: Method, times: usize, act: Act) {
        self.add(Fault { method, watch: false, times, act });
    }

    pub fn behave(&self) {
        self.shared.faults.lock().expect("unpoisoned").clear();
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

/// What a Kubernetes API server answers when it refuses.
pub fn refusal(code: u16, reason: &str) -> Act {
    Act::Status(
        code,
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": format!("the proxy says {reason}")}),
    )
}

async fn pass(State(shared): State<Arc<Shared>>, request: axum::extract::Request) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    if request.method() != Method::GET {
        shared.writes.fetch_add(1, Ordering::SeqCst);
    }
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let act = {
        let mut faults = shared.faults.lock().expect("unpoisoned");
        let fault = faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.method == *request.method() && fault.watch == is_watch);
        fault.map(|fault| {
            fault.times -= 1;
            fault.act.clone()
        })
    };
    let mut strip: Option<fn(&mut serde_json::Value)> = None;
    match act {
        Some(Act::Status(code, body)) => return json_response(code, &body),
        Some(Act::WatchEvent(event)) => return json_response(200, &event),
        Some(Act::Hang) => {
            // A body that fails makes hyper close the connection.
            let failing = futures::stream::once(async { Err::<String, _>(std::io::Error::other("closed")) });
            return Response::new(Body::from_stream(failing));
        }
        Some(Act::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Act::Strip(function)) => strip = Some(function),
        None => {}
    }

    let (mut parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 16 << 20).await.expect("a body");
    let bytes = match strip {
        None => bytes.to_vec(),
        Some(function) => {
            let mut object = serde_json::from_slice(&bytes).expect("an object");
            function(&mut object);
            serde_json::to_vec(&object).expect("JSON")
        }
    };
    parts.headers.remove("host");
    parts.headers.remove("content-length");
    parts.uri = parts.uri.path_and_query().expect("a path").as_str().parse().expect("a URI");
    let upstream = axum::http::Request::from_parts(parts, kube::client::Body::from(bytes));
    match shared.upstream.send(upstream).await {
        Ok(answer) => {
            let mut breaks = shared.breaks.subscribe();
            let broken = async move {
                let _ = breaks.changed().await;
            };
            answer.map(|body| {
                Body::from_stream(Body::new(body).into_data_stream().take_until(Box::pin(broken)))
            })
        }
        Err(error) => json_response(502, &serde_json::json!({"message": error.to_string()})),
    }
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
