//! The way to a server.
//!
//! A channel is lazy: it connects with the first call, and again with the first call after the connection broke. So a
//! server may come later than its clients, go, and come back, also at another address behind the same name. How often
//! to try again is the caller's decision ([`Backoff`](crate::backoff::Backoff)).
//!
//! With credentials every connection but those through socket files is TLS. What is asked of the server's certificate is
//! its role: addresses change with every container, and whoever holds a certificate of the cluster's own authority for
//! that role is the one that is meant.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{self, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use crate::address::Address;
use crate::connection::Socket;
use crate::role::Role;
use crate::secrets::{Secrets, SecretsError};
use crate::shard::describe;

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

/// How it begins when there is no connection at all.
const CANNOT_CONNECT: &str = "cannot connect to";

/// A way to a server, on which every request shows the token, if there is one. Cheap to clone; clones share one
/// connection.
pub type Channel = InterceptedService<transport::Channel, Token>;

/// What a process shows to those it calls, and whom it believes. Cheap to clone.
#[derive(Clone, Default)]
pub struct Credentials(Option<Arc<Shown>>);

struct Shown {
    tls: TlsConnector,
    token: Token,
}

/// Without what must not be seen.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credentials(tls)" } else { "Credentials(none)" })
    }
}

/// A token in the form in which it travels.
#[derive(Clone, Debug, Default)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Credentials {
    /// Nothing: connections are plain.
    pub fn none() -> Self {
        Self::default()
    }

    /// What a folder of secrets holds, or nothing without one.
    pub fn load(folder: Option<&Path>) -> Result<Self, SecretsError> {
        let Some(folder) = folder else { return Ok(Self::none()) };
        let secrets = Secrets::new(folder);
        // A server has said it already.
        if !secrets.is_a_servers() {
            secrets.warn_if_they_expire();
        }
        let token = secrets.token()?.map(|token| {
            let mut value: MetadataValue<Ascii> =
                format!("Bearer {token}").parse().expect("a token is visible characters");
            // So that it is not written out where requests are.
            value.set_sensitive(true);
            value
        });
        let tls = TlsConnector::from(Arc::new(secrets.client()?));
        Ok(Self(Some(Arc::new(Shown { tls, token: Token(token) }))))
    }

    /// Why a call failed, in a few words for people, with what they may have forgotten.
    pub fn describe(&self, address: &Address, status: &Status) -> String {
        let mut text = describe(status);
        // A plain connection to a server that asks for TLS comes about, and then breaks in one way or another.
        let broke = status.source().is_some() && !text.starts_with(CANNOT_CONNECT);
        if broke && self.0.is_none() && address.authority().is_some() {
            text.push_str(" (if it asks for TLS: give --secrets)");
        } else if text.contains("fatal alert") {
            text.push_str(
                " (it does not accept our certificate: has it expired, or is it of another 'quiver certs'?)",
            );
        }
        text
    }

    /// A channel to a server of this role, not connected yet. Must be called inside a runtime.
    pub fn channel(&self, server: Role, address: &Address) -> Channel {
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
        let shown = self.0.clone().filter(|_| address.authority().is_some());
        let token = shown.as_ref().map(|shown| shown.token.clone()).unwrap_or_default();
        let address = address.clone();
        let connector = service_fn(move |_| connect(address.clone(), shown.clone(), server));
        InterceptedService::new(endpoint.connect_with_connector_lazy(connector), token)
    }
}

/// A plain channel, as to a process on this machine.
pub fn channel(address: &Address) -> Channel {
    // Nobody is asked for a role on a plain connection.
    Credentials::none().channel(Role::Replay, address)
}

async fn connect(address: Address, shown: Option<Arc<Shown>>, server: Role) -> io::Result<TokioIo<Socket>> {
    let connected = match &address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        Address::Tcp(authority) => match TcpStream::connect(authority).await {
            // A small message must not wait for the acknowledgement of the one before.
            Ok(stream) => stream.set_nodelay(true).map(|()| Socket::Tcp(stream)),
            Err(error) => Err(error),
        },
    };
    let connected = match (connected, shown) {
        (Ok(Socket::Tcp(stream)), Some(shown)) => secure(stream, &shown.tls, server).await,
        (connected, _) => connected,
    };
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{CANNOT_CONNECT} {address}: {error}"));
    Ok(TokioIo::new(connected.map_err(named)?))
}

async fn secure(stream: TcpStream, tls: &TlsConnector, server: Role) -> io::Result<Socket> {
    let name = ServerName::try_from(server.dns_name()).expect("a role is a name");
    let secured = tls.connect(name, stream).await;
    secured.map(|stream| Socket::Tls(Box::new(stream.into()))).map_err(|error| explained(&error, server))
}

/// What to do about a handshake that failed.
fn explained(error: &io::Error, server: Role) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let hint = match inner {
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS: start it with --secrets".to_owned(),
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForNameContext {
            ..
        })) => {
            format!("this is no {server}: is the address right?")
        }
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. })) => {
            "its certificate has expired: run 'quiver certs' again and start it anew".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            "its certificate is not of our authority: are both --secrets of one 'quiver certs'?".to_owned()
        }
        // A server that speaks no TLS hangs up.
        _ => "the connection broke before it was secure: is it started with --secrets?".to_owned(),
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}
