//! A repeated list reports deleted objects.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// An API server with these successive lists of claims. The watch after the first list ends with an expired version, and later
/// watches stay silent.
fn client(lists: &'static [&'static [&'static str]]) -> Client {
    let asked = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let answer = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                if asked.load(Ordering::SeqCst) > 1 {
                    std::future::pending::<()>().await;
                }
                format!(
                    "{}\n",
                    json!({ "type": "ERROR", "object": { "code": 410, "message": "too old", "metadata": {} } })
                )
            } else {
                let names = lists[asked.fetch_add(1, Ordering::SeqCst)];
                let items: Vec<Value> = names
                    .iter()
                    .map(|name| json!({ "metadata": { "name": name, "namespace": "n", "uid": name, "resourceVersion": "1" }, "spec": {} }))
                    .collect();
                json!({ "metadata": { "resourceVersion": "1" }, "items": items }).to_string()
            };
            Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())))
        }
    });
    Client::new(service, "default")
}

/// The events until the next complete list, abbreviated.
async fn told(seen: &mut mpsc::Receiver<Seen>) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match seen.recv().await.unwrap() {
            Seen::Change(Observation::Applied(object)) => {
                all.push(format!("+{}", object.metadata().name.clone().unwrap()));
            }
            Seen::Change(Observation::Deleted(_, key)) => all.push(format!("-{}", key.name)),
            Seen::Change(Observation::ClaimsListed { .. }) => return all,
            Seen::Complete(Kind::ResourceClaim) => all.push("all".to_owned()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_new_list_lacks_is_gone_before_the_list_counts_as_complete() {
    let (seen_sender, mut seen) = mpsc::channel(64);
    let (ask, claims_asked) = value::channel(0);
    let client = client(&[&["a", "b"], &["b"], &["c"]]);
    let watches =
        Watches { client, seen: seen_sender, clock: Clock::start(), follows_quotas: true, claims_asked };
    let following = tokio::spawn(async move { watches.follow::<ResourceClaim>(Kind::ResourceClaim).await });
    assert_eq!(told(&mut seen).await, ["+a", "+b", "all"]);
    // The watch could not be resumed.
    assert_eq!(told(&mut seen).await, ["+b", "-a", "all"]);
    // A new leader requests a new list.
    ask.send_replace(1);
    assert_eq!(told(&mut seen).await, ["+c", "-b", "all"]);
    following.abort();
}
