//! The way to a server.
//!
//! A channel is lazy: it connects with the first call, and again with the first call after the connection broke. So a
//! server may come later than its clients, go, and come back, also at another address behind the same name. How often
//! to try again is the caller's decision ([`Backoff`](crate::backoff::Backoff)).

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::address::Address;
use crate::connection::Socket;

/// How long a connection may take to come about. A server on the same network answers in milliseconds; one that is
/// gone should be tried again soon, elsewhere if its name has moved.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a quiet connection is probed. A peer that lost its power says no goodbye; nobody else would notice.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a probe may take. A busy peer answers late, so not less than the interval.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one stream on their way: a batch of 32 is about half a megabyte packed, and several are prefetched.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of all streams of a connection on their way: room for sampling, weights and the rest side by side.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Bytes that may come in one piece. The default, 16 KiB, would cut a batch into a hundred.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// A channel to a server, not connected yet. Cheap to clone; clones share one connection.
///
/// Must be called inside a runtime.
pub fn channel(address: &Address) -> Channel {
    let authority = match address {
        Address::Unix(_) => "unix",
        Address::Tcp(authority) => authority,
    };
    // What is no authority can't be connected to either, and that error tells more than this one.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .unwrap_or_else(|_| Endpoint::from_static("http://unknown"))
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX);
    let address = address.clone();
    endpoint.connect_with_connector_lazy(service_fn(move |_| connect(address.clone())))
}

async fn connect(address: Address) -> io::Result<TokioIo<Socket>> {
    let connected = match &address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        Address::Tcp(authority) => match TcpStream::connect(authority).await {
            // A small message must not wait for the acknowledgement of the one before.
            Ok(stream) => stream.set_nodelay(true).map(|()| Socket::Tcp(stream)),
            Err(error) => Err(error),
        },
    };
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot connect to {address}: {error}"));
    Ok(TokioIo::new(connected.map_err(named)?))
}
