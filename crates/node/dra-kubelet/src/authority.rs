//! Makes the kubelet's `:authority` acceptable to Rust's HTTP/2.
//!
//! When grpc-go dials a bare path, the path is sent percent-encoded as `:authority` (`%2Fvar%2Flib%2Fkubelet%2F…`).
//! Such a value is not a valid authority, so the `h2` crate resets every such stream with PROTOCOL_ERROR ahead of any
//! service. The kubelet does so on the registration socket (1.36.3), and up to 1.35 on the DRA socket as well.
//!
//! [`AuthorityAdapter`] sits between the socket and HTTP/2 and replaces invalid characters in the value by harmless
//! ones coded in as many bits. So no length changes: not of a field, not of a frame, and not of an entry of HPACK's
//! dynamic table, which therefore stays in step with the client's.

mod frames;
mod header_block;
mod host_name;
mod huffman;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use frames::Frames;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tonic::transport::server::Connected;

/// Time limit for a client's complete connection preface. Without a limit, a silent client would hold its connection
/// for ever: HTTP/2's own keep-alive starts after the preface.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes per read from the socket.
const CHUNK: usize = 4096;

/// An accepted connection whose requests carry a valid `:authority`.
#[derive(Debug)]
pub struct AuthorityAdapter<S, G = ()> {
    socket: S,
    frames: Frames,
    /// Time limit for the preface; `None` once complete.
    deadline: Option<Pin<Box<Sleep>>>,
    _guard: G,
}

impl<S, G> AuthorityAdapter<S, G> {
    /// Wraps a connection before any read; `guard` is dropped with it. Must be called within a tokio runtime.
    pub fn new(socket: S, guard: G) -> Self {
        Self::with_preface_timeout(socket, guard, PREFACE_TIMEOUT)
    }

    fn with_preface_timeout(socket: S, guard: G, timeout: Duration) -> Self {
        let deadline = Some(Box::pin(tokio::time::sleep(timeout)));
        Self { socket, frames: Frames::default(), deadline, _guard: guard }
    }
}

impl<S: AsyncRead + Unpin, G: Unpin> AsyncRead for AuthorityAdapter<S, G> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.frames.take(buf) {
                return Poll::Ready(Ok(()));
            }
            if this.frames.preface_complete() {
                this.deadline = None;
            } else if let Some(deadline) = &mut this.deadline
                && deadline.as_mut().poll(cx).is_ready()
            {
                let message = "the client sent no HTTP/2 preface in time";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.frames.push(chunk.filled()).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

impl<S: AsyncWrite + Unpin, G: Unpin> AsyncWrite for AuthorityAdapter<S, G> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl<S: Connected, G> Connected for AuthorityAdapter<S, G> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.socket.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_client_that_says_nothing_is_dropped() {
        let (_client, server) = tokio::io::duplex(64);
        let error = AuthorityAdapter::with_preface_timeout(server, (), SOON).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_deadline_ends_with_the_preface() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = AuthorityAdapter::with_preface_timeout(server, (), SOON);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut preface = [0; 24];
        server.read_exact(&mut preface).await.unwrap();
        let silence = tokio::time::timeout(4 * SOON, server.read_u8()).await;
        assert!(silence.is_err(), "still waiting, not an error");
    }

    #[tokio::test]
    async fn what_is_not_http2_ends_the_connection() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let error = AuthorityAdapter::new(server, ()).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
