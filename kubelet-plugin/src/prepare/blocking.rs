//! Work that blocks, on threads that may block.

use super::PrepareError;

/// Runs what blocks on a thread that may block.
///
/// # Errors
/// [`PrepareError::Panic`] where it panicked, [`PrepareError::Stopping`] where the process is ending.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PrepareError> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|error| {
        if error.is_panic() { PrepareError::Panic(error.to_string().into()) } else { PrepareError::Stopping }
    })
}
