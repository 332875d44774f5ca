//! An accepted connection, with limits on what it may cost before it has made an authorized call.
//!
//! HTTP/2 begins with a preface of 24 fixed bytes. The server closes a connection at the first wrong byte of the
//! preface, or if the preface does not arrive in time. So port scanners, browsers and silent connections hold a
//! connection slot for seconds only, and never reach the HTTP/2 implementation. A connection that speaks HTTP/2 but makes
//! no authorized call is closed within seconds too. After that it may be idle as long as it answers keepalive probes.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus::{IntCounter, IntGauge};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsStream;
use tonic::transport::server::Connected;

use crate::edge::Edge;
use crate::gate::{Peer, roles_of};
use crate::slots::Slot;

/// The first bytes that every HTTP/2 client sends.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Timeout of the preface and of a TLS handshake. Clients send both at once; the rest is slack for a slow network.
pub(crate) const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after the preface the first authorized call may take. Clients connect when they have a call to make.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A TCP, Unix or TLS stream.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Client or server side.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// The peer's address; `None` on a socket file.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().ok(),
            Socket::Unix(_) => None,
            Socket::Tls(stream) => stream.get_ref().0.peer_addr().ok(),
        }
    }

    /// The peer's address and roles.
    fn peer(&self) -> Peer {
        match self {
            Socket::Tcp(stream) => Peer { address: stream.peer_addr().ok(), ..Peer::default() },
            Socket::Unix(_) => Peer::default(),
            Socket::Tls(stream) => {
                let (stream, session) = stream.get_ref();
                let roles = roles_of(session.peer_certificates());
                Peer { address: stream.peer_addr().ok(), roles, ..Peer::default() }
            }
        }
    }
}

/// Calls a method of the underlying stream.
macro_rules! forward {
    ($socket:expr, $method:ident $(, $argument:expr)*) => {
        match $socket.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Socket::Unix(stream) => Pin::new(stream).$method($($argument),*),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, poll_write, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_shutdown, cx)
    }
}

/// Counters of connections that were closed before their first authorized call.
#[derive(Clone)]
pub(crate) struct CutOff {
    pub silent: IntCounter,
    pub not_http2: IntCounter,
    pub not_tls: IntCounter,
    pub no_call: IntCounter,
}

pub(crate) struct Connection {
    socket: Socket,
    /// Present until the first authorized call.
    opening: Option<Opening>,
    /// Set by the gate at the first authorized call.
    has_called: Arc<AtomicBool>,
    /// Resolves when the server closes all connections; `None` after that.
    dropped: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Connection slot, released on drop.
    _slot: Slot,
    open: IntGauge,
}

struct Opening {
    /// Bytes of the preface that have arrived.
    bytes_read: usize,
    deadline: Pin<Box<Sleep>>,
    cut_off: CutOff,
}

impl Connection {
    /// `dropped` becomes true when the server closes all connections.
    pub fn new(socket: Socket, slot: Slot, mut dropped: watch::Receiver<bool>, edge: &Edge) -> Self {
        edge.connections.inc();
        let deadline = Box::pin(sleep(PREFACE_TIMEOUT));
        let opening = Some(Opening { bytes_read: 0, deadline, cut_off: edge.cut_off.clone() });
        let wait = async move { drop(dropped.wait_for(|&dropped| dropped).await) };
        Self {
            socket,
            opening,
            has_called: Arc::default(),
            dropped: Some(Box::pin(wait)),
            _slot: slot,
            open: edge.connections.clone(),
        }
    }

