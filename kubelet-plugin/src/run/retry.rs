//! Trying again what the node may allow later.

use std::{error::Error, future::Future, time::Duration};

use crate::error_text::with_causes;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Tries `attempt` until it succeeds, with growing pauses. An error is logged when it is another than before.
pub async fn until_it_works<T, E, F>(what: &str, mut attempt: impl FnMut() -> F) -> T
where
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => {
                let error = with_causes(&error);
                if error != told {
                    tracing::error!("cannot {what}: {error} (trying again every {LONGEST_PAUSE:?})");
                    told = error;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
