//! A listener for HTTP whose connections are bounded in number, time and bytes.
//!
//! `/metrics` answers everyone who reaches it, so no caller may hold what another needs. A request must be complete, and
//! its answer read, in time. When too many connections are open, the oldest gives way to a new one, those without a whole
//! request first: Prometheus still scrapes while hundreds of half requests are open.
#![allow(clippy::disallowed_methods, reason = "a connection owns its deadlines")]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

/// Open connections: a few Prometheus servers, probes and browsers, and as many again.
const CONNECTIONS_MAX: usize = 64;
/// How long a request may take from its first byte, or from the connection's begin, to the begin of its answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);
/// How long the answer and the pause after it may take until the next request: longer than the usual pause between two
/// scrapes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(75);
/// Bytes of a request, body included. Browsers send one or two thousand.
const REQUEST_BYTES_MAX: usize = 32 << 10;
/// Pause after an error such as "too many open files", so that open connections can close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Values of the metric label `reason`.
const REASONS: [&str; 3] = ["limit", "late", "large"];

/// A connection in the list of open ones.
#[derive(Debug)]
struct Slot {
    number: u64,
    /// When the current request or answer began, as a count of such events.
    since: u64,
    is_answered: bool,
    /// Dropped to close the connection.
    _close: oneshot::Sender<()>,
}

/// The open connections.
#[derive(Debug, Default)]
struct Open {
    slots: Vec<Slot>,
    events: u64,
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn add(&mut self, close: oneshot::Sender<()>) -> u64 {
        let number = self.tick();
        self.slots.push(Slot { number, since: number, is_answered: false, _close: close });
        number
    }

    fn set_answered(&mut self, number: u64, is_answered: bool) {
        let since = self.tick();
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == number) {
            (slot.since, slot.is_answered) = (since, is_answered);
        }
    }

    fn remove(&mut self, number: u64) {
        self.slots.retain(|slot| slot.number != number);
    }

    /// Closes the connection that has been without a whole request for the longest time, or the oldest answered one.
    fn close_oldest(&mut self) {
        let oldest =
            self.slots.iter().min_by_key(|slot| (slot.is_answered, slot.since)).map(|slot| slot.number);
        oldest.into_iter().for_each(|number| self.remove(number));
    }
}

/// Accepts bounded connections.
pub struct BoundedListener {
    listener: TcpListener,
    open: Arc<Mutex<Open>>,
    closed: IntCounterVec,
}

impl BoundedListener {
    /// Registers its metric in the process's registry.
    pub fn new(listener: TcpListener, registry: &Registry) -> prometheus::Result<Self> {
        let closed = Opts::new(
            "quiver_http_connections_closed_total",
            "Connections to the metrics listener that it closed, by reason",
        );
        let closed = IntCounterVec::new(closed, &["reason"])?;
        registry.register(Box::new(closed.clone()))?;
        REASONS.iter().for_each(|reason| drop(closed.with_label_values(&[reason])));
        Ok(Self { listener, open: Arc::default(), closed })
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let (close, closed) = oneshot::channel();
                    let mut open = lock(&self.open);
                    if open.slots.len() >= CONNECTIONS_MAX {
                        self.closed.with_label_values(&["limit"]).inc();
                        open.close_oldest();
                    }
                    let number = open.add(close);
                    let stream = BoundedStream {
                        stream,
                        number,
                        open: self.open.clone(),
                        closed,
                        deadline: Box::pin(sleep(REQUEST_TIME_MAX)),
                        phase: Phase::Begun,
                        counters: self.closed.clone(),
                    };
                    return (stream, peer);
                }
                Err(error) => {
                    warn!(%error, "metrics connection not accepted, retrying");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing received yet.
    Begun,
    /// So many bytes of a request.
    Receiving(usize),
    /// An answer has begun, and nothing was received since.
    Answered,
}

/// A connection. Reading and writing fail when it is closed for one of the reasons.
pub struct BoundedStream {
    stream: TcpStream,
    number: u64,
    open: Arc<Mutex<Open>>,
    closed: oneshot::Receiver<()>,
    deadline: Pin<Box<Sleep>>,
    phase: Phase,
    counters: IntCounterVec,
}

impl BoundedStream {
    /// Whether the connection must be closed. Wakes the task when it becomes so.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if Pin::new(&mut self.closed).poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many connections"));
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            self.counters.with_label_values(&["late"]).inc();
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase, time: Duration) {
        self.phase = phase;
        self.deadline.as_mut().reset(Instant::now() + time);
        lock(&self.open).set_answered(self.number, phase == Phase::Answered);
    }

    fn received(&mut self, bytes: usize) -> io::Result<()> {
        match &mut self.phase {
            Phase::Receiving(before) => *before += bytes,
            Phase::Begun => self.phase = Phase::Receiving(bytes),
            Phase::Answered => self.enter(Phase::Receiving(bytes), REQUEST_TIME_MAX),
        }
        if matches!(self.phase, Phase::Receiving(bytes) if bytes > REQUEST_BYTES_MAX) {
            self.counters.with_label_values(&["large"]).inc();
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too large"));
        }
        Ok(())
    }
}

impl Drop for BoundedStream {
    fn drop(&mut self) {
        lock(&self.open).remove(self.number);
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let bytes = buffer.filled().len() - before;
        Poll::Ready(if bytes == 0 { Ok(()) } else { self.received(bytes) })
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        if self.phase != Phase::Answered {
            self.enter(Phase::Answered, ANSWER_TIME_MAX);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_without_a_whole_request_gives_way() {
        let mut open = Open::default();
        let numbers: Vec<u64> = (0..4).map(|_| open.add(oneshot::channel().0)).collect();
        open.set_answered(numbers[0], true);
        open.set_answered(numbers[3], true);
        open.set_answered(numbers[3], false);
        let mut order = Vec::new();
        while !open.slots.is_empty() {
            let before: Vec<u64> = open.slots.iter().map(|slot| slot.number).collect();
            open.close_oldest();
            let is_open = |number: &u64| open.slots.iter().any(|slot| slot.number == *number);
            order.extend(before.into_iter().filter(|number| !is_open(number)));
        }
        assert_eq!(order, [numbers[1], numbers[2], numbers[3], numbers[0]]);
    }
}
