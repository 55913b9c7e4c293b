//! Waiting for what happens sooner or later on a busy machine.

use std::time::{Duration, Instant};

/// Far more than anything takes that is waited for.
pub const LONG: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so.
///
/// # Panics
/// It is not within [`LONG`].
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_async(what, async || is_so()).await;
}

/// [`until`], where looking takes a request.
///
/// # Panics
/// It is not within [`LONG`].
pub async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
