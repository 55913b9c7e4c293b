//! The connections that come to a socket, whatever happens meanwhile.

use std::{io, time::Duration};

use futures::{Stream, StreamExt as _};

/// How long to wait after an error, as when the system has no file descriptor for a connection: it stays in the queue of
/// the socket, and the next attempt would fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// The next connection of a listener; none where there will be no more, which the listeners of tokio never say. An error to
/// accept one is logged and survived.
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
