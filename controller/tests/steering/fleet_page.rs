//! Who sees the fleet page, by the API server's own word.

use std::net::SocketAddr;

use serde_json::json;
use tessera_api::fleet_view::NodeView;
use tessera_controller::fleet_page::{self, FleetPage};
use tessera_decide::FleetSnapshot;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::fleet;

/// Serves the page on this address; the loop behind it knows one node.
async fn serve(client: kube::Client, address: &str) -> SocketAddr {
    let (asks, mut asked) = mpsc::channel::<oneshot::Sender<FleetSnapshot>>(1);
    tokio::spawn(async move {
        while let Some(ask) = asked.recv().await {
            let nodes = vec![NodeView { name: "the-node".to_owned(), ..NodeView::default() }];
            let _ = ask.send(FleetSnapshot::of_nodes(nodes));
        }
    });
    let (_, usages) = watch::channel(Default::default());
    let page = FleetPage::new("gpu.tessera.dev", asks, usages, None);
    let listener = fleet_page::bind(address.parse().unwrap()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(fleet_page::serve(listener, page, client, Default::default(), CancellationToken::new()));
    ([127, 0, 0, 1], port).into()
}

/// The status line and the rest of the answer.
async fn get(address: SocketAddr, path: &str, header: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\n{header}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (status, rest) = answer.split_once("\r\n").unwrap();
    (status.trim_start_matches("HTTP/1.1 ").to_owned(), rest.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_and_the_right_to_see_it_are_needed_beyond_the_pod() {
    let cluster = fleet::cluster(&[]).await;
    let client = cluster.client().await.unwrap();

    let local = serve(client.clone(), "127.0.0.1:0").await;
    let (status, page) = get(local, "/", "Host: localhost:8081").await;
    assert!(status.starts_with("200") && page.contains("the-node"), "{status}\n{page}");
    assert!(page.to_lowercase().contains("content-security-policy: default-src 'none'"), "{page}");
    let (status, json) = get(local, "/fleet.json", "Host: [::1]:8081").await;
    assert!(status.starts_with("200") && json.contains(r#""name":"the-node""#), "{status}\n{json}");
    // A page of another site that gave its name our address.
    let (status, _) = get(local, "/fleet.json", "Host: evil.example.com:8081").await;
    assert!(status.starts_with("403"), "{status}");

    let exposed = serve(client, "0.0.0.0:0").await;
    let with_token = async |token: &str| {
        get(exposed, "/fleet.json", &format!("Host: x\r\nAuthorization: Bearer {token}")).await
    };
    assert!(get(exposed, "/", "Host: x").await.0.starts_with("401"));
    assert!(with_token("no-such-token").await.0.starts_with("401"));
    let token = cluster.kubectl(&["create", "token", "default", "--namespace", "default"]).await.unwrap();
    let (status, text) = with_token(token.trim()).await;
    assert!(
        status.starts_with("403") && text.contains("system:serviceaccount:default:default"),
        "{status}\n{text}"
    );
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "gpu-fleet-viewer" }, "rules": [{ "nonResourceURLs": ["/fleet.json"], "verbs": ["get"] }] });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "gpu-fleet-viewer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpu-fleet-viewer" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }] });
    fleet::apply(&cluster, &[role, binding]).await;
    tessera_fakes::poll::until_async("the right is known", async || {
        with_token(token.trim()).await.0.starts_with("200")
    })
    .await;
    cluster.kubectl(&["delete", "clusterrolebinding,clusterrole", "gpu-fleet-viewer"]).await.unwrap();
}
