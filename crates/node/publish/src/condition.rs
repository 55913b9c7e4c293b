//! Logs a lasting problem once, and its end.

use crate::failure::{Attempt, Failure, FailureKind};

/// Whether something works at present.
#[derive(Debug)]
pub struct Condition {
    what: &'static str,
    failing: Option<(Attempt, std::mem::Discriminant<FailureKind>)>,
    attempts: u64,
}

impl Condition {
    /// A condition, good until the first failure. `what` is the subject of its log messages.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        Self { what, failing: None, attempts: 0 }
    }

    /// Records a failure. Logged as a warning after a success or for a new reason.
    pub fn failed(&mut self, failure: &Failure) {
        self.attempts += 1;
        let reason = (failure.attempt, std::mem::discriminant(&failure.kind));
        if self.failing == Some(reason) {
            tracing::debug!(attempts = self.attempts, "{}", failure.message());
        } else {
            self.failing = Some(reason);
            tracing::warn!("{}", failure.message());
        }
    }

    /// Records a success. Logged after a failure.
    pub fn worked(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(failed_attempts = self.attempts, "{} works again", self.what);
        }
        self.attempts = 0;
    }

    /// Whether the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }
}