    fn is_dropped(&mut self, cx: &mut Context<'_>) -> bool {
        if self.dropped.as_mut().is_some_and(|dropped| dropped.as_mut().poll(cx).is_ready()) {
            self.dropped = None;
        }
        self.dropped.is_none()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Opening {
    fn has_preface(&self) -> bool {
        self.bytes_read == PREFACE.len()
    }

    /// Checks that the connection has time left.
    fn check_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.deadline.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        let counter = if self.has_preface() { &self.cut_off.no_call } else { &self.cut_off.silent };
        counter.inc();
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Checks the bytes that were read. After the whole preface the time for the first call begins.
    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        let expected = &PREFACE[self.bytes_read..];
        let count = bytes.len().min(expected.len());
        if bytes[..count] != expected[..count] {
            self.cut_off.not_http2.inc();
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer does not speak HTTP/2"));
        }
        self.bytes_read += count;
        if count > 0 && self.has_preface() {
            self.deadline.as_mut().reset(Instant::now() + CALL_TIMEOUT);
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_dropped(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if this.opening.is_some() && this.has_called.load(Ordering::Relaxed) {
            this.opening = None;
        }
        let Some(opening) = &mut this.opening else {
            return Pin::new(&mut this.socket).poll_read(cx, buf);
        };
        opening.check_deadline(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        opening.check(&buf.filled()[before..])?;
        // The deadline of the first call must wake this task even if nothing more arrives.
        opening.check_deadline(cx)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// Gives the gate the peer's address and roles.
impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer { has_called: self.has_called.clone(), ..self.socket.peer() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;
    use prometheus::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A connection, its peer, its counters, and the sender that closes it.
    async fn connected() -> (Connection, UnixStream, Edge, watch::Sender<bool>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let edge = Edge::register(&Registry::new()).unwrap();
        let slot = Slots::new(1).take(None).unwrap();
        let (drop_all, dropped) = watch::channel(false);
        (Connection::new(Socket::Unix(ours), slot, dropped, &edge), theirs, edge, drop_all)
    }

    async fn read_all(connection: &mut Connection, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        connection.read_exact(&mut bytes).await.map(|_| bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_nothing_or_half_a_preface_is_closed() {
        for start in [&b""[..], b"PRI * HTTP"] {
            let (mut connection, mut peer, edge, _keep) = connected().await;
            peer.write_all(start).await.unwrap();
            let error = read_all(&mut connection, PREFACE.len()).await.unwrap_err();
            assert_eq!((error.kind(), edge.cut_off.silent.get()), (io::ErrorKind::TimedOut, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_preface_in_parts_passes_and_is_checked_once() {
        let (mut connection, mut peer, edge, _keep) = connected().await;
        for part in [&PREFACE[..3], &PREFACE[3..20], &PREFACE[20..]] {
            peer.write_all(part).await.unwrap();
            assert_eq!(read_all(&mut connection, part.len()).await.unwrap(), part);
        }
        // As the gate does at the first authorized call.
        connection.connect_info().has_called.store(true, Ordering::Relaxed);
        sleep(PREFACE_TIMEOUT * 10).await;
        peer.write_all(b"anything").await.unwrap();
        assert_eq!(read_all(&mut connection, 8).await.unwrap(), b"anything");
        let closed = edge.cut_off.silent.get() + edge.cut_off.not_http2.get() + edge.cut_off.no_call.get();
        assert_eq!(closed, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_authorized_call_is_closed_within_seconds() {
        let (mut connection, mut peer, edge, _keep) = connected().await;
        peer.write_all(PREFACE).await.unwrap();
        read_all(&mut connection, PREFACE.len()).await.unwrap();
        // Settings, pings and refused calls do not count, however many.
        let begin = Instant::now();
        let error = loop {
            peer.write_all(b"ping").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            if let Err(error) = read_all(&mut connection, 4).await {
                break error;
            }
        };
        assert_eq!((error.kind(), edge.cut_off.no_call.get()), (io::ErrorKind::TimedOut, 1));
        assert!(begin.elapsed() <= CALL_TIMEOUT + Duration::from_secs(1));
        // Neither does silence.
        let (mut connection, mut peer, edge, _keep) = connected().await;
        peer.write_all(PREFACE).await.unwrap();
        read_all(&mut connection, PREFACE.len()).await.unwrap();
        let error = read_all(&mut connection, 1).await.unwrap_err();
        assert_eq!((error.kind(), edge.cut_off.no_call.get()), (io::ErrorKind::TimedOut, 1));
    }

    #[tokio::test]
    async fn the_first_wrong_byte_closes_the_connection() {
        let (mut connection, mut peer, edge, _keep) = connected().await;
        peer.write_all(b"PRI * HTTP/1").await.unwrap();
        let error = read_all(&mut connection, 12).await.unwrap_err();
        assert_eq!((error.kind(), edge.cut_off.not_http2.get()), (io::ErrorKind::InvalidData, 1));
    }

    #[tokio::test]
    async fn a_dropped_connection_ends_and_is_no_longer_counted() {
        let (mut connection, _peer, edge, drop_all) = connected().await;
        drop_all.send_replace(true);
        for _ in 0..2 {
            let error = read_all(&mut connection, 1).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
        assert_eq!(edge.connections.get(), 1);
        drop(connection);
        assert_eq!(edge.connections.get(), 0);
    }
}
