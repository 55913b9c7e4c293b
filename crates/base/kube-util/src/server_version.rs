//! The API server's version, asked for from time to time: control planes are upgraded, and back, while a program runs.

use std::time::Duration;

use kube::{Client, Error};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error_text::{shorten, with_causes};

/// How often to ask.
const INTERVAL: Duration = Duration::from_secs(300);

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// First and longest pause between two questions without an answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// `gitVersion` of the API server's `/version`, such as `v1.37.2`; empty where access is refused; `None` until the first answer.
pub type ServerVersion = watch::Receiver<Option<String>>;

/// Sends the API server's version to `version` until `shutdown`. Without an answer the last version holds.
pub async fn follow(client: Client, version: watch::Sender<Option<String>>, shutdown: CancellationToken) {
    shutdown.run_until_cancelled(follow_every(INTERVAL, client, version)).await;
}

async fn follow_every(interval: Duration, client: Client, version: watch::Sender<Option<String>>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match tokio::time::timeout(PATIENCE, client.apiserver_version()).await {
            Ok(Ok(told)) => take(&version, told.git_version),
            Ok(Err(error @ Error::Api(_))) => {
                if version.borrow().is_none() {
                    let error = shorten(&with_causes(&error), 500).to_owned();
                    tracing::warn!(error, "the API server does not tell its version");
                }
                // An earlier answer still holds.
                let known = version.borrow().clone();
                take(&version, known.unwrap_or_default());
            }
            Ok(Err(_)) | Err(_) => {
                backoff.sleep().await;
                continue;
            }
        }
        backoff.reset();
        tokio::time::sleep(interval).await;
    }
}

fn take(version: &watch::Sender<Option<String>>, now: String) {
    version.send_if_modified(|known| {
        let is_new = known.as_ref() != Some(&now);
        if is_new && known.is_some() {
            tracing::info!(version = now, "the API server has another version");
        }
        *known = Some(now);
        is_new
    });
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server's answer: a code, and with 200 a version.
    type Answer = Arc<Mutex<(u16, &'static str)>>;

    fn server(answer: Answer) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), "/version");
            let (code, version) = *answer.lock().unwrap();
            let told = if code == 200 {
                json!({"major": "1", "minor": "37", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
            } else {
                json!({"kind": "Status", "apiVersion": "v1", "code": code, "reason": "Forbidden", "message": "no"})
            };
            let body = Body::from(told.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_version_that_changes_is_followed_and_holds_while_nothing_is_told() {
        let answer: Answer = Arc::new(Mutex::new((403, "")));
        let (sender, mut version) = watch::channel(None);
        let interval = Duration::from_millis(5);
        let followed = tokio::spawn(follow_every(interval, server(Arc::clone(&answer)), sender));
        let is = |expected: &'static str| move |known: &Option<String>| known.as_deref() == Some(expected);
        version.wait_for(is("")).await.unwrap();
        for told in ["v1.36.6", "v1.37.2"] {
            *answer.lock().unwrap() = (200, told);
            version.wait_for(is(told)).await.unwrap();
        }
        *answer.lock().unwrap() = (403, "");
        tokio::time::sleep(interval * 20).await;
        assert_eq!(version.borrow().as_deref(), Some("v1.37.2"), "what was told last holds");
        *answer.lock().unwrap() = (200, "v1.36.6");
        version.wait_for(is("v1.36.6")).await.unwrap();
        followed.abort();
    }
}
