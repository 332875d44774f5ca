//! Who may come in, and what for.
//!
//! A server with secrets speaks TLS only, and every request must show a token, or come over a connection whose caller
//! showed a certificate; either stands for roles, and a role for calls ([`Roles::may_call`]). Without secrets everyone may
//! do everything, which is for Unix sockets (the file's mode decides), loopback, and whoever says `--insecure`.
//!
//! Whoever is refused is counted each time and logged once, so that a thousand wrong tokens are one line.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
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
use crate::role::{Role, Roles, whom};
use crate::secrets::{Secrets, SecretsError, Tokens};

/// Strangers that are remembered as logged. Beyond that nobody new is logged, only counted.
const LOGGED_MAX: usize = 1024;
/// What a token is shown as, in whatever case.
const SCHEME: &[u8] = b"Bearer ";
/// Characters of a stranger's path that are logged.
const PATH_LOGGED_MAX: usize = 80;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// Where it is, unless it came through a socket file.
    pub address: Option<SocketAddr>,
    /// What its certificate says; nothing without one.
    pub roles: Roles,
}

/// What a server asks of those who come.
#[derive(Clone)]
pub struct Gate(Option<Arc<Guard>>);

struct Guard {
    tls: TlsAcceptor,
    tokens: Tokens,
    refused: IntCounterVec,
    logged: Mutex<HashSet<(Option<IpAddr>, &'static str)>>,
}

impl Gate {
    /// Everyone may do everything.
    pub fn open() -> Self {
        Self(None)
    }

    /// Those whom a folder of secrets names, each what its role may; everyone without a folder.
    pub fn load(folder: Option<&Path>, edge: &Edge) -> Result<Self, SecretsError> {
        let Some(folder) = folder else { return Ok(Self::open()) };
        let secrets = Secrets::new(folder);
        secrets.warn_if_they_expire();
        let tls = TlsAcceptor::from(Arc::new(secrets.server()?));
        let (tokens, refused) = (secrets.tokens()?, edge.requests_refused.clone());
        Ok(Self(Some(Arc::new(Guard { tls, tokens, refused, logged: Mutex::default() }))))
    }

    /// How connections are accepted, if not as they are.
    pub(crate) fn tls(&self) -> Option<&TlsAcceptor> {
        self.0.as_deref().map(|guard| &guard.tls)
    }

    /// Logs a connection that came to nothing, if it is the first of its kind from there.
    pub(crate) fn log_handshake(&self, address: Option<SocketAddr>, error: &std::io::Error) {
        let Some(guard) = &self.0 else { return };
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (reason, hint) = match inner {
            Some(rustls::Error::InvalidMessage(_)) => {
                ("plain", "it does not speak TLS: is it started without --secrets?")
            }
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. })) => (
                "expired",
                "its certificate has expired: run 'quiver certs' again, and start it anew with the new one",
            ),
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired)) => (
                "own-expired",
                "our certificate has expired: run 'quiver certs' again, and start this server anew",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => {
                ("certificate", "its certificate is not good here: are both --secrets of one 'quiver certs'?")
            }
            Some(rustls::Error::AlertReceived(_)) => {
                ("alert", "it does not believe this server: are both --secrets of one 'quiver certs'?")
            }
            _ => ("handshake", "the connection broke before it was secure"),
        };
        if guard.is_first(address, reason) {
            let peer = address.map(tracing::field::display);
            warn!(peer, %error, hint, "refused a connection; more like this are only counted");
        }
    }

    fn judge<Body>(&self, request: &http::Request<Body>) -> Result<(), Status> {
        let path = request.uri().path();
        let Some(guard) = self.0.as_deref() else { return Ok(()) };
        let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
        guard.judge(request.headers(), peer, path).map_err(|refusal| {
            guard.refused.with_label_values(&[refusal.reason()]).inc();
            if guard.is_first(peer.address, refusal.reason()) {
                let call: String =
                    path.trim_start_matches("/quiver.v1.").chars().take(PATH_LOGGED_MAX).collect();
                let peer = peer.address.map(tracing::field::display);
                warn!(peer, call, "refused: {refusal}; more like this are only counted");
            }
            refusal.status(path)
        })
    }
}

impl Guard {
    fn judge(&self, headers: &http::HeaderMap, peer: Peer, path: &str) -> Result<(), Refusal> {
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
        if roles.may_call(path) { Ok(()) } else { Err(Refusal::WrongRole(roles)) }
    }

    fn is_first(&self, address: Option<SocketAddr>, reason: &'static str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let first = logged.len() < LOGGED_MAX && logged.insert((address.map(|address| address.ip()), reason));
        if first && logged.len() == LOGGED_MAX {
            warn!("this was the last stranger to be logged, from now on they are only counted");
        }
        first
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refusal {
    #[error("neither a token nor a certificate with a role")]
    NoToken,
    #[error("an unknown token")]
    WrongToken,
    #[error("{0} may not call this")]
    WrongRole(Roles),
}

/// What requests are refused for, as metrics call it.
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
                "show a token or a client certificate: start with --secrets DIR, a folder that 'quiver certs' made",
            ),
            Refusal::WrongToken => {
                Status::unauthenticated("this token is unknown here: use the secrets of this cluster")
            }
            Refusal::WrongRole(roles) => {
                let method = path.rsplit('/').next().unwrap_or_default();
                Status::permission_denied(format!(
                    "{roles} may not call {method}, which is for {}: give --secrets of that role",
                    whom(path)
                ))
            }
        }
    }
}

/// The roles that a caller's certificate names. TLS has checked who signed it.
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

/// Puts the gate before a server's services.
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

    fn call(&mut self, request: http::Request<In>) -> Self::Future {
        match self.gate.judge(&request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}
