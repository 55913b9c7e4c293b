//! Classifies failed requests to the API server, and advises on the remedy.

use std::time::Duration;

use kube::core::{Status, response::StatusCause};

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Read the Node, for the owner of the slices.
    GetNode,
    /// Read one slice again.
    Get,
    /// List or watch the slices.
    Watch,
    /// Create a slice.
    Create,
    /// Replace a slice.
    Update,
    /// Delete a slice.
    Delete,
}

impl Attempt {
    /// The RBAC rule needed for this attempt.
    const fn rule(self) -> (&'static str, &'static str, &'static str) {
        const GROUP: &str = "resource.k8s.io";
        const SLICES: &str = "resourceslices";
        match self {
            Self::GetNode => ("", "nodes", "get"),
            Self::Get => (GROUP, SLICES, "get"),
            Self::Watch => (GROUP, SLICES, "list\", \"watch"),
            Self::Create => (GROUP, SLICES, "create"),
            Self::Update => (GROUP, SLICES, "update"),
            Self::Delete => (GROUP, SLICES, "delete"),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::GetNode => "read Node",
            Self::Get => "read ResourceSlice",
            Self::Watch => "list and watch ResourceSlices of node",
            Self::Create => "create ResourceSlice",
            Self::Update => "update ResourceSlice",
            Self::Delete => "delete ResourceSlice",
        }
    }
}

/// Kinds of failures, by how they are handled.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureKind {
    /// The connection failed or broke.
    Away,
    /// No answer in time.
    Slow,
    /// The object has changed since the last read, or already exists: read the object again.
    Conflict,
    /// The object does not exist (any more).
    NotFound,
    /// The server asks to slow down.
    Throttled {
        /// The pause requested by the server.
        retry_after: Duration,
    },
    /// The credentials are not accepted.
    Unauthorized,
    /// RBAC or an admission policy forbids it.
    Forbidden,
    /// The object is invalid: sending the same object again does not help.
    Invalid {
        /// The invalid fields.
        causes: Vec<StatusCause>,
    },
    /// The server failed, or gave any other answer.
    Server,
}

/// One failed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The kind of request.
    pub attempt: Attempt,
    /// The object's name (the node's name for [`Attempt::Watch`]).
    pub name: String,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The message of the server or the connection.
    pub text: String,
}

impl Failure {
    /// The failure behind an error of the client.
    #[must_use]
    pub fn new(attempt: Attempt, name: &str, error: &kube::Error) -> Self {
        let (kind, text) = match error {
            kube::Error::Api(status) => (of_status(status), status_text(status)),
            other => (FailureKind::Away, chain(other)),
        };
        Self { attempt, name: name.to_owned(), kind, text }
    }

    /// No answer within `limit`.
    #[must_use]
    pub fn slow(attempt: Attempt, name: &str, limit: Duration) -> Self {
        let text = format!("no answer within {} s", limit.as_secs());
        Self { attempt, name: name.to_owned(), kind: FailureKind::Slow, text }
    }

