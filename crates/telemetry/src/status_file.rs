//! The status file: tells other programs where a process serves its metrics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::Context;

/// Writes the file atomically: a reader that polls for it never sees a partial file.
pub(crate) fn write(path: &Path, name: &str, address: SocketAddr) -> anyhow::Result<()> {
    let pid = std::process::id();
    let text = content(name, pid, address);
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{pid}"));
    let written = std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, path));
    written.with_context(|| format!("cannot write the status file {}", path.display()))
}

fn content(name: &str, pid: u32, address: SocketAddr) -> String {
    let name = quoted(name);
    let address = reachable(address);
    format!("{{\"name\":{name},\"pid\":{pid},\"metrics\":\"http://{address}\"}}\n")
}

/// Replaces the unspecified address ("all interfaces") by loopback, because a client cannot connect to it.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Quotes and escapes a JSON string.
fn quoted(text: &str) -> String {
    let escape = |character: char| match character {
        '"' | '\\' => format!("\\{character}"),
        control if control < ' ' => format!("\\u{:04x}", control as u32),
        plain => plain.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_json_with_an_address_one_can_connect_to() {
        assert_eq!(
            content("actor \"3\"\n", 17, "0.0.0.0:90".parse().unwrap()),
            "{\"name\":\"actor \\\"3\\\"\\u000a\",\"pid\":17,\"metrics\":\"http://127.0.0.1:90\"}\n"
        );
        assert_eq!(reachable("[::]:1".parse().unwrap()), "[::1]:1".parse().unwrap());
    }
}
