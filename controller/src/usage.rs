//! Use of all nodes' cards, as reported by the kubelet plugins.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tessera_api::usage::{ClaimUsage, NodeUsage, PATH};
use tessera_cluster::PodExt;
use tessera_kube_util::error_text::{shorten, with_causes};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval of polling each plugin, equal to the plugin's own interval.
const EVERY: Duration = Duration::from_secs(15);

/// Timeout of a plugin's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Plugins polled at once.
const AT_ONCE: usize = 32;

/// Maximum length of an answer in bytes. Sixteen cards with a hundred shares each need less than a tenth.
const LONGEST: usize = 4 << 20;

/// Maximum number of cards accepted from a node, more than any machine has.
const MOST_CARDS: usize = 64;

/// Maximum number of claims' devices accepted from a node, by whole claims. A hundred shares of sixteen cards are less than half.
const MOST_DEVICES: usize = 4_096;

/// Maximum length of a name in bytes, and maximum pods of a claim, as allowed by the API server.
const LONGEST_NAME: usize = 253;
const MOST_PODS: usize = 256;

/// Use of each node's cards by node name, or why unknown.
pub type Usages = Arc<BTreeMap<String, Result<Arc<NodeUsage>, String>>>;

/// Address of a node's plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plugin {
    node: String,
    /// `None` before the pod has an address.
    address: Option<SocketAddr>,
}

/// Why a plugin's answer is unusable.
#[derive(Debug, thiserror::Error)]
enum AskError {
    /// The plugin's pod has no address yet.
    #[error("the kubelet plugin does not run yet")]
    NoAddress,
    /// No answer within [`PATIENCE`].
    #[error("the kubelet plugin at {address} does not answer within {} s", PATIENCE.as_secs())]
    TimedOut {
        /// Expected address.
        address: SocketAddr,
    },
    /// The plugin cannot be reached.
    #[error("the kubelet plugin at {0} cannot be reached")]
    Connect(SocketAddr, #[source] hyper_util::client::legacy::Error),
    /// The answer was cut off, or is too long.
    #[error("the answer of the kubelet plugin at {0} cannot be read")]
    Read(SocketAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The plugin answers with another status. It may be of a version without this path.
    #[error("the kubelet plugin at {0} answers {1}: is it older than the controller?")]
    Status(SocketAddr, hyper::StatusCode),
    /// The answer is not a usage report.
    #[error("the answer of the kubelet plugin at {0} is no usage")]
    Form(SocketAddr, #[source] serde_json::Error),
}

/// Polls the plugins, whose pods have these labels in this namespace, until `shutdown`.
pub async fn run(
    client: Client,
    (namespace, selector): (String, String),
    usages: watch::Sender<Usages>,
    shutdown: CancellationToken,
) {
    let (plugins_sender, plugins) = watch::channel(BTreeMap::new());
    let both = async {
        tokio::join!(follow(client, &namespace, &selector, plugins_sender), ask_all(plugins, usages))
    };
    shutdown.run_until_cancelled(both).await;
}

/// Follows the pods of the plugins, by name.
async fn follow(
    client: Client,
    namespace: &str,
    selector: &str,
    plugins: watch::Sender<BTreeMap<String, Plugin>>,
) {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let events = watcher(pods, watcher::Config::default().labels(selector)).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => listed.extend(plugin(&pod).map(|plugin| (pod.name_any(), plugin))),
            Ok(Event::InitDone) => drop(plugins.send_replace(std::mem::take(&mut listed))),
            Ok(Event::Apply(pod)) => plugins.send_modify(|all| {
                all.remove(&pod.name_any());
                all.extend(plugin(&pod).map(|plugin| (pod.name_any(), plugin)));
            }),
            Ok(Event::Delete(pod)) => plugins.send_modify(|all| drop(all.remove(&pod.name_any()))),
            Err(error) => tracing::debug!(%error, "the watch of kubelet plugins broke off; trying again"),
        }
    }
}

/// The plugin in the pod; `None` without a node, and after the pod has ended.
fn plugin(pod: &Pod) -> Option<Plugin> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    if pod.has_ended() {
        return None;
    }
    let mut ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some("http"))?;
    let address: Option<IpAddr> = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    let port = u16::try_from(port.container_port).ok()?;
    let address = address.map(|address| SocketAddr::new(address, port));
    Some(Plugin { node: spec.node_name.clone()?, address })
}

