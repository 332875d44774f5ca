//! Client channels to servers.
//!
//! A channel is lazy: it connects on the first call, and reconnects on the first call after the connection broke. So a
//! server may start after its clients, stop, and return, also at another address behind the same host name. The caller
//! decides how often to retry ([`Backoff`](crate::backoff::Backoff)).
//!
//! With credentials every connection except those through socket files uses TLS. The client verifies the role in the
//! server's certificate, not its address: addresses change with every container, and any server with a certificate for
//! that role from the cluster's own authority is the right one.

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

/// Timeout for opening a connection. A server on the same network answers in milliseconds; if it is gone, the client
/// should retry soon, because its name may resolve to another address by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Keepalive probe interval of an idle connection. Only a probe detects that a peer lost power, because such a peer
/// does not close its connections.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the client waits for the answer to a probe. A busy peer answers late, so it is not shorter than the
/// interval.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes in flight per stream. A batch of 32 is about half a megabyte compressed, and several are prefetched.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same for streams of the learner, of which only the weights are large. What is in flight delays the answers and
/// keepalive probes behind it: with this much, by 2 s on a link of 1 Mbit/s, less than any of their timeouts. With a round trip
/// of 50 ms it still allows 5 MB/s.
const LEARNER_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Bytes in flight per connection: enough for sampling, weights and all other calls at the same time.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Maximum HTTP/2 frame size. The default of 16 KiB would split a batch into a hundred frames.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Prefix of the error text if no connection could be opened.
const CANNOT_CONNECT: &str = "cannot connect to";

/// A channel that adds the token, if any, to every request. Cheap to clone; clones share one connection.
pub type Channel = InterceptedService<transport::Channel, Token>;

/// A client's credentials and the authority that it trusts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Credentials(Option<Arc<TlsCredentials>>);

struct TlsCredentials {
    tls: TlsConnector,
    token: Token,
}

/// Omits the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credentials(tls)" } else { "Credentials(none)" })
    }
}

/// A token as the value of the `authorization` header.
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
    /// No credentials: connections are plaintext.
    pub fn none() -> Self {
        Self::default()
    }

    /// Loads the credentials in a secrets folder. Without a folder, connections are plaintext.
    pub fn load(folder: Option<&Path>) -> Result<Self, SecretsError> {
        let Some(folder) = folder else { return Ok(Self::none()) };
        let secrets = Secrets::new(folder);
        // A server's gate has already logged the warning.
        if !secrets.is_a_servers() {
            secrets.warn_if_they_expire();
        }
        let token = secrets.token()?.map(|token| {
            let mut value: MetadataValue<Ascii> =
                format!("Bearer {token}").parse().expect("a token is visible characters");
            // Debug output of requests omits sensitive values.
            value.set_sensitive(true);
            value
        });
        let tls = TlsConnector::from(Arc::new(secrets.client()?));
        Ok(Self(Some(Arc::new(TlsCredentials { tls, token: Token(token) }))))
    }

    /// A short message for people that says why a call failed, with a hint about a likely configuration error.
    pub fn describe(&self, address: &Address, status: &Status) -> String {
        let mut text = describe(status);
        // A plaintext connection to a TLS server opens and then breaks in one of several ways.
        let broke = status.source().is_some() && !text.starts_with(CANNOT_CONNECT);
        if broke && self.0.is_none() && address.authority().is_some() {
            text.push_str(" (if the server requires TLS, add --secrets)");
        } else if text.contains("fatal alert") {
            text.push_str(
                " (the server rejected our certificate: it has expired, or another 'quiver certs' run created it)",
            );
        }
        text
    }

    /// Like [`describe`](Self::describe), and names the address once.
    pub fn describe_at(&self, address: &Address, status: &Status) -> String {
        let text = self.describe(address, status);
        if text.starts_with(CANNOT_CONNECT) { text } else { format!("{address}: {text}") }
    }

    /// A channel to a server with this role, not connected yet. Must be called inside a runtime.
    pub fn channel(&self, server: Role, address: &Address) -> Channel {
        let stream_window = match server {
            Role::Learner => LEARNER_STREAM_WINDOW_BYTES,
            _ => STREAM_WINDOW_BYTES,
        };
        let authority = match address {
            Address::Unix(_) => "unix",
            Address::Tcp(authority) => authority,
        };
        // If the authority is invalid, connecting fails too, and with a better error than this one.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://unknown"))
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX);
        let credentials = self.0.clone().filter(|_| address.authority().is_some());
        let token = credentials.as_ref().map(|credentials| credentials.token.clone()).unwrap_or_default();
        let address = address.clone();
        let connector = service_fn(move |_| connect(address.clone(), credentials.clone(), server));
        InterceptedService::new(endpoint.connect_with_connector_lazy(connector), token)
    }
}

/// A plaintext channel, for processes on this machine.
pub fn channel(address: &Address) -> Channel {
    // The role is not checked on a plaintext connection, so any role does.
    Credentials::none().channel(Role::Replay, address)
}

async fn connect(
    address: Address,
    credentials: Option<Arc<TlsCredentials>>,
    server: Role,
) -> io::Result<TokioIo<Socket>> {
    let connected = match &address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        Address::Tcp(authority) => match TcpStream::connect(authority).await {
            // Without TCP_NODELAY a small message would wait for the acknowledgement of the previous one.
            Ok(stream) => stream.set_nodelay(true).map(|()| Socket::Tcp(stream)),
            Err(error) => Err(error),
        },
    };
    let connected = match (connected, credentials) {
        (Ok(Socket::Tcp(stream)), Some(credentials)) => secure(stream, &credentials.tls, server).await,
        (connected, _) => connected,
    };
    let named = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                "; check the address, and that the process runs"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{CANNOT_CONNECT} {address}: {error}{remedy}"))
    };
    Ok(TokioIo::new(connected.map_err(named)?))
}

async fn secure(stream: TcpStream, tls: &TlsConnector, server: Role) -> io::Result<Socket> {
    let name = ServerName::try_from(server.dns_name()).expect("a role is a valid DNS name");
    let secured = tls.connect(name, stream).await;
    secured.map(|stream| Socket::Tls(Box::new(stream.into()))).map_err(|error| explained(&error, server))
}

/// Adds a hint to the error of a failed TLS handshake.
fn explained(error: &io::Error, server: Role) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let hint = match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server does not use TLS: start it with --secrets".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForNameContext {
            ..
        })) => {
            format!("this server does not have the role {server}: check the address")
        }
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. })) => {
            "the server's certificate has expired: run 'quiver certs' again and restart the server".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            "another authority signed the server's certificate: use --secrets of the same 'quiver certs' on both sides"
                .to_owned()
        }
        // A plaintext server closes the connection when it receives a TLS handshake.
        _ => "the connection closed during the TLS handshake: check that the server runs with --secrets".to_owned(),
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}
