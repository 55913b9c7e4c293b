//! Watches of an API server with prepared answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::*;

/// Sends these answers, in order, and records the requests. Then falls silent.
fn server(answers: &[(u16, String)]) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let left = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        noted.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = left.lock().unwrap().pop_front();
        async move {
            match answer {
                Some((code, text)) => Ok::<_, Infallible>(
                    Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap(),
                ),
                None => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), asked)
}

fn object(name: &str, version: u32, parameters: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"spec":{parameters}}}"#)
}

fn list(version: u32, next: &str, objects: &[String]) -> String {
    let items = objects.join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#)
}

fn line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn deep() -> String {
    format!("{}{}", "[".repeat(500), "]".repeat(500))
}

/// The first events, in short.
async fn events(client: Client, count: usize) -> Vec<String> {
    let in_short = |event: Result<Event<Value>, WatchError>| {
        let of = |what: &str, name: Name, object: Result<Value, Unreadable>| {
            format!("{what} {}{}", name.name, if object.is_ok() { "" } else { " unread" })
        };
        match event {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::InitApply(name, object)) => of("is", name, object),
            Ok(Event::Apply(name, object)) => of("apply", name, object),
            Ok(Event::Delete(name)) => format!("delete {}", name.name),
            Err(error) => error.to_string(),
        }
    };
    let all = watch(client, "/things".to_owned(), 2, crate::objects::from_json::<Value>);
    all.map(in_short).take(count).collect().await
}

#[tokio::test]
async fn pages_then_events_each_object_for_itself() {
    let (client, asked) = server(&[
        (200, list(5, "more", &[object("a", 1, "1"), object("b", 2, &deep())])),
        (200, list(5, "", &[object("c", 3, "1")])),
        (
            200,
            [
                line("MODIFIED", &object("a", 6, &deep())),
                line("BOOKMARK", &object("", 7, "null")),
                line("ADDED", &object("d", 8, "{}")),
                line("DELETED", &object("b", 9, &deep())),
                r#"{"type":"ADDED","obj"#.to_owned(),
            ]
            .concat(),
        ),
        (200, line("ADDED", &object("e", 10, "{}"))),
    ]);
    let seen = events(client, 9).await;
    let expected =
        ["init", "is a", "is b unread", "is c", "done", "apply a unread", "apply d", "delete b", "apply e"];
    assert_eq!(seen, expected);
    let asked = asked.lock().unwrap();
    assert!(asked[0].contains("limit=2") && asked[1].contains("continue=more"), "{asked:?}");
    assert!(asked[2].contains("watch=true") && asked[2].contains("resourceVersion=5"), "{asked:?}");
    assert!(asked[3].contains("resourceVersion=9"), "{asked:?}");
}

#[tokio::test]
async fn an_expired_version_leads_to_a_new_list() {
    let expired = r#"{"kind":"Status","code":410,"message":"too old"}"#;
    let (client, _) = server(&[
        (200, list(5, "", &[])),
        (200, line("ERROR", expired)),
        (200, list(8, "", &[object("a", 7, "1")])),
        (410, expired.to_owned()),
        (500, r#"{"kind":"Status","code":500,"message":"no"}"#.to_owned()),
        (200, list(9, "", &[])),
    ]);
    let seen = events(client, 10).await;
    assert_eq!(seen[..2], ["init", "done"]);
    assert!(seen[2].contains("410: too old"), "{seen:?}");
    assert_eq!(seen[3..6], ["init", "is a", "done"]);
    assert!(seen[6].starts_with("cannot watch"), "{seen:?}");
    assert_eq!(seen[7], "init");
    assert!(seen[8].starts_with("cannot list"), "{seen:?}");
    assert_eq!(seen[9], "init");
}

#[tokio::test]
async fn what_is_no_event_is_an_error_and_the_watch_begins_where_it_was() {
    let (client, asked) = server(&[
        (200, list(5, "", &[])),
        (200, line("ADDED", &object("a", 6, "1")) + "<html>\n"),
        (200, line("ADDED", &object("b", 7, "1"))),
    ]);
    let seen = events(client, 5).await;
    assert!(seen[3].starts_with("what came is no event"), "{seen:?}");
    assert_eq!((seen[2].as_str(), seen[4].as_str()), ("apply a", "apply b"));
    assert!(asked.lock().unwrap()[2].contains("resourceVersion=6"));
}
