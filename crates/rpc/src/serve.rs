//! What every server has: a listener with limits, gRPC health and reflection, and an orderly end.
//!
//! Each limit is a named number here. What a server offers beyond them is the caller's business.

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
use crate::accept::{CONNECTIONS_MAX, Sockets, accept};
use crate::address::Address;
use crate::edge::Edge;
use crate::gate::Gate;

/// Requests of one connection at once. A client uses a few; more of them wait in the client.
const STREAMS_MAX: u32 = 64;
/// Bytes of one stream that may lie unread: most chunks are smaller, so one is on its way while one is stored.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of one connection that may lie unread, whatever its streams do.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of all headers of a request. Ours have a few hundred, with a token.
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// Bytes of a question about health or reflection: a name.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// How often a quiet connection is probed. A client that lost its power holds its place no longer than this and the
/// next one together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a probe may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take to end once the server was asked to stop. Our streams end at once when told,
/// so this is for whoever does not listen; Ctrl-C should take seconds.
const GRACE: Duration = Duration::from_secs(3);

/// A bound address at which nobody is answered yet.
pub struct Listener {
    sockets: Sockets,
    address: Address,
    edge: Edge,
    gate: Gate,
}

impl Listener {
    /// Binds. A socket file that nobody listens to any more is replaced; one that is in use is an error. Through a socket
    /// file everyone comes in who may open it, whatever the gate says.
    pub async fn bind(address: &Address, edge: Edge, gate: Gate) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address: address.clone(), source };
        let sockets = Sockets::bind(address).await.map_err(failed)?;
        let address = sockets.address().map_err(failed)?;
        let gate = if matches!(address, Address::Unix(_)) { Gate::open() } else { gate };
        Ok(Self { sockets, address, edge, gate })
    }

    /// The address as it is, with the real port if it was bound with port 0.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves these routes, gRPC health and reflection, until `shutdown` resolves; then takes no more connections, lets
    /// requests end within a grace of 3 seconds, and drops the rest.
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
        if self.gate.tls().is_some() {
            info!("only TLS is spoken, and each call needs its role");
        }
        if self.gate.tls().is_none() && !self.address.is_local() {
            warn!(address = %self.address, "everyone who reaches this address may do everything here");
        }
        info!(address = %self.address, "serving");
        {
            let accepting = accept(&self.sockets, CONNECTIONS_MAX, &self.edge, &self.gate, accepted, dropped);
            tokio::select! {
                () = shutdown => {}
                () = accepting => {}
                // Without an error it ends only when told to.
                ended = &mut serving => ended.map_err(|error| self.failed(error))?,
            }
        }
        health.set_service_status("", ServingStatus::NotServing).await;
        // The address is free at once, so that a successor can have it.
        drop(self.sockets);
        stop.send_replace(true);
        match timeout(GRACE, serving).await {
            Ok(_) => info!(address = %self.address, "stopped, all requests ended"),
            Err(_) => {
                let connections = self.edge.connections.get();
                warn!(address = %self.address, connections, "stopped, connections were cut off after {GRACE:?}");
            }
        }
        drop_all.send_replace(true);
        Ok(())
    }

    fn failed(&self, error: tonic::transport::Error) -> ServeError {
        ServeError { address: self.address.clone(), source: io::Error::other(error) }
    }
}

/// Bytes that may come in one piece. The default, 16 KiB, would cut a chunk into many.
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

/// An address at which one can't serve.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve at {address}: {source}")]
pub struct ServeError {
    address: Address,
    source: io::Error,
}
