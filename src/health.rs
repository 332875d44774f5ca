//! `quiver health`: queries the health of a process, for container images without an HTTP client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;

use crate::output::print_line;

/// How long a response may take. A busy machine responds late; a probe that fails for that reason restarts a process that
/// works.
const TIMEOUT: Duration = Duration::from_secs(4);
/// More than any response has.
const RESPONSE_BYTES_MAX: u64 = 64 << 10;

/// Query a process's /healthz; exit with 0 if it is healthy
#[derive(Args)]
pub struct HealthCommand {
    /// Metrics address of the process (its --metrics-listen). The default is the port used in the container images.
    /// Outside containers the port is chosen at start; find it in the log or in processes.json
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9100")]
    address: SocketAddr,
}

impl HealthCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        let connected = TcpStream::connect_timeout(&self.address, TIMEOUT).map_err(|error| {
            anyhow!(
                "cannot connect to {}: {error}. Check that the process is running; its log shows its metrics address",
                self.address
            )
        })?;
        let answer = ask(connected, self.address).with_context(|| {
            format!("{} accepts connections but does not answer; see its log", self.address)
        })?;
        let (status, text) = parse(&answer).with_context(|| {
            format!("{} did not send an HTTP response: is it a Quiver process?", self.address)
        })?;
        ensure!(status == "200", "{} is unhealthy: {text}; see its log", self.address);
        print_line(text)
    }
}

fn ask(mut stream: TcpStream, address: SocketAddr) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Status and body of an HTTP response.
fn parse(answer: &str) -> Option<(&str, &str)> {
    let (head, text) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.trim_end(), text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// The result of asking a server that sends this response to every connection.
    fn asked(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // A server that closes with unread input resets the connection.
            let (mut request, mut piece) = (Vec::new(), [0; 256]);
            while !request.ends_with(b"\r\n\r\n") {
                let bytes = stream.read(&mut piece).unwrap();
                assert!(bytes > 0, "the request has an end");
                request.extend_from_slice(&piece[..bytes]);
            }
            assert!(request.starts_with(b"GET /healthz HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let done = HealthCommand { address }.run().map_err(|error| format!("{error:#}"));
        server.join().unwrap();
        done
    }

    #[test]
    fn only_a_response_of_200_is_healthy() {
        asked("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok\n").unwrap();
        let stopping = asked("HTTP/1.1 503 Service Unavailable\r\n\r\nstopping\n").unwrap_err();
        assert!(stopping.contains("is unhealthy: stopping; see its log"), "{stopping}");
        for nonsense in ["", "220 mail\r\n\r\n", "HTTP/1.1\r\n\r\n"] {
            assert!(asked(nonsense).unwrap_err().ends_with("is it a Quiver process?"), "{nonsense:?}");
        }
    }

    #[test]
    fn an_address_without_a_listener_is_unhealthy() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = HealthCommand { address }.run().unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot connect to"), "{error:#}");
    }
}
