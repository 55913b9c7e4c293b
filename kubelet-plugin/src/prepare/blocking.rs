//! Runs blocking work on threads that may block.

use super::PrepareError;

/// Runs blocking work on a thread that may block.
///
/// # Errors
/// [`PrepareError::Panic`] if it panicked, [`PrepareError::Stopping`] if the process is ending.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PrepareError> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|error| {
        if error.is_panic() { PrepareError::Panic(error.to_string().into()) } else { PrepareError::Stopping }
    })
}
