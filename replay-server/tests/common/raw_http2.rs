//! HTTP/2 by hand, for what no client library will send.

use rpc::address::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection on which anything can be said.
pub struct Raw {
    pub stream: TcpStream,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;

impl Raw {
    pub async fn connect(address: &Address) -> Self {
        let Address::Tcp(authority) = address else { panic!("{address} is no TCP address") };
        Self { stream: TcpStream::connect(authority).await.unwrap() }
    }

    /// Preface and empty settings.
    pub async fn greet(&mut self) {
        self.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        self.frame(SETTINGS, 0, 0, &[]).await;
    }

    pub async fn call(&mut self, stream: u32, path: &str) {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // A literal that is not indexed, with a new name; lengths below 127 are one byte.
            block.push(0);
            for text in [name, value] {
                block.push(text.len() as u8);
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.frame(HEADERS, END_HEADERS, stream, &block).await;
    }

    pub async fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.frame(DATA, 0, stream, bytes).await;
    }

    /// Takes a call back.
    pub async fn reset(&mut self, stream: u32) {
        self.frame(RESET, 0, stream, &8u32.to_be_bytes()).await;
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// Reads until the server hangs up.
    pub async fn closed(&mut self) {
        let mut ignored = [0; 4096];
        while self.stream.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
    }
}
