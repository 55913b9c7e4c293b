//! Accepts connections, up to a limit.

use std::{io, sync::Arc};

use futures::{Stream, stream};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_stream::wrappers::UnixListenerStream;

use super::authority::AuthorityAdapter;
use tessera_kube_util::incoming;

use crate::KubeletMetrics;

/// Connections open at once on one socket. The kubelet has one or two; the rest wait in the socket's backlog.
const MAX_CONNECTIONS: usize = 32;

/// The slot of an open connection, freed when dropped with the connection.
#[derive(Debug)]
pub struct Place {
    metrics: KubeletMetrics,
    _permit: OwnedSemaphorePermit,
}

/// Accepted connections, without end. Errors of accept are logged, and it goes on.
pub fn accept(
    listener: UnixListener,
    metrics: KubeletMetrics,
) -> impl Stream<Item = io::Result<AuthorityAdapter<UnixStream, Place>>> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let listener = UnixListenerStream::new(listener);
    stream::unfold((listener, places, metrics), |(mut listener, places, metrics)| async {
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        let socket = incoming::next(&mut listener).await?;
        metrics.connections.inc();
        let place = Place { metrics: metrics.clone(), _permit: permit };
        Some((Ok(AuthorityAdapter::new(socket, place)), (listener, places, metrics)))
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}
