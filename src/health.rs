//! `quiver health`: whether a process of a cluster is well, for containers whose image has no other way to ask.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use crate::output::say;

/// How long an answer may take. A busy machine answers late, and a probe that fails for that would restart what works.
const PATIENCE: Duration = Duration::from_secs(4);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Ask a process of a cluster whether it is well; exits 0 if so
#[derive(Args)]
pub struct Health {
    /// Where the process serves metrics and health (--metrics-listen)
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9100")]
    address: SocketAddr,
}

impl Health {
    pub fn run(&self) -> anyhow::Result<()> {
        let answer = ask(self.address).with_context(|| format!("{} does not answer", self.address))?;
        let (status, text) =
            parse(&answer).with_context(|| format!("{} is no process of ours", self.address))?;
        ensure!(status == "200", "{} is not well: {text}", self.address);
        say(text)
    }
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Status and text of an HTTP answer.
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

    /// Asks a server that gives this answer to whoever connects.
    fn asked(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Whoever leaves something unread resets the connection.
            let (mut request, mut piece) = (Vec::new(), [0; 256]);
            while !request.ends_with(b"\r\n\r\n") {
                let bytes = stream.read(&mut piece).unwrap();
                assert!(bytes > 0, "the request has an end");
                request.extend_from_slice(&piece[..bytes]);
            }
            assert!(request.starts_with(b"GET /healthz HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let done = Health { address }.run().map_err(|error| format!("{error:#}"));
        server.join().unwrap();
        done
    }

    #[test]
    fn only_one_that_says_so_is_well() {
        asked("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok\n").unwrap();
        let stopping = asked("HTTP/1.1 503 Service Unavailable\r\n\r\nstopping\n").unwrap_err();
        assert!(stopping.ends_with("is not well: stopping"), "{stopping}");
        for nonsense in ["", "220 mail\r\n\r\n", "HTTP/1.1\r\n\r\n"] {
            assert!(asked(nonsense).unwrap_err().ends_with("is no process of ours"), "{nonsense:?}");
        }
    }

    #[test]
    fn nobody_at_all_is_not_well() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Health { address }.run().unwrap_err();
        assert!(format!("{error:#}").contains("does not answer"), "{error:#}");
    }
}
