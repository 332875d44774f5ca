//! Authentication and authorization of callers.
//!
//! A server with secrets accepts only TLS. Every request must carry a token, or arrive on a connection with a client
//! certificate. Either maps to roles, and roles to permitted calls ([`Roles::may_call`]). Without secrets every caller
//! has full access; that mode is for Unix sockets (the file mode controls access), loopback addresses, and
//! `--insecure`.
//!
//! Every refusal is counted, but only the first of its kind per IP address is logged, so a thousand wrong tokens from
//! one address give one log line.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use prometheus::IntCounterVec;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tonic::Status;
use tonic::codegen::{Service, http};
use tower::Layer;
use tracing::warn;

use crate::edge::Edge;
use crate::role::{Role, Roles, allowed_roles};
use crate::secrets::{Secrets, SecretsError, Tokens};

/// Maximum number of (IP address, reason) pairs that are logged. Further refusals are only counted.
const LOGGED_MAX: usize = 1024;
/// Authorization scheme of a token, compared without regard to case.
const SCHEME: &[u8] = b"Bearer ";
/// Maximum characters of a refused request's path in the log.
const PATH_LOGGED_MAX: usize = 80;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The peer's address; `None` on a socket file.
    pub address: Option<SocketAddr>,
    /// Roles in the peer's certificate; empty without a certificate.
    pub roles: Roles,
    /// Set by the first authorized call.
    pub(crate) has_called: Arc<AtomicBool>,
}

/// Authenticates connections and requests of a server.
#[derive(Clone)]
pub struct Gate(Option<Arc<Authenticator>>);

struct Authenticator {
    tls: TlsAcceptor,
    tokens: Tokens,
    refused: IntCounterVec,
    logged: Mutex<HashSet<(Option<IpAddr>, &'static str)>>,
}

impl Gate {
    /// A gate that allows every caller every call.
    pub fn open() -> Self {
        Self(None)
    }

    /// A gate that enforces the roles in a secrets folder. Without a folder it is open.
    pub fn load(folder: Option<&Path>, edge: &Edge) -> Result<Self, SecretsError> {
        let Some(folder) = folder else { return Ok(Self::open()) };
        let secrets = Secrets::new(folder);
        secrets.warn_if_they_expire();
        let tls = TlsAcceptor::from(Arc::new(secrets.server()?));
        let (tokens, refused) = (secrets.tokens()?, edge.requests_refused.clone());
        Ok(Self(Some(Arc::new(Authenticator { tls, tokens, refused, logged: Mutex::default() }))))
    }

    /// The TLS acceptor, if the server requires TLS.
    pub(crate) fn tls(&self) -> Option<&TlsAcceptor> {
        self.0.as_deref().map(|authenticator| &authenticator.tls)
    }

    /// Logs a failed handshake if it is the first of its kind from this IP address.
    pub(crate) fn log_handshake(&self, address: Option<SocketAddr>, error: &std::io::Error) {
        let Some(authenticator) = &self.0 else { return };
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (reason, hint) = match inner {
            Some(rustls::Error::InvalidMessage(_)) => {
                ("plain", "the client does not use TLS: start it with --secrets")
            }
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. })) => (
                "expired",
                "the client's certificate has expired: run 'quiver certs' again and restart the client",
            ),
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired)) => (
                "own-expired",
                "this server's certificate has expired: run 'quiver certs' again and restart this server",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => (
                "certificate",
                "the client's certificate is not valid here: use --secrets of the same 'quiver certs' on both sides",
            ),
            Some(rustls::Error::AlertReceived(_)) => (
                "alert",
                "the client does not trust this server: use --secrets of the same 'quiver certs' on both sides",
            ),
            _ => ("handshake", "the connection closed during the TLS handshake"),
        };
        if authenticator.is_first(address, reason) {
            let peer = address.map(tracing::field::display);
            warn!(peer, %error, hint, repeats_logged = false, "TLS handshake failed");
        }
    }

    /// The roles of a caller that may make this request.
    fn authorize<Body>(&self, request: &http::Request<Body>) -> Result<Roles, Status> {
        let path = request.uri().path();
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let Some(authenticator) = self.0.as_deref() else {
            peer.has_called.store(true, Ordering::Relaxed);
            return Ok(Roles::all());
        };
        let authorized = authenticator.authorize(request.headers(), &peer, path);
        peer.has_called.fetch_or(authorized.is_ok(), Ordering::Relaxed);
        authorized.map_err(|refusal| {
            authenticator.refused.with_label_values(&[refusal.reason()]).inc();
            if authenticator.is_first(peer.address, refusal.reason()) {
                let method: String =
                    path.trim_start_matches("/quiver.v1.").chars().take(PATH_LOGGED_MAX).collect();
                let peer = peer.address.map(tracing::field::display);
                warn!(peer, method, error = %refusal, repeats_logged = false, "request unauthorized");
            }
            refusal.status(path)
        })
    }
}

