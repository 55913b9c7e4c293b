//! Existing objects and their changes: a list page by page, then a watch from there.

use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _, Stream};
use kube::Client;
use kube::api::{ListParams, Request, WatchParams};
use serde::Deserialize;

use super::{Name, Page, Unreadable, json};

/// How long a watch may be silent: the API server ends the watch after 290 s, and a lost connection stays silent.
const SILENCE: Duration = Duration::from_secs(295);

/// The API server's code for a forgotten resource version.
const EXPIRED: u16 = 410;

/// An event of a watch.
#[derive(Debug)]
pub enum Event<T> {
    /// All existing objects follow.
    Init,
    /// An existing object.
    InitApply(Name, Result<T, Unreadable>),
    /// The end of the existing objects.
    InitDone,
    /// An object was created or changed.
    Apply(Name, Result<T, Unreadable>),
    /// An object was deleted.
    Delete(Name),
}

/// Why a watch broke off. When polled again, the watch goes on where it was, or with a new list.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no list.
    #[error("cannot list: {0}")]
    List(#[source] kube::Error),
    /// The watch cannot begin.
    #[error("cannot watch: {0}")]
    Start(#[source] kube::Error),
    /// The API server ended the watch.
    #[error("the API server ended the watch with {code}: {message}")]
    Ended {
        /// Its code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Connection(#[source] std::io::Error),
    /// The received line is no event.
    #[error("what came is no event: {0}")]
    Form(#[source] serde_json::Error),
}

impl WatchError {
    /// Whether the error is part of the protocol: a new list follows.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        match self {
            WatchError::Start(kube::Error::Api(status)) => status.code == EXPIRED,
            WatchError::Ended { code, .. } => *code == EXPIRED,
            _ => false,
        }
    }
}

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

enum State {
    Empty,
    Listing { page: Option<Page>, next: Option<String> },
    Listed { version: String },
    Watching { version: String, lines: Lines },
}

/// A line of a watch, with its object unparsed.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: About,
}

#[derive(Deserialize)]
struct About {
    #[serde(default)]
    metadata: Name,
    /// Of a status.
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

struct Watch<R> {
    client: Client,
    url: String,
    per_page: u32,
    read: R,
}

/// All objects of a resource, by its URL ([`kube::Api::resource_url`]), and every change of them, parsed by `read`. The
/// stream never ends; pause after an error ([`kube::runtime::WatchStreamExt::default_backoff`]).
pub fn watch<T: Send>(
    client: Client,
    url: String,
    per_page: u32,
    read: impl Fn(&[u8]) -> Result<T, serde_json::Error> + Send + Sync,
) -> impl Stream<Item = Result<Event<T>, WatchError>> + Send {
    let watch = Watch { client, url, per_page, read };
    futures::stream::unfold((watch, State::Empty), |(watch, mut state)| async {
        loop {
            let (event, next) = watch.step(state).await;
            state = next;
            if let Some(event) = event {
                return Some((event, (watch, state)));
            }
        }
    })
}

type Step<T> = (Option<Result<Event<T>, WatchError>>, State);

impl<T, R: Fn(&[u8]) -> Result<T, serde_json::Error>> Watch<R> {
    async fn step(&self, state: State) -> Step<T> {
        match state {
            State::Empty => (Some(Ok(Event::Init)), State::Listing { page: None, next: None }),
            State::Listing { page: None, next } => self.list(next).await,
            State::Listing { page: Some(mut page), next } => match page.next(&self.read) {
                Some((name, object)) => {
                    (Some(Ok(Event::InitApply(name, object))), State::Listing { page: Some(page), next })
                }
                None if next.is_some() => (None, State::Listing { page: None, next }),
                None => {
                    let version = page.metadata.resource_version.unwrap_or_default();
                    (Some(Ok(Event::InitDone)), State::Listed { version })
                }
            },
            State::Listed { version } => self.begin(version).await,
            State::Watching { version, lines } => self.next(version, lines).await,
        }
    }

    async fn list(&self, next: Option<String>) -> Step<T> {
        let which = ListParams { continue_token: next, ..ListParams::default().limit(self.per_page) };
        match Page::get(&self.client, &self.url, &which).await {
            Ok(page) => {
                let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
                (None, State::Listing { page: Some(page), next })
            }
            Err(error) => (Some(Err(WatchError::List(error))), State::Empty),
        }
    }

    async fn begin(&self, version: String) -> Step<T> {
        let request = Request::new(self.url.as_str()).watch(&WatchParams::default(), &version);
        let lines = match request {
            Ok(request) => self.client.request_stream(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match lines {
            Ok(lines) => (None, State::Watching { version, lines: Box::pin(lines) }),
            Err(error) => broken(WatchError::Start(error), version),
        }
    }

    async fn next(&self, version: String, mut lines: Lines) -> Step<T> {
        let mut line = Vec::new();
        match tokio::time::timeout(SILENCE, lines.read_until(b'\n', &mut line)).await {
            Ok(Err(error)) => return broken(WatchError::Connection(error), version),
            Ok(Ok(_)) if line.ends_with(b"\n") => {}
            // At its end, perhaps within a line, or silent: from here once more.
            Ok(Ok(_)) | Err(_) => return (None, State::Listed { version }),
        }
        let Line { kind, object } = match serde_json::from_slice(&line) {
            Ok(line) => line,
            Err(error) => return broken(WatchError::Form(error), version),
        };
        let name = object.metadata;
        let version = Some(name.resource_version.clone()).filter(|now| !now.is_empty()).unwrap_or(version);
        let event = match kind.as_str() {
            "ADDED" | "MODIFIED" => {
                let (_, object) = json::object(json::object_of_line(&line), &self.read);
                Some(Ok(Event::Apply(name, object)))
            }
            "DELETED" => Some(Ok(Event::Delete(name))),
            "ERROR" => {
                return broken(WatchError::Ended { code: object.code, message: object.message }, version);
            }
            _ => None,
        };
        (event, State::Watching { version, lines })
    }
}

/// After an error: from there once more, or anew where the API server does not know the version any more.
fn broken<T>(error: WatchError, version: String) -> Step<T> {
    let state = if error.is_expired() { State::Empty } else { State::Listed { version } };
    (Some(Err(error)), state)
}

#[cfg(test)]
mod tests;
