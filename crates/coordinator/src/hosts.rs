//! Name resolution with a hosts file or the system's resolver.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio::net::lookup_host;

/// A file in the format of `/etc/hosts`, read again for each name; `None` for the system's resolver.
#[derive(Clone, Debug)]
pub struct Hosts(pub Option<PathBuf>);

impl Hosts {
    /// All addresses that `host:port` resolves to.
    pub async fn resolve(&self, authority: &str) -> io::Result<Vec<SocketAddr>> {
        let Some(file) = &self.0 else { return Ok(lookup_host(authority).await?.collect()) };
        let text = std::fs::read_to_string(file)?;
        let (name, port) = authority.rsplit_once(':').ok_or(ErrorKind::InvalidInput)?;
        let port = port.parse().map_err(|_| ErrorKind::InvalidInput)?;
        Ok(listed(&text, name).map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

/// The addresses of a name. Each line has an IP address and its names; a comment starts with #.
fn listed(text: &str, name: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(move |line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let ip = words.next()?.parse().ok()?;
        words.any(|known| known == name).then_some(ip)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_resolves_to_the_address_of_every_line_that_has_it() {
        let text = "# shards\n10.0.0.1 replay replay-1\n\n10.0.0.2\treplay # the second\nnonsense replay\n::1 learner\n";
        let found = |name| listed(text, name).map(|ip| ip.to_string()).collect::<Vec<_>>();
        assert_eq!(found("replay"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(found("replay-1"), ["10.0.0.1"]);
        assert_eq!(found("learner"), ["::1"]);
        assert!(found("second").is_empty());
    }
}
