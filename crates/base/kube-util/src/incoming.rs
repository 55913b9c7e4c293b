//! Accepts the connections of a socket, and survives errors.

use std::{io, time::Duration};

use futures::{Stream, StreamExt as _};

/// Pause after an error, for example when the system has no file descriptor left: the connection stays in the socket's
/// queue, and the next attempt would fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// The next connection of a listener; `None` after the last one, which tokio's listeners never report. Errors of accept
/// are logged and skipped.
pub async fn next<S>(listener: &mut (impl Stream<Item = io::Result<S>> + Unpin)) -> Option<S> {
    loop {
        match listener.next().await? {
            Ok(connection) => return Some(connection),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
