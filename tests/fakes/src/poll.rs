//! Polling with a timeout generous enough for a busy machine.

use std::time::{Duration, Instant};

/// Timeout, far above the duration of anything waited for.
pub const LONG: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `is_so` holds.
///
/// # Panics
/// When `is_so` does not hold within [`LONG`].
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_async(what, async || is_so()).await;
}

/// [`until`] for a condition checked by a request.
///
/// # Panics
/// When `is_so` does not hold within [`LONG`].
pub async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
