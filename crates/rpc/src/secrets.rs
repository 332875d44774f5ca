//! A secrets folder: the credentials of one process and the authority that it trusts.
//!
//! | file | content | used by |
//! |---|---|---|
//! | `ca.pem` | certificate of the authority that signed all certificates | all |
//! | `server.pem`, `server-key.pem` | the server's certificate and key | servers |
//! | `tokens.sha256` | a line for each accepted token: role and SHA-256 of the token | servers |
//! | `token` | the caller's token | callers |
//! | `client.pem`, `client-key.pem` | the caller's certificate and key, instead of a token | callers |
//! | `expires` | expiry of the certificates, in seconds since 1970 | the warning in the log |
//!
//! A server's folder contains no token of another process. [`make`] writes these folders.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

pub mod make;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tracing::warn;

use crate::role::{Role, Roles};

const AUTHORITY: &str = "ca.pem";
const SERVER: &str = "server.pem";
const SERVER_KEY: &str = "server-key.pem";
const CLIENT: &str = "client.pem";
const CLIENT_KEY: &str = "client-key.pem";
const TOKEN: &str = "token";
const TOKENS: &str = "tokens.sha256";
const EXPIRES: &str = "expires";

/// gRPC runs over HTTP/2.
const ALPN: &[u8] = b"h2";
/// Minimum length of a token: 128 bits in hexadecimal digits.
const TOKEN_CHARACTERS_MIN: usize = 32;
/// Maximum length of a token. It is sent with every request.
const TOKEN_CHARACTERS_MAX: usize = 512;
/// Warn about certificates that expire within this time.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why a secrets folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A file is missing or cannot be read.
    #[error(
        "can't read {path}: {error}; --secrets takes the folder of one role that 'quiver certs' created: \
         secrets/actor, secrets/evaluator, secrets/learner, secrets/replay or secrets/admin; run 'quiver certs' again to add a \
         folder that version 0.1 did not have",
        path = path.display()
    )]
    Read { path: PathBuf, error: io::Error },
    /// The content of a file is invalid.
    #[error("{path} is not usable: {reason}; run 'quiver certs' again and copy the folder", path = path.display())]
    Unusable { path: PathBuf, reason: String },
}

