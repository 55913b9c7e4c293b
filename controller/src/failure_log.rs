//! Failures of repeated work.

use tessera_kube_util::error_text::with_causes;

/// Logs failures of some work, a repeated one once.
pub struct FailureLog {
    /// Continues "cannot" in the log.
    work: String,
    last: String,
}

impl FailureLog {
    /// `work` continues "cannot" in the log.
    #[must_use]
    pub fn new(work: impl Into<String>) -> Self {
        FailureLog { work: work.into(), last: String::new() }
    }

    /// Takes the outcome of a try.
    pub fn record<T>(&mut self, outcome: &Result<T, kube::Error>) {
        let text = outcome.as_ref().err().map(|error| with_causes(error)).unwrap_or_default();
        if !text.is_empty() && text != self.last {
            tracing::warn!("cannot {}: {text}", self.work);
        }
        self.last = text;
    }
}
