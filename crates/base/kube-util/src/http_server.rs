//! An HTTP server for untrusted clients: connections are limited in number, memory and time.

use std::{
    io,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use futures::Stream;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus_client::metrics::counter::Counter;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::incoming;

/// Interval of log lines about refused connections.
const TELLING: Duration = Duration::from_secs(60);

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; more are closed at once, because a queue would only hide the overload.
    pub connections: usize,
    /// Bytes of a request's headers; more are answered with 431. At least 8,192, hyper's minimum.
    pub header: usize,
    /// Time from the connection to the end of the headers.
    pub header_time: Duration,
    /// Time from the connection to the end of the answer, including the client's reading.
    pub time: Duration,
}

impl Default for Limits {
    /// For one or several Prometheus servers with a scrape timeout of 10 s, and for people.
    fn default() -> Self {
        Self {
            connections: 32,
            header: 16 << 10,
            header_time: Duration::from_secs(3),
            time: Duration::from_secs(10),
        }
    }
}

/// Answers one request per connection until `shutdown`, then finishes the requests in progress. A client connects again
/// for its next request, so no connection is idle.
pub async fn serve_connections<S>(
    mut listener: impl Stream<Item = io::Result<S>> + Unpin,
    router: Router,
    limits: Limits,
    refused: &Counter,
    shutdown: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let mut told: Option<Instant> = None;
    while let Some(Some(socket)) = shutdown.run_until_cancelled(incoming::next(&mut listener)).await {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refused.inc();
            if told.is_none_or(|told| told.elapsed() > TELLING) {
                let open = limits.connections;
                tracing::warn!(open, "too many connections for metrics: closing those that come");
                told = Some(Instant::now());
            }
            continue;
        };
        let (router, shutdown) = (router.clone(), shutdown.clone());
        connections.spawn(async move {
            let _place = place;
            answer(socket, router, limits, shutdown).await;
        });
    }
    connections.close();
    connections.wait().await;
}

async fn answer<S>(socket: S, router: Router, limits: Limits, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let serving = async {
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                // The shutdown does not wait for clients without a request so far.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    match tokio::time::timeout(limits.time, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics broke off"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        sync::mpsc,
        task::JoinHandle,
    };
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 2,
        header: 8 << 10,
        header_time: Duration::from_millis(200),
        time: Duration::from_millis(800),
    };

    /// More than all buffers between the two sides hold.
    const LARGE: usize = 4 << 20;

    struct Running {
        connect: mpsc::Sender<io::Result<DuplexStream>>,
        refused: Counter,
        shutdown: CancellationToken,
        serving: JoinHandle<()>,
    }

    impl Running {
        fn start() -> Self {
            let (connect, connections) = mpsc::channel(1);
            let (refused, shutdown) = (Counter::default(), CancellationToken::new());
            let router = Router::new()
                .route("/", get(|| async { "well" }))
                .route("/large", get(|| async { "x".repeat(LARGE) }))
                .route("/never", get(std::future::pending::<()>));
            let (counter, stop) = (refused.clone(), shutdown.clone());
            let serving = tokio::spawn(async move {
                serve_connections(ReceiverStream::new(connections), router, LIMITS, &counter, &stop).await;
            });
            Self { connect, refused, shutdown, serving }
        }

        async fn connect(&self) -> DuplexStream {
            let (client, server) = tokio::io::duplex(1024);
            self.connect.send(Ok(server)).await.unwrap();
            client
        }

        /// The whole answer to this.
        async fn ask(&self, request: &[u8]) -> String {
            let mut client = self.connect().await;
            // The server may have hung up.
            let _ = client.write_all(request).await;
            rest_of(client).await
        }
    }

    async fn rest_of(mut client: DuplexStream) -> String {
        let mut answer = Vec::new();
        // A reset connection counts as ended.
        let read = tokio::time::timeout(Duration::from_secs(20), client.read_to_end(&mut answer)).await;
        let _ = read.expect("it ends");
        String::from_utf8(answer).unwrap()
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[tokio::test]
    async fn one_request_is_answered_and_the_connection_ends() {
        let running = Running::start();
        let answer = running.ask(&REQUEST.repeat(2)).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("well"), "{answer}");
        assert_eq!(answer.matches("well").count(), 1, "{answer}");
        let answer = running.ask(b"GET / HTTP/1.0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn one_too_many_is_closed_at_once_and_has_its_turn_when_the_others_are_given_up() {
        let running = Running::start();
        let silent = running.connect().await;
        let mut slow = running.connect().await;
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
        assert_eq!(running.ask(REQUEST).await, "");
        assert_eq!(running.refused.get(), 1);
        assert_eq!(rest_of(silent).await, "");
        rest_of(slow).await;
        assert!(running.ask(REQUEST).await.ends_with("well"));
        assert_eq!(running.refused.get(), 1);
    }

    #[tokio::test]
    async fn long_headers_are_refused() {
        let running = Running::start();
        let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; LIMITS.header]].concat();
        let answer = running.ask(&long).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn slow_answers_and_slow_readers_are_given_up() {
        let running = Running::start();
        assert_eq!(running.ask(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await, "");
        let mut readers = Vec::new();
        for _ in 0..LIMITS.connections {
            let mut client = running.connect().await;
            client.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            readers.push(client);
        }
        tokio::time::sleep(LIMITS.time).await;
        while !running.ask(REQUEST).await.ends_with("well") {}
        for reader in readers {
            assert!(rest_of(reader).await.len() < LARGE);
        }
    }

    #[tokio::test]
    async fn the_end_waits_for_requests_and_not_for_silence() {
        let running = Running::start();
        let _silent = running.connect().await;
        let asking = running.ask(REQUEST).await;
        running.shutdown.cancel();
        let since = Instant::now();
        running.serving.await.unwrap();
        assert!(since.elapsed() < LIMITS.header_time, "{:?}", since.elapsed());
        assert!(asking.ends_with("well"));
    }

    #[tokio::test]
    async fn an_error_to_accept_is_survived() {
        let running = Running::start();
        let error = io::Error::from_raw_os_error(24);
        running.connect.send(Err(error)).await.unwrap();
        assert!(running.ask(REQUEST).await.ends_with("well"));
    }
}