async fn ask_all(plugins: watch::Receiver<BTreeMap<String, Plugin>>, usages: watch::Sender<Usages>) {
    let http = HttpClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let mut round = tokio::time::interval(EVERY);
    loop {
        round.tick().await;
        let all: Vec<Plugin> = plugins.borrow().values().cloned().collect();
        let answers = stream::iter(all).map(|plugin| {
            let http = http.clone();
            async move {
                let answer = ask(&http, &plugin).await;
                let answer =
                    answer.map(Arc::new).map_err(|error| shorten(&with_causes(&error), 300).to_owned());
                (plugin.node, answer)
            }
        });
        let mut known = BTreeMap::new();
        let mut answers = std::pin::pin!(answers.buffer_unordered(AT_ONCE));
        while let Some((node, answer)) = answers.next().await {
            // During an upgrade a node has two plugins, and one may not answer.
            if answer.is_ok() || !known.contains_key(&node) {
                known.insert(node, answer);
            }
        }
        usages.send_replace(Arc::new(known));
    }
}

async fn ask(http: &HttpClient<HttpConnector, Empty<Bytes>>, plugin: &Plugin) -> Result<NodeUsage, AskError> {
    let address = plugin.address.ok_or(AskError::NoAddress)?;
    let asking = async {
        let mut request = Request::new(Empty::new());
        // Cannot fail: an address and a constant path.
        *request.uri_mut() = format!("http://{address}{PATH}").parse().unwrap_or_default();
        let response = http.request(request).await.map_err(|error| AskError::Connect(address, error))?;
        if response.status() != hyper::StatusCode::OK {
            return Err(AskError::Status(address, response.status()));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| AskError::Read(address, error))?;
        let usage =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| AskError::Form(address, error))?;
        Ok(bounded(usage))
    };
    tokio::time::timeout(PATIENCE, asking).await.map_err(|_| AskError::TimedOut { address })?
}

/// Limits a node's report. A compromised node must not exhaust the controller's memory or crowd out other nodes. Shares are limited
/// to 0 to 1.
fn bounded(mut usage: NodeUsage) -> NodeUsage {
    if let Some(beyond) = usage.cards.keys().nth(MOST_CARDS).copied() {
        usage.cards.split_off(&beyond);
    }
    for card in usage.cards.values_mut() {
        card.sm_activity = card.sm_activity.and_then(share);
        for text in [&mut card.uuid, &mut card.product_name] {
            let end = shorten(text, LONGEST_NAME).len();
            text.truncate(end);
        }
    }
    let mut devices = 0;
    usage.claims.retain_mut(|claim| {
        devices += claim.devices.len().max(1);
        let is_named = names(claim).all(|name| name.len() <= LONGEST_NAME);
        for device in &mut claim.devices {
            device.sm_activity = device.sm_activity.and_then(share);
            device.sm_granted = device.sm_granted.and_then(share);
        }
        claim.pods.truncate(MOST_PODS);
        is_named && devices <= MOST_DEVICES
    });
    usage
}

/// All names in the report of a claim.
fn names(claim: &ClaimUsage) -> impl Iterator<Item = &String> {
    let names = [&claim.namespace, &claim.name, &claim.uid].into_iter().chain(&claim.pods);
    names.chain(claim.devices.iter().map(|device| &device.device))
}