    /// The failure behind an error of a watch.
    #[must_use]
    pub fn of_watch(node_name: &str, error: &kube::runtime::watcher::Error) -> Self {
        use kube::runtime::watcher::Error;
        match error {
            Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
                Self::new(Attempt::Watch, node_name, error)
            }
            Error::WatchError(status) => Self {
                attempt: Attempt::Watch,
                name: node_name.to_owned(),
                kind: of_status(status),
                text: status_text(status),
            },
            Error::NoResourceVersion => Self {
                attempt: Attempt::Watch,
                name: node_name.to_owned(),
                kind: FailureKind::Server,
                text: "an answer without resource version".to_owned(),
            },
        }
    }

    /// Minimum pause before the next try, if the server asked for one.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self.kind {
            FailureKind::Throttled { retry_after } => retry_after,
            _ => Duration::ZERO,
        }
    }

    /// The problem and its remedy, for the log and for people.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { name, text, .. } = self;
        let words = self.attempt.words();
        let what = format!("cannot {words} {name}");
        match &self.kind {
            FailureKind::Away => format!("{what}: the API server is away: {text}; trying again"),
            FailureKind::Slow => format!("{what}: the API server is slow: {text}; trying again"),
            FailureKind::Conflict => format!("{what}: somebody else changed it: {text}; trying again"),
            FailureKind::NotFound if self.attempt == Attempt::GetNode => {
                format!("{what}: {text}; --node-name must be the name of this node's Node object")
            }
            FailureKind::NotFound if self.attempt == Attempt::Watch => format!(
                "{what}: the API server does not serve resource.k8s.io/v1: {text}; Kubernetes 1.35 or newer is needed"
            ),
            FailureKind::NotFound => format!("{what}: {text}"),
            FailureKind::Throttled { .. } => format!("{what}: the API server asks to slow down: {text}"),
            FailureKind::Unauthorized => {
                format!(
                    "{what}: the credentials are not accepted: {text}; check the service account's token or the kubeconfig"
                )
            }
            FailureKind::Forbidden if text.contains("ValidatingAdmissionPolicy") => {
                format!("{what}: an admission policy forbids it: {text}")
            }
            FailureKind::Forbidden => {
                let (group, resource, verb) = self.attempt.rule();
                format!(
                    "{what}: {text}; an RBAC rule is missing for this user: apiGroups [\"{group}\"], resources [\"{resource}\"], \
                     verbs [\"{verb}\"]"
                )
            }
            FailureKind::Invalid { causes } if causes.is_empty() => {
                format!("{what}: it is not valid: {text}")
            }
            FailureKind::Invalid { causes } => {
                let fields: Vec<String> =
                    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
                format!("{what}: it is not valid: {}", fields.join("; "))
            }
            FailureKind::Server => format!("{what}: the API server failed: {text}; trying again"),
        }
    }
}

fn of_status(status: &Status) -> FailureKind {
    let details = status.details.as_ref();
    match status.code {
        401 => FailureKind::Unauthorized,
        403 => FailureKind::Forbidden,
        404 => FailureKind::NotFound,
        409 => FailureKind::Conflict,
        // An admission policy also denies with 422. It may be changed, and the object itself is valid.
        422 if status.message.contains("ValidatingAdmissionPolicy") => FailureKind::Forbidden,
        413 | 422 => {
            FailureKind::Invalid { causes: details.map(|details| details.causes.clone()).unwrap_or_default() }
        }
        429 => {
            let seconds = details.map_or(0, |details| details.retry_after_seconds);
            FailureKind::Throttled { retry_after: Duration::from_secs(u64::from(seconds.min(300))) }
        }
        _ => FailureKind::Server,
    }
}

fn status_text(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("status {}", status.code),
        ("", reason) => format!("{reason} ({})", status.code),
        (message, _) => format!("{message} ({})", status.code),
    }
}

/// An error with its causes: some messages alone are useless ("client error (Connect)").
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(attempt: Attempt, code: u16, message: &str) -> Failure {
        let status = Status::failure(message, "").with_code(code);
        Failure::new(attempt, "x", &kube::Error::Api(status.boxed()))
    }

    #[test]
    fn forbidden_names_the_missing_rule() {
        let message = refusal(Attempt::Create, 403, "User \"u\" cannot create resource").message();
        assert!(
            message.contains(
                "apiGroups [\"resource.k8s.io\"], resources [\"resourceslices\"], verbs [\"create\"]"
            ),
            "{message}"
        );
        let message = refusal(Attempt::Watch, 403, "no").message();
        assert!(message.contains("verbs [\"list\", \"watch\"]"), "{message}");
        let message = refusal(Attempt::GetNode, 403, "no").message();
        assert!(message.contains("apiGroups [\"\"], resources [\"nodes\"], verbs [\"get\"]"), "{message}");
    }

    #[test]
    fn a_policy_that_denies_is_not_an_invalid_slice() {
        let failure = refusal(
            Attempt::Create,
            422,
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        );
        assert_eq!(failure.kind, FailureKind::Forbidden);
        assert!(failure.message().contains("an admission policy forbids it"));
    }

    #[test]
    fn statuses_have_kinds() {
        for (code, kind) in [
            (401, FailureKind::Unauthorized),
            (409, FailureKind::Conflict),
            (422, FailureKind::Invalid { causes: Vec::new() }),
            (429, FailureKind::Throttled { retry_after: Duration::ZERO }),
            (500, FailureKind::Server),
            (410, FailureKind::Server),
        ] {
            assert_eq!(refusal(Attempt::Update, code, "").kind, kind, "{code}");
        }
    }
}
