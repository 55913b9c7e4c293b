//! Runs blocking work on blocking threads.

use super::PrepareError;

/// Runs work on a blocking thread.
///
/// # Errors
/// [`PrepareError::Panic`] after a panic, [`PrepareError::Stopping`] if the process is ending.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PrepareError> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|error| {
        if error.is_panic() { PrepareError::Panic(error.to_string().into()) } else { PrepareError::Stopping }
    })
}
