//! Addresses of servers: a Unix socket or host and port.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Maximum length of a socket path in bytes: the size of the system's `sockaddr_un` without the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Address at which a server listens or can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket: reachable only on this machine, by users that may open the file.
    Unix(PathBuf),
    /// Host and port. A host name is resolved again for every connection.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(authority) => f.write_str(authority),
        }
    }
}

impl Address {
    /// Host and port; `None` for a socket file.
    pub fn authority(&self) -> Option<&str> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp(authority) => Some(authority),
        }
    }

    /// The same server at one of the socket addresses that its host name resolves to.
    pub fn at(&self, resolved: SocketAddr) -> Self {
        match self {
            Address::Unix(_) => self.clone(),
            Address::Tcp(_) => Address::Tcp(resolved.to_string()),
        }
    }

    /// Whether only this machine can reach the address: a Unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(authority) => {
                let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host == "localhost"
                    || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// Refuses a non-loopback address unless the server has secrets or the operator allowed plaintext with
    /// `--insecure`.
    pub fn check_exposure(&self, secured: bool, insecure: bool) -> Result<(), Exposed> {
        if secured || insecure || self.is_local() { Ok(()) } else { Err(Exposed(self.clone())) }
    }
}

/// A non-loopback address without secrets and without `--insecure`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} can be reached from other machines: add --secrets DIR ('quiver certs' creates the folders), or --insecure on a \
     trusted network"
)]
pub struct Exposed(pub Address);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(AddressError::NoPath),
                bytes if bytes > SOCKET_PATH_BYTES_MAX => Err(AddressError::LongPath { bytes }),
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let authority = match text.split_once("://") {
            Some(("http", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some(("https", _)) => return Err(AddressError::Https),
            Some((scheme, _)) => return Err(AddressError::Scheme(scheme.to_owned())),
            None => text,
        };
        let (host, port) = authority.rsplit_once(':').ok_or(AddressError::NoPort(text.to_owned()))?;
        port.parse::<u16>().map_err(|_| AddressError::Port(port.to_owned()))?;
        if !is_host(host) {
            return Err(AddressError::Host(host.to_owned()));
        }
        Ok(Address::Tcp(authority.to_owned()))
    }
}

/// Whether the text is a host name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            !host.is_empty() && host.bytes().all(allowed)
        }
    }
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `unix:` without a path.
    #[error("no path after unix:, write unix:/path/of/socket")]
    NoPath,
    /// Longer than the system allows.
    #[error(
        "a socket path may have at most {SOCKET_PATH_BYTES_MAX} bytes, this one has {bytes}; choose a shorter path"
    )]
    LongPath {
        /// Length of the path.
        bytes: usize,
    },
    /// The address does not select TLS; secrets do.
    #[error("write host:port without https://: with --secrets every connection uses TLS")]
    Https,
    /// A scheme other than http or unix.
    #[error("unknown scheme {0:?}, write unix:/path, http://host:port or host:port")]
    Scheme(String),
    /// A host without a port.
    #[error("no port in {0:?}, write unix:/path, http://host:port or host:port")]
    NoPort(String),
    /// The port is not a 16-bit number.
    #[error("port {0:?} is not a number from 0 to 65535: write host:port")]
    Port(String),
    /// The host is neither a name nor an IP address.
    #[error("host {0:?} is neither a name nor an IP address: write host:port, IPv6 in brackets")]
    Host(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_served_only_on_purpose() {
        for local in ["unix:/tmp/a", "127.0.0.1:7700", "localhost:1", "[::1]:7700"] {
            assert!(local.parse::<Address>().unwrap().check_exposure(false, false).is_ok(), "{local}");
        }
        for open in ["0.0.0.0:7700", "10.1.2.3:7700", "trainer:7700", "[::]:7700"] {
            let address: Address = open.parse().unwrap();
            let refused = address.check_exposure(false, false).unwrap_err().to_string();
            assert!(refused.contains("--secrets") && refused.contains("--insecure"), "{refused}");
            assert!(
                address.check_exposure(true, false).is_ok() && address.check_exposure(false, true).is_ok()
            );
        }
    }

    #[test]
    fn an_address_is_read_and_written() {
        let check = |text: &str, expected: &str| {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), expected);
            assert_eq!(expected.parse(), Ok(address));
        };
        check("unix:/run/shard.sock", "unix:/run/shard.sock");
        check("http://learner:7700", "learner:7700");
        check("http://learner:7700/", "learner:7700");
        check("shard-3.shards.default.svc:7701", "shard-3.shards.default.svc:7701");
        check("127.0.0.1:0", "127.0.0.1:0");
        check("[::1]:7701", "[::1]:7701");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("unix:", "no path");
        check(&format!("unix:/{}", "x".repeat(107)), "has 108");
        check("https://learner:7700", "--secrets");
        check("ftp://learner:7700", "unknown scheme \"ftp\"");
        check("learner", "no port");
        check("learner:http", "port \"http\"");
        check("learner:77000", "port \"77000\"");
        check(":7700", "host \"\"");
        check("::1:7700", "host \"::1\"");
        check("http://user@host:1", "host \"user@host\"");
        check("http://host:1/path", "port \"1/path\"");
    }
}