/// A secrets folder. Files are read on demand.
#[derive(Clone, Debug)]
pub struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// TLS configuration of a server. Client certificates are requested but optional, because a caller may use a token.
    pub(crate) fn server(&self) -> Result<ServerConfig, SecretsError> {
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(self.authority()?), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| self.unusable(AUTHORITY, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(callers)
            .with_single_cert(self.certificates(SERVER)?, self.key(SERVER_KEY)?)
            .map_err(|error| self.unusable(SERVER, &error))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// TLS configuration of a caller, with its certificate if it has one.
    pub(crate) fn client(&self) -> Result<ClientConfig, SecretsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(self.authority()?);
        let mut config = if self.folder.join(CLIENT).exists() {
            config
                .with_client_auth_cert(self.certificates(CLIENT)?, self.key(CLIENT_KEY)?)
                .map_err(|error| self.unusable(CLIENT, &error))?
        } else {
            config.with_no_client_auth()
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// The token of this process, if it has one.
    pub(crate) fn token(&self) -> Result<Option<String>, SecretsError> {
        if !self.folder.join(TOKEN).exists() {
            return Ok(None);
        }
        let text = self.text(TOKEN)?;
        let token = text.trim();
        if !is_token(token.as_bytes()) {
            let rule = format!(
                "a token is {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} visible characters without spaces"
            );
            return Err(self.unusable(TOKEN, &rule));
        }
        Ok(Some(token.to_owned()))
    }

    /// The tokens that this server accepts. Without the file there are none, and callers need certificates.
    pub(crate) fn tokens(&self) -> Result<Tokens, SecretsError> {
        if !self.folder.join(TOKENS).exists() {
            return Ok(Tokens::default());
        }
        let text = self.text(TOKENS)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let known: Result<Vec<(Role, [u8; 32])>, String> = lines.map(read_token).collect();
        Ok(Tokens(known.map_err(|reason| self.unusable(TOKENS, &reason))?))
    }

    fn authority(&self) -> Result<RootCertStore, SecretsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(AUTHORITY)? {
            roots.add(certificate).map_err(|error| self.unusable(AUTHORITY, &error))?;
        }
        Ok(roots)
    }

    fn certificates(&self, file: &str) -> Result<Vec<CertificateDer<'static>>, SecretsError> {
        let text = self.text(file)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        match certificates {
            Ok(certificates) if certificates.is_empty() => {
                Err(self.unusable(file, &"it contains no certificate"))
            }
            Ok(certificates) => Ok(certificates),
            Err(error) => Err(self.unusable(file, &error)),
        }
    }

    fn key(&self, file: &str) -> Result<PrivateKeyDer<'static>, SecretsError> {
        PrivateKeyDer::from_pem_slice(self.text(file)?.as_bytes())
            .map_err(|error| self.unusable(file, &error))
    }

    fn text(&self, file: &str) -> Result<String, SecretsError> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|error| SecretsError::Read { path, error })
    }

    fn unusable(&self, file: &str, reason: &impl ToString) -> SecretsError {
        SecretsError::Unusable { path: self.folder.join(file), reason: reason.to_string() }
    }

    /// Whether the folder contains a server certificate.
    pub(crate) fn is_a_servers(&self) -> bool {
        self.folder.join(SERVER).exists()
    }

    /// Whether the server certificate is valid now for this role under this folder's authority.
    fn certifies(&self, role: Role) -> Result<bool, SecretsError> {
        let name = ServerName::try_from(role.dns_name()).expect("a role is a valid DNS name");
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(self.authority()?), provider())
            .build()
            .map_err(|error| self.unusable(AUTHORITY, &error))?;
        let chain = self.certificates(SERVER)?;
        Ok(verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now()).is_ok())
    }

    /// Logs a warning if the certificates have expired or expire soon.
    pub(crate) fn warn_if_they_expire(&self) {
        let Ok(text) = fs::read_to_string(self.folder.join(EXPIRES)) else { return };
        let Ok(expires) = text.trim().parse::<u64>() else { return };
        let left = Duration::from_secs(expires.saturating_sub(seconds_since_1970()));
        if left.is_zero() {
            let path = self.folder.display();
            warn!(%path, "certificates expired: run 'quiver certs' again and restart all processes");
        } else if left < EXPIRES_SOON {
            let (path, days_left) = (self.folder.display(), left.as_secs() / (24 * 3600));
            warn!(%path, days_left, "certificates expire soon: run 'quiver certs' again and restart all processes");
        }
    }
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Parses a line `role sha256`.
fn read_token(line: &str) -> Result<(Role, [u8; 32]), String> {
    let (role, digest) = line.split_once(' ').ok_or("a line must be a role, a space and a SHA-256")?;
    let role = role.parse::<Role>().map_err(|error| error.to_string())?;
    let digest = from_hex(digest.trim()).ok_or("a SHA-256 has 64 hexadecimal digits")?;
    Ok((role, digest))
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_token(text: &[u8]) -> bool {
    (TOKEN_CHARACTERS_MIN..=TOKEN_CHARACTERS_MAX).contains(&text.len())
        && text.iter().all(u8::is_ascii_graphic)
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Maps tokens to roles. It stores only digests, so reading a server's folder does not reveal a usable token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(Vec<(Role, [u8; 32])>);

impl Tokens {
    /// The roles of a token; none if it is unknown. Constant time with respect to the token's content.
    pub fn roles(&self, token: &[u8]) -> Roles {
        if !is_token(token) {
            return Roles::default();
        }
        let digest = digest(token);
        let mut found = 0u8;
        // No early exit: the time must not depend on which token matches.
        for (role, known) in &self.0 {
            let same: Choice = known.ct_eq(&digest);
            found |= u8::conditional_select(&0, &(1 << *role as u8), same);
        }
        Role::ALL.into_iter().filter(|&role| found & 1 << role as u8 != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_only_by_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(folder.path());
        let write = |text: String| fs::write(folder.path().join(TOKENS), text).unwrap();
        assert!(secrets.tokens().unwrap().roles(b"").is_empty(), "no file, no token");
        let (one, two) = ("a".repeat(64), "b".repeat(64));
        write(format!(
            "# comment\nactor {0}\nlearner {1}\n\nactor {1}\n",
            to_hex(&digest(one.as_bytes())),
            to_hex(&digest(two.as_bytes()))
        ));
        let tokens = secrets.tokens().unwrap();
        assert_eq!(tokens.roles(one.as_bytes()).to_string(), "actor");
        assert_eq!(tokens.roles(two.as_bytes()).to_string(), "actor+learner");
        write(format!("admin {}\n", to_hex(&digest(b""))));
        assert!(
            secrets.tokens().unwrap().roles(b"").is_empty(),
            "an empty token is never accepted, whatever the file contains"
        );
        for stranger in ["", "c", &one[1..], &to_hex(&digest(one.as_bytes())), &"a".repeat(9999)] {
            assert!(tokens.roles(stranger.as_bytes()).is_empty(), "{stranger}");
        }
    }

    #[test]
    fn an_error_names_the_file_and_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(folder.path());
        let check = |file: &str, text: &str, part: &str, error: &dyn Fn() -> SecretsError| {
            fs::write(folder.path().join(file), text).unwrap();
            let error = error().to_string();
            assert!(error.contains(file) && error.contains(part), "{error}");
        };
        let tokens = || secrets.tokens().unwrap_err();
        check(TOKENS, "actor", "a role, a space", &tokens);
        check(TOKENS, "root 00", "unknown role \"root\"", &tokens);
        check(TOKENS, "actor 00", "64 hexadecimal", &tokens);
        check(TOKENS, &format!("actor {}", "é".repeat(32)), "64 hexadecimal", &tokens);
        let token = || secrets.token().unwrap_err();
        check(TOKEN, "short", "32 to 512", &token);
        check(TOKEN, &"two words".repeat(9), "without spaces", &token);
        let missing = secrets.client().unwrap_err().to_string();
        assert!(missing.contains(AUTHORITY) && missing.contains("quiver certs"), "{missing}");
        let client = || secrets.client().unwrap_err();
        check(AUTHORITY, "nothing", "no certificate", &client);
    }
}
