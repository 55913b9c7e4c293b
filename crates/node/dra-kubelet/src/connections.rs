//! Accepts connections, up to a limit.

use std::{io, sync::Arc};

use futures::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::authority::AuthorityAdapter;
use tessera_kube_util::incoming;

use crate::KubeletMetrics;

/// Connections open at once on one socket. The kubelet has one or two; the rest wait in the socket's backlog.
const MAX_CONNECTIONS: usize = 32;

/// The slot of an open connection, freed when dropped with the connection.
#[derive(Debug)]
pub struct Place {
    metrics: Option<KubeletMetrics>,
    _permit: OwnedSemaphorePermit,
}

/// Accepted connections, without end. Errors of accept are logged and skipped. `metrics` count the kubelet's connections.
pub fn accept<S>(
    listener: impl Stream<Item = io::Result<S>> + Unpin,
    metrics: Option<KubeletMetrics>,
) -> impl Stream<Item = io::Result<AuthorityAdapter<S, Place>>> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    stream::unfold((listener, places, metrics), |(mut listener, places, metrics)| async {
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        let socket = incoming::next(&mut listener).await?;
        if let Some(metrics) = &metrics {
            metrics.connections.inc();
        }
        let place = Place { metrics: metrics.clone(), _permit: permit };
        Some((Ok(AuthorityAdapter::new(socket, place)), (listener, places, metrics)))
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.connections.dec();
        }
    }
}
