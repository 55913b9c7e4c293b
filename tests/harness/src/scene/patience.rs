use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Timeout: several times the duration of anything on a cluster on a quiet machine, and more than two of the kubelet's
/// rounds of a minute.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Calls `ask` until it returns a value.
///
/// # Panics
/// No value within [`LIMIT`].
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "not within {} s: {what}", LIMIT.as_secs());
        sleep(Duration::from_millis(50)).await;
    }
}
