//! Retries attempts refused by the node for now.

use std::{error::Error, future::Future, time::Duration};

use tokio::sync::watch;

use crate::{backoff::Backoff, error_text::with_causes};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Repeats `attempt` until it succeeds, with growing pauses. A new error, different from the one before, is logged. The
/// current error stays in `trouble` until a success.
pub async fn until_it_works<T, E, F>(
    what: &str,
    trouble: &watch::Sender<Option<String>>,
    mut attempt: impl FnMut() -> F,
) -> T
where
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut told = String::new();
    loop {
        match attempt().await {
            Ok(value) => {
                trouble.send_replace(None);
                return value;
            }
            Err(error) => {
                let error = with_causes(&error);
                if error != told {
                    trouble.send_replace(Some(format!("cannot {what}: {error}")));
                    tracing::error!("cannot {what}: {error} (trying again every {LONGEST_PAUSE:?})");
                    told = error;
                }
            }
        }
        backoff.sleep().await;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_last_error_is_known_until_it_works() {
        let (trouble, known) = watch::channel(None);
        let attempts = AtomicU32::new(0);
        let value = until_it_works("open it", &trouble, || async {
            match attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::other("read-only disk")),
                _ => {
                    assert_eq!(known.borrow().as_deref(), Some("cannot open it: read-only disk"));
                    Ok(7)
                }
            }
        });
        assert_eq!(value.await, 7);
        assert_eq!(*known.borrow(), None);
    }
}
