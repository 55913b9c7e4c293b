//! Error answers of the API server, in words.

use std::error::Error;
use std::fmt;

/// A failed request. Its text is the API server's own message, or the reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub struct ServerError(Box<kube::Error>);

impl ServerError {
    /// The status code of the answer; `None` without an answer.
    pub fn code(&self) -> Option<u16> {
        match &*self.0 {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether a right is missing.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }
}

impl From<kube::Error> for ServerError {
    fn from(error: kube::Error) -> Self {
        ServerError(Box::new(error))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            // kube's own text holds the whole answer as Rust's debugging output.
            kube::Error::Api(status) => {
                let message = match (status.message.as_str(), status.reason.as_str()) {
                    ("", "") => "no reason is given",
                    ("", said) | (said, _) => said,
                };
                match status.code {
                    401 => write!(formatter, "you are not logged in, or your login has expired: {message}"),
                    // Their messages are complete.
                    403 | 404 | 409 | 422 => formatter.write_str(message),
                    code => write!(formatter, "the API server answers {code}: {message}"),
                }
            }
            kube::Error::Service(error) => formatter.write_str(&with_causes(&**error)),
            kube::Error::HyperError(error) => formatter.write_str(&with_causes(error)),
            kube::Error::SerdeError(error) => {
                write!(formatter, "this version of kubectl gpu cannot read the answer: {error}")
            }
            kube::Error::Auth(error) => {
                write!(formatter, "cannot get the credentials of the kubeconfig: {}", with_causes(error))
            }
            other => formatter.write_str(&with_causes(other)),
        }
    }
}

/// An error with its causes, except causes already in its text.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(status: &serde_json::Value) -> String {
        ServerError::from(kube::Error::Api(serde_json::from_value(status.clone()).unwrap())).to_string()
    }

    #[test]
    fn answers_are_told_in_their_own_words() {
        let forbidden = "leases.coordination.k8s.io is forbidden: User \"u\" cannot list resource \"leases\"";
        let status = |code: u16, message: &str, reason: &str| {
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                "message": message, "reason": reason, "details": { "kind": "leases", "group": "coordination.k8s.io" } })
        };
        assert_eq!(told(&status(403, forbidden, "Forbidden")), forbidden);
        assert_eq!(
            told(&status(401, "Unauthorized", "Unauthorized")),
            "you are not logged in, or your login has expired: Unauthorized"
        );
        assert_eq!(
            told(&status(503, "", "ServiceUnavailable")),
            "the API server answers 503: ServiceUnavailable"
        );
        assert_eq!(told(&status(500, "", "")), "the API server answers 500: no reason is given");
    }

    #[test]
    fn what_is_no_answer_has_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] std::io::Error);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = ServerError::from(kube::Error::Service(Box::new(Outer(refused))));
        assert_eq!(error.to_string(), "client error (Connect): connection refused");
        assert_eq!(error.code(), None);
    }
}
