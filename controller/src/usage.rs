//! What the cards of all nodes do, asked of the kubelet plugins.

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
use tessera_api::usage::{NodeUsage, PATH};
use tessera_kube_util::error_text::{shorten, with_causes};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often each plugin is asked: as often as it looks at its cards.
const EVERY: Duration = Duration::from_secs(15);

/// The longest wait for a plugin's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Plugins that are asked at once.
const AT_ONCE: usize = 32;

/// Longest answer, in bytes: sixteen cards with a hundred shares each stay below a tenth of that.
const LONGEST: usize = 4 << 20;

/// What is known of each node, by name: its cards' use, or why it is not known.
pub type Usages = Arc<BTreeMap<String, Result<Arc<NodeUsage>, String>>>;

/// Where a plugin answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plugin {
    node: String,
    /// `None` while it has no address.
    address: Option<SocketAddr>,
}

/// Why a plugin's answer cannot be used.
#[derive(Debug, thiserror::Error)]
enum AskError {
    /// The pod of the plugin has no address yet.
    #[error("the kubelet plugin does not run yet")]
    NoAddress,
    /// No answer within [`PATIENCE`].
    #[error("the kubelet plugin at {address} does not answer within {} s", PATIENCE.as_secs())]
    TimedOut {
        /// Where it should answer.
        address: SocketAddr,
    },
    /// It cannot be reached.
    #[error("the kubelet plugin at {0} cannot be reached")]
    Connect(SocketAddr, #[source] hyper_util::client::legacy::Error),
    /// The answer broke off, or is too long.
    #[error("the answer of the kubelet plugin at {0} cannot be read")]
    Read(SocketAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// It says something else: it may be of a version without this.
    #[error("the kubelet plugin at {0} answers {1}: is it older than the controller?")]
    Status(SocketAddr, hyper::StatusCode),
    /// The answer is no usage.
    #[error("the answer of the kubelet plugin at {0} is no usage")]
    Form(SocketAddr, #[source] serde_json::Error),
}

/// Asks the plugins, whose pods have these labels in this namespace, until `shutdown`.
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

/// The plugin in the pod; `None` once it has ended, and before it has a node.
fn plugin(pod: &Pod) -> Option<Plugin> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
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
            // During an upgrade a node has two plugins, of which one may not answer.
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
        serde_json::from_slice(&body.to_bytes()).map_err(|error| AskError::Form(address, error))
    };
    tokio::time::timeout(PATIENCE, asking).await.map_err(|_| AskError::TimedOut { address })?
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What is made of this answer, which ends with the connection or, if `hangs`, never.
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
