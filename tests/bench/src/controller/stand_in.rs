//! A stand-in for the API server, with more objects than etcd could hold here: lists with pages, silent watches, and an
//! answer to the controller's writes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Response, StatusCode, Uri};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::objects::{Kind, Objects};

/// How long a watch lasts at most, as the API server's.
const WATCH: Duration = Duration::from_secs(290);

/// A running stand-in; it ends with the program.
pub struct StandIn {
    /// The listening address.
    pub address: SocketAddr,
    /// How many gates have been lifted.
    pub lifted: watch::Receiver<usize>,
    served: Arc<Served>,
}

struct Served {
    objects: Objects,
    address: SocketAddr,
    /// The answer of each plugin; their pods are all here.
    usage: String,
    lifted: watch::Sender<usize>,
    version: AtomicU64,
    bytes: AtomicU64,
}

impl StandIn {
    /// Starts to listen on a free port of the loopback.
    ///
    /// # Errors
    /// There is none.
    pub async fn start(objects: Objects) -> Result<Self> {
        let (sender, lifted) = watch::channel(0);
        let (version, bytes) = (AtomicU64::new(1), AtomicU64::new(0));
        let port = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = port.local_addr()?;
        let usage = serde_json::to_string(&objects.usage()?)?;
        let served = Arc::new(Served { objects, address, usage, lifted: sender, version, bytes });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&served));
        tokio::spawn(async move { axum::serve(port, router).await });
        Ok(Self { address, lifted, served })
    }

    /// Data sent by lists, in MiB.
    pub fn listed_mib(&self) -> f64 {
        self.served.bytes.load(Ordering::Relaxed) as f64 / f64::from(1 << 20)
    }
}

async fn answer(State(served): State<Arc<Served>>, method: Method, uri: Uri, body: Bytes) -> Response<Body> {
    let result = match method {
        Method::GET => served.read(&uri),
        _ => served.write(&method, &uri, &body),
    };
    let (status, body) = result.unwrap_or_else(|error| {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": error.to_string(), "reason": "NotFound", "code": 404 });
        (StatusCode::NOT_FOUND, Body::from(status.to_string()))
    });
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    response
}

impl Served {
    fn read(&self, uri: &Uri) -> Result<(StatusCode, Body)> {
        if uri.path() == tessera_api::usage::PATH {
            return Ok((StatusCode::OK, Body::from(self.usage.clone())));
        }
        let (kind, version) = match uri.path() {
            // Only the plugins' are asked for in a namespace.
            path if path.starts_with("/api/v1/namespaces/") && path.ends_with("/pods") => {
                (Some(Kind::Plugin), "v1")
            }
            "/api/v1/nodes" => (Some(Kind::Node), "v1"),
            "/api/v1/pods" => (Some(Kind::Pod), "v1"),
            "/api/v1/namespaces" => (None, "v1"),
            "/api/v1/persistentvolumes" | "/api/v1/persistentvolumeclaims" => (None, "v1"),
            "/apis/batch/v1/jobs" => (None, "batch/v1"),
            "/apis/policy/v1/poddisruptionbudgets" => (None, "policy/v1"),
            "/apis/resource.k8s.io/v1/deviceclasses" => (Some(Kind::DeviceClass), "resource.k8s.io/v1"),
            "/apis/resource.k8s.io/v1/resourceclaims" => (Some(Kind::ResourceClaim), "resource.k8s.io/v1"),
            "/apis/resource.k8s.io/v1/resourceclaimtemplates" => (None, "resource.k8s.io/v1"),
            "/apis/resource.k8s.io/v1/resourceslices" => (Some(Kind::ResourceSlice), "resource.k8s.io/v1"),
            "/apis/gpu.tessera.dev/v1alpha1/gpupools" => (Some(Kind::GpuPool), "gpu.tessera.dev/v1alpha1"),
            path => anyhow::bail!("{path} is not there"),
        };
        let parameter = |name: &str| {
            let mut all = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            all.find_map(|(key, value)| (key == name).then_some(value))
        };
        if parameter("watch").is_some() {
            let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
            let body = Body::from_stream(nothing.take_until(Box::pin(tokio::time::sleep(WATCH))));
            return Ok((StatusCode::OK, body));
        }
        let count = kind.map_or(0, |kind| self.objects.count(kind));
        let from: usize = parameter("continue").map_or(Ok(0), str::parse)?;
        let limit = parameter("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let to = (from + limit.unwrap_or(count)).min(count);
        let mut text = format!(
            r#"{{"kind":"List","apiVersion":"{version}","metadata":{{"resourceVersion":"1","continue":"{}"}},"items":["#,
            if to < count { to.to_string() } else { String::new() },
        );
        for (position, number) in (from..to).enumerate() {
            if position > 0 {
                text.push(',');
            }
            text.extend(kind.map(|kind| match kind {
                Kind::Plugin => self.objects.plugin(number, self.address),
                kind => self.objects.object(kind, number),
            }));
        }
        text.push_str("]}");
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok((StatusCode::OK, Body::from(text)))
    }

    fn write(&self, method: &Method, uri: &Uri, body: &Bytes) -> Result<(StatusCode, Body)> {
        let words: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let text = match words[..] {
            ["api", "v1", "namespaces", _, "pods", name] => {
                self.lifted.send_modify(|lifted| *lifted += 1);
                self.objects.object(Kind::Pod, self.objects.pod_of(name)?)
            }
            ["api", "v1", "namespaces", _, "pods", name, "status"] => {
                self.objects.object(Kind::Pod, self.objects.pod_of(name)?)
            }
            ["apis", "gpu.tessera.dev", _, "gpupools", ..] => self.objects.object(Kind::GpuPool, 0),
            // Leases and Events.
            _ => {
                let mut object: Value = serde_json::from_slice(body).context("a body")?;
                let version = self.version.fetch_add(1, Ordering::Relaxed);
                object["metadata"]["resourceVersion"] = version.to_string().into();
                object.to_string()
            }
        };
        let status = if method == Method::POST { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, Body::from(text)))
    }
}