/// `None` if not a finite number.
fn share(of: f64) -> Option<f64> {
    of.is_finite().then(|| of.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// The result for this answer. The connection is closed after the answer, or kept open if `hangs`.
    async fn asked(answer: &'static [u8], hangs: bool) -> Result<NodeUsage, AskError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(answer).await;
            if hangs {
                std::future::pending::<()>().await;
            }
        });
        let http = HttpClient::builder(TokioExecutor::new()).build_http();
        let plugin = Plugin { node: "a".to_owned(), address: Some(address) };
        let result = ask(&http, &plugin).await;
        serving.abort();
        result
    }

    #[tokio::test]
    async fn bad_answers_are_told_apart() {
        let good = asked(b"HTTP/1.1 200 OK\r\n\r\n{\"at\": 7}", false).await.unwrap();
        assert_eq!(good.at, 7);
        let old = asked(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", false).await.unwrap_err();
        assert!(old.to_string().contains("404") && old.to_string().contains("older"), "{old}");
        let form = asked(b"HTTP/1.1 200 OK\r\n\r\n<html>", false).await;
        assert!(matches!(form, Err(AskError::Form(..))), "{form:?}");
        let endless = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{", true).await;
        assert!(matches!(endless, Err(AskError::TimedOut { .. } | AskError::Read(..))), "{endless:?}");
        let gone = Plugin { node: "a".to_owned(), address: None };
        let gone = ask(&HttpClient::builder(TokioExecutor::new()).build_http(), &gone).await;
        assert!(matches!(gone, Err(AskError::NoAddress)), "{gone:?}");
    }

    #[test]
    fn no_node_says_more_than_a_node_can() {
        let device =
            |activity: f64| json!({ "device": "gpu-01-00", "smActivity": activity, "smGranted": 2.0 });
        let claim = |uid: usize, devices: Vec<serde_json::Value>| json!({ "namespace": "n", "name": "c", "uid": format!("u{uid}"), "devices": devices });
        let mut claims = vec![claim(0, vec![device(-1.0), device(1e9), device(0.5)])];
        claims.push(json!({ "uid": "x".repeat(1000), "devices": [device(0.5)] }));
        claims.push(claim(1, vec![device(0.5); MOST_DEVICES]));
        claims.extend((2..MOST_DEVICES * 2).map(|uid| claim(uid, Vec::new())));
        let cards: serde_json::Map<String, serde_json::Value> = (0..1000)
            .map(|card| {
                (format!("{card:04x}:01:00.0"), json!({ "uuid": "ü".repeat(1000), "smActivity": 7.0 }))
            })
            .collect();
        let usage: NodeUsage = serde_json::from_value(json!({ "claims": claims, "cards": cards })).unwrap();
        let usage = bounded(usage);
        let activities: Vec<f64> =
            usage.claims[0].devices.iter().filter_map(|device| device.sm_activity).collect();
        assert_eq!(activities, [0.0, 1.0, 0.5]);
        assert_eq!(usage.claims[0].devices[0].sm_granted, Some(1.0));
        assert_eq!(usage.claims.len(), 1, "the others are too long, or come after too many");
        assert_eq!(usage.cards.len(), MOST_CARDS);
        assert!(
            usage.cards.values().all(|card| card.uuid.len() <= LONGEST_NAME && card.sm_activity == Some(1.0))
        );
        assert_eq!(share(f64::NAN), None);
    }

    #[test]
    fn a_plugin_is_where_its_pod_says() {
        let pod = serde_json::json!({
            "metadata": { "name": "p" },
            "spec": { "nodeName": "a", "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 9475 }] }] },
            "status": { "podIP": "10.0.0.7" },
        });
        let read = |pod: serde_json::Value| plugin(&serde_json::from_value::<Pod>(pod).unwrap());
        assert_eq!(read(pod.clone()).unwrap().address, Some("10.0.0.7:9475".parse().unwrap()));
        let mut ended = pod.clone();
        ended["status"]["phase"] = "Failed".into();
        assert_eq!(read(ended), None);
        let mut starting = pod;
        starting["status"] = serde_json::json!({});
        assert_eq!(read(starting).unwrap().address, None);
    }
}