impl Authenticator {
    fn authorize(&self, headers: &http::HeaderMap, peer: &Peer, path: &str) -> Result<Roles, Refusal> {
        let roles = match headers.get(http::header::AUTHORIZATION) {
            Some(shown) => {
                let (scheme, token) =
                    shown.as_bytes().split_at_checked(SCHEME.len()).ok_or(Refusal::WrongToken)?;
                let roles = self.tokens.roles(token);
                if roles.is_empty() || !scheme.eq_ignore_ascii_case(SCHEME) {
                    return Err(Refusal::WrongToken);
                }
                roles
            }
            None if peer.roles.is_empty() => return Err(Refusal::NoToken),
            None => peer.roles,
        };
        if roles.may_call(path) { Ok(roles) } else { Err(Refusal::WrongRole(roles)) }
    }

    fn is_first(&self, address: Option<SocketAddr>, reason: &'static str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let first = logged.len() < LOGGED_MAX && logged.insert((address.map(|address| address.ip()), reason));
        if first && logged.len() == LOGGED_MAX {
            warn!(logged = LOGGED_MAX, "log limit of refusals reached: further ones are only counted");
        }
        first
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refusal {
    #[error("the caller has neither a token nor a certificate with a role")]
    NoToken,
    #[error("unknown token")]
    WrongToken,
    #[error("the role {0} may not call this method")]
    WrongRole(Roles),
}

/// Values of the metric label `reason` for refused requests.
pub(crate) const REASONS: [&str; 3] = ["no_token", "wrong_token", "wrong_role"];

impl Refusal {
    fn reason(self) -> &'static str {
        match self {
            Refusal::NoToken => REASONS[0],
            Refusal::WrongToken => REASONS[1],
            Refusal::WrongRole(_) => REASONS[2],
        }
    }

    fn status(self, path: &str) -> Status {
        match self {
            Refusal::NoToken => Status::unauthenticated(
                "no token or client certificate: start with --secrets DIR, a folder that 'quiver certs' created",
            ),
            Refusal::WrongToken => Status::unauthenticated("unknown token: use the secrets of this cluster"),
            Refusal::WrongRole(roles) => {
                let method = path.rsplit('/').next().unwrap_or_default();
                Status::permission_denied(format!(
                    "{roles} may not call {method}, which requires {}: use --secrets of that role",
                    allowed_roles(path)
                ))
            }
        }
    }
}

/// The roles that a caller's certificate names. The TLS handshake has already verified its signature.
pub(crate) fn roles_of(certificates: Option<&[CertificateDer<'_>]>) -> Roles {
    let Some(parsed) = certificates
        .and_then(<[CertificateDer<'_>]>::first)
        .and_then(|certificate| ParsedCertificate::try_from(certificate).ok())
    else {
        return Roles::default();
    };
    let named = |role: &Role| {
        ServerName::try_from(role.dns_name()).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    Role::ALL.into_iter().filter(named).collect()
}

/// Wraps a server's services in the gate.
impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { inner, gate: self.clone() }
    }
}

/// Services behind a gate.
#[derive(Clone)]
pub struct Gated<S> {
    inner: S,
    gate: Gate,
}

impl<S, In, Out> Service<http::Request<In>> for Gated<S>
where
    S: Service<http::Request<In>, Response = http::Response<Out>, Error = Infallible>,
    Out: Default,
{
    type Response = http::Response<Out>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Self::Response, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<In>) -> Self::Future {
        match self.gate.authorize(&request) {
            Ok(roles) => {
                // For services that distinguish the roles that may call one method.
                request.extensions_mut().insert(roles);
                Either::Left(self.inner.call(request))
            }
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}
