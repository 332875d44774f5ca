//! The part that every server shares: a listener with limits, gRPC health and reflection, and graceful shutdown.
//!
//! Each limit is a named constant here. The caller supplies the server's own routes.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tower::layer::util::{Identity, Stack};
use tracing::{info, warn};

pub use crate::accept::raise_file_limit;
use crate::accept::{Sockets, accept, connections_max};
use crate::address::Address;
use crate::edge::Edge;
use crate::gate::Gate;

/// Concurrent requests per connection. A client uses a few; further requests queue in the client.
const STREAMS_MAX: u32 = 64;
/// Unread bytes per stream. Most chunks are smaller, so one chunk travels while the server stores another.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Unread bytes per connection, over all its streams.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Total header bytes per request. Our clients send a few hundred, token included.
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// Maximum size of a health or reflection request, which carries only a name.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// Keepalive probe interval of an idle connection. A client that lost power holds its connection slot at most for this
/// interval plus `KEEPALIVE_TIMEOUT`.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the server waits for the answer to a probe.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Grace period for requests in flight after a shutdown request. Our own streams end at once, so the grace period only
/// matters for clients that ignore the shutdown. It is short because Ctrl-C should take seconds.
const GRACE: Duration = Duration::from_secs(3);

/// A bound address that does not serve yet.
pub struct Listener {
    sockets: Sockets,
    address: Address,
    edge: Edge,
    gate: Gate,
}

impl Listener {
    /// Binds to an address. A stale socket file is replaced; one that is in use is an error. On a socket file the file
    /// mode controls access, so `gate` is ignored there.
    pub async fn bind(address: &Address, edge: Edge, gate: Gate) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: address.clone(), source };
        let sockets = Sockets::bind(address).await.map_err(failed)?;
        let address = sockets.address().map_err(failed)?;
        let gate = if matches!(address, Address::Unix(_)) { Gate::open() } else { gate };
        Ok(Self { sockets, address, edge, gate })
    }

    /// The bound address, with the real port if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves these routes, gRPC health and reflection until `shutdown` resolves. Then it stops accepting connections,
    /// gives requests in flight a grace period of 3 seconds, and closes the remaining connections.
    pub async fn serve(self, routes: Routes, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection_service = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("our own descriptors are sound");
        let routes = routes
            .add_service(health_service.max_decoding_message_size(SMALL_BYTES_MAX))
            .add_service(reflection_service.max_decoding_message_size(SMALL_BYTES_MAX));

        let (stop, mut stopped) = watch::channel(false);
        let (drop_all, dropped) = watch::channel(false);
        let (accepted, connections) = tokio::sync::mpsc::channel(1);
        let serving = server(&self.edge, &self.gate).add_routes(routes).serve_with_incoming_shutdown(
            ReceiverStream::new(connections).map(Ok::<_, io::Error>),
            async move { drop(stopped.wait_for(|&stopped| stopped).await) },
        );
        let mut serving = std::pin::pin!(serving);
        let tls = self.gate.tls().is_some();
        if !tls && !self.address.is_local() {
            warn!(
                address = %self.address,
                "unauthenticated plaintext on a non-loopback address: everyone who can reach it has full access; use \
                 --secrets to restrict it"
            );
        }
        info!(tls, address = %self.address, "server listening");
        {
            let accepting =
                accept(&self.sockets, connections_max(), &self.edge, &self.gate, accepted, dropped);
            tokio::select! {
                () = shutdown => {}
                () = accepting => {}
                // It returns without an error only after a shutdown request.
                ended = &mut serving => ended.map_err(|error| self.failed(error))?,
            }
        }
        health.set_service_status("", ServingStatus::NotServing).await;
        // Free the address at once, so that a successor process can bind it during the grace period.
        drop(self.sockets);
        stop.send_replace(true);
        match timeout(GRACE, serving).await {
            Ok(_) => info!(address = %self.address, "server stopped, all requests completed"),
            Err(_) => {
                let connections_closed = self.edge.connections.get();
                let grace_seconds = GRACE.as_secs();
                warn!(
                    address = %self.address,
                    connections_closed,
                    grace_seconds,
                    "server stopped, open connections closed after the grace period"
                );
            }
        }
        drop_all.send_replace(true);
        Ok(())
    }

    fn failed(&self, error: tonic::transport::Error) -> ServeError {
        ServeError { address: self.address.clone(), source: io::Error::other(error) }
    }
}

/// Maximum HTTP/2 frame size. The default of 16 KiB would split a chunk into many frames.
const FRAME_BYTES_MAX: u32 = 256 << 10;

fn server(edge: &Edge, gate: &Gate) -> Server<Stack<Edge, Stack<Gate, Identity>>> {
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(gate.clone())
        .layer(edge.clone())
}

/// The server cannot bind or serve at this address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve at {address}: {source}; choose another --listen, or stop the process that uses it")]
pub struct ServeError {
    address: Address,
    source: io::Error,
}
