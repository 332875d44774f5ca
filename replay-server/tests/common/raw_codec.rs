//! gRPC with any bytes in place of a message.

use std::str::FromStr;

use bytes::BufMut;
use rpc::address::Address;
use rpc::channel::channel;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use super::patiently;

/// Calls a method with bytes instead of a message, and gives the status.
pub async fn send_raw(address: &Address, method: &str, streams: bool, bytes: &[u8]) -> Status {
    let mut client = tonic::client::Grpc::new(channel(address));
    client.ready().await.unwrap();
    let path = PathAndQuery::from_str(&format!("/quiver.v1.Replay/{method}")).unwrap();
    let message = bytes.to_vec();
    if !streams {
        return patiently(client.unary(Request::new(message), path, RawCodec)).await.unwrap_err();
    }
    let (sender, stream) = mpsc::channel(1);
    sender.send(message).await.unwrap();
    let replies = client.streaming(Request::new(ReceiverStream::new(stream)), path, RawCodec);
    let mut replies = patiently(replies).await.unwrap().into_inner();
    patiently(replies.message()).await.unwrap_err()
}

/// Bytes as they are.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(None)
    }
}
