//! API servers that are away, slow, or answer badly.

use std::time::Duration;

use axum::http::Method;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, Client, Config, api::PostParams};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    log,
    proxy::{Act, Fault, Proxy, refusal},
    support::{TestNode, administrator, cards, eventually, marks},
};

#[tokio::test]
async fn refusals_that_pass_are_waited_for_and_said() {
    for (code, reason, says) in [
        (500, "InternalError", "the API server failed"),
        (429, "TooManyRequests", "asks to slow down"),
        (503, "ServiceUnavailable", "the API server failed"),
        (401, "Unauthorized", "credentials are not accepted"),
    ] {
        let node = TestNode::new("refused").await;
        let proxy = Proxy::new().await;
        proxy.next(Method::POST, 4, refusal(code, reason));
        let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
        let status = publisher.until("failing", |status| status.last_error.is_some()).await;
        let error = status.last_error.expect("an error");
        assert!(error.contains(says) && error.contains(reason), "{code}: {error}");
        let status = publisher.in_sync().await;
        assert_eq!((status.last_error, status.failures), (None, 4), "{code}");
        assert_eq!(marks(&node.slices().await), ["a"]);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_time_gets_it() {
    let node = TestNode::new("retry-after").await;
    let proxy = Proxy::new().await;
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "later", "details": {"retryAfterSeconds": 2}});
    proxy.next(Method::POST, 2, Act::Status(429, status));
    let begin = Instant::now();
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    publisher.in_sync().await;
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_not_hammered() {
    let node = TestNode::new("hammer").await;
    let proxy = Proxy::new().await;
    proxy.next(Method::POST, usize::MAX, refusal(500, "InternalError"));
    proxy.next(Method::PUT, usize::MAX, refusal(409, "Conflict"));
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Rounds after 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3 s at most half as long: two writes each.
    assert!(proxy.writes() <= 18, "{} writes in 5 s", proxy.writes());
    eventually("tried again and again", || async { (proxy.writes() >= 8).then_some(()) }).await;
    proxy.behave();
    publisher.in_sync().await;
}

#[tokio::test]
async fn conflicts_are_read_again_and_resolved() {
    let node = TestNode::new("conflict").await;
    let proxy = Proxy::new().await;
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    publisher.in_sync().await;
    proxy.next(Method::PUT, 2, refusal(409, "Conflict"));
    publisher.offer(cards(1, "b"));
    publisher.until("written", |status| status.in_sync && status.failures == 2).await;
    assert_eq!(marks(&node.slices().await), ["b"]);
    // Somebody made our slice before us, and the watch has not told.
    node.wipe().await;
    publisher.until("repaired", |status| status.in_sync && status.repairs > 0).await;
}

#[tokio::test]
async fn a_watch_that_expired_breaks_or_is_refused_is_renewed() {
    for act in [
        Act::WatchEvent(
            json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old resource version"}}),
        ),
        refusal(410, "Expired"),
        refusal(500, "InternalError"),
        // A server without WatchList.
        Act::Status(
            422,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden"}),
        ),
        Act::Hang,
    ] {
        let node = TestNode::new("watch").await;
        let proxy = Proxy::new().await;
        proxy.add(Fault { method: Method::GET, watch: true, times: 2, act });
        let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
        publisher.in_sync().await;
        node.wipe().await;
        publisher.until("repaired", |status| status.in_sync && status.repairs > 0).await;
        // The watch tells of one slice after the other.
        eventually("all of them", || async { (marks(&node.slices().await) == ["a"]).then_some(()) }).await;
        assert!(proxy.requests() < 40, "{} requests", proxy.requests());
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let node = TestNode::new("away").await;
    let proxy = Proxy::new().await;
    proxy.next(Method::POST, 2, Act::Hang);
    proxy.next(Method::GET, 2, Act::Hang);
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    publisher.in_sync().await;
    publisher.stop().await;

    // Nobody listens there at all.
    let config = Config::new("http://127.0.0.1:9".parse().expect("a URL"));
    let client = tessera_kube_util::client::connect(config).expect("a client");
    let publisher = node.publisher_through(client, Some(cards(1, "a")));
    let status = publisher.until("failing", |status| status.last_error.is_some()).await;
    let error = status.last_error.expect("an error");
    assert!(error.contains("the API server is away") && error.contains("refused"), "{error}");
    publisher.stop().await;
}

#[tokio::test]
async fn a_lasting_trouble_is_logged_once_and_so_is_its_end() {
    log::of_this_thread();
    let node = TestNode::new("log").await;
    let proxy = Proxy::new().await;
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    publisher.in_sync().await;

    // Nobody answers: neither the watch nor writes.
    proxy.add(Fault {
        method: Method::GET,
        watch: true,
        times: usize::MAX,
        act: refusal(503, "Unavailable"),
    });
    proxy.next(Method::GET, usize::MAX, refusal(503, "Unavailable"));
    proxy.next(Method::PUT, usize::MAX, refusal(503, "Unavailable"));
    proxy.break_connections();
    publisher.offer(cards(1, "b"));
    let lines = |part: &str| log::lines().iter().filter(|line| line.contains(part)).count();
    eventually("one of the watch, one of the write", || async { (lines("WARN") >= 2).then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(lines("WARN"), 2, "one of the watch, one of the write: {:#?}", log::lines());
    assert_eq!(lines("works again"), 0, "{:#?}", log::lines());

    proxy.behave();
    publisher.in_sync().await;
    eventually("watching again", || async { (lines("works again") == 2).then_some(()) }).await;
    assert_eq!(lines("WARN"), 2, "{:#?}", log::lines());
}

#[tokio::test]
async fn a_slow_server_is_waited_for_and_stopping_does_not_hang_on_it() {
    let node = TestNode::new("slow").await;
    let proxy = Proxy::new().await;
    proxy.next(Method::POST, 2, Act::Delay(Duration::from_secs(2)));
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    let status = publisher.in_sync().await;
    assert_eq!(status.failures, 0);
    proxy.next(Method::PUT, 1, Act::Delay(Duration::from_secs(60)));
    publisher.offer(cards(1, "b"));
    eventually("under way", || async { (proxy.writes() == 3).then_some(()) }).await;
    let begin = Instant::now();
    publisher.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn missing_rights_are_named_as_the_rule_to_add() {
    let node = TestNode::new("rights").await;
    let name = node.name.clone();
    let parameters = PostParams::default();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
    let accounts = Api::<ServiceAccount>::namespaced(node.client.clone(), "default");
    accounts.create(&parameters, &account).await.expect("created");
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
    let token = accounts.create_token_request(&name, &parameters, &request).await.expect("a token");
    let token = token.status.expect("a status").token.expect("a token");
    let client = || async {
        let mut config = administrator().await;
        config.auth_info = kube::config::AuthInfo { token: Some(token.clone().into()), ..Default::default() };
        tessera_kube_util::client::connect(config).expect("a client")
    };
    let grant = |role: &str, group: &str, resource: &str, verbs: &[&str]| {
        let role: ClusterRole =
            serde_json::from_value(json!({"metadata": {"name": format!("{name}-{role}")},
            "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs}]}))
            .expect("a role");
        let binding: ClusterRoleBinding = serde_json::from_value(json!({"metadata": role.metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.metadata.name},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}]}))
        .expect("a binding");
        let client = node.client.clone();
        async move {
            let parameters = PostParams::default();
            Api::<ClusterRole>::all(client.clone()).create(&parameters, &role).await.expect("created");
            Api::<ClusterRoleBinding>::all(client).create(&parameters, &binding).await.expect("created");
        }
    };
    let client: Client = client().await;
    let publisher = node.publisher_through(client, Some(cards(1, "a")));
    let expect = async |rule: &str| {
        publisher
            .until(rule, |status| status.last_error.as_ref().is_some_and(|error| error.contains(rule)))
            .await;
    };
    expect(r#"apiGroups ["resource.k8s.io"], resources ["resourceslices"], verbs ["list", "watch"]"#).await;
    grant("a", "resource.k8s.io", "resourceslices", &["list", "watch"]).await;
    expect(r#"apiGroups [""], resources ["nodes"], verbs ["get"]"#).await;
    grant("b", "", "nodes", &["get"]).await;
    expect(r#"verbs ["create"]"#).await;
    grant("c", "resource.k8s.io", "resourceslices", &["create"]).await;
    let status = publisher.in_sync().await;
    assert_eq!(status.last_error, None);
}
