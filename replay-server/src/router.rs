//! Routes requests to the calls of the service.
//!
//! Replaces the server generated from the `.proto` file, for two reasons: every call has its own limit on the size of a
//! message, and the lists of a message are bounded before it is decoded ([`BoundedCodec`]).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use proto::limits::{INSERT_BYTES_MAX, OTHER_BYTES_MAX, POINTS_MAX, SAMPLE_BYTES_MAX, UPDATES_MAX};
use proto::v1::replay_server::{Replay, SERVICE_NAME};
use tonic::body::Body;
use tonic::codec::Codec;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};

use crate::insert_budget::bounded;
use crate::message_bounds::{BoundedCodec, BoundedMessage};
use crate::service::ReplayService;

/// Bytes of a request without lists: a run's name, a table.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// Bytes of priority updates: at most 23 for each new priority and 15 for each removal, plus the other fields.
const UPDATES_BYTES_MAX: usize = UPDATES_MAX * (23 + 15) + SMALL_BYTES_MAX;
/// Bytes of a sample request: points and updates.
const POINTS_BYTES_MAX: usize = POINTS_MAX * 9 + UPDATES_BYTES_MAX;

/// The service as tower sees it, to be added to a server's routes.
#[derive(Clone)]
pub struct ReplayRouter(pub(crate) Arc<ReplayService>);

impl NamedService for ReplayRouter {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for ReplayRouter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { Ok(route(service, request).await) })
    }
}

async fn route(service: Arc<ReplayService>, request: http::Request<Body>) -> http::Response<Body> {
    let path = request.uri().path();
    let Some(method) = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)) else {
        return unknown();
    };
    // tonic expects each call as a tower service of its own.
    macro_rules! call {
        ($method:ident) => {
            Call(move |request| {
                let service = service.clone();
                async move { service.$method(request).await }
            })
        };
    }
    match method {
        "/Insert" => {
            let mut grpc = grpc(&service, INSERT_BYTES_MAX, SMALL_BYTES_MAX);
            let budget = service.stream_budget();
            let mut request = request.map(|body| bounded(body, budget.clone()));
            request.extensions_mut().insert(budget);
            grpc.streaming(call!(insert), request).await
        }
        "/Sample" => {
            let mut grpc = grpc(&service, POINTS_BYTES_MAX, SAMPLE_BYTES_MAX);
            grpc.streaming(call!(sample), request).await
        }
        "/UpdatePriorities" => {
            let mut grpc = grpc(&service, UPDATES_BYTES_MAX, SMALL_BYTES_MAX);
            grpc.unary(call!(update_priorities), request).await
        }
        "/Configure" => {
            grpc(&service, SMALL_BYTES_MAX, SMALL_BYTES_MAX).unary(call!(configure), request).await
        }
        // A thousand items of 255 steps each are 8 MB.
        "/Inspect" => grpc(&service, SMALL_BYTES_MAX, SAMPLE_BYTES_MAX).unary(call!(inspect), request).await,
        "/GetItem" => grpc(&service, SMALL_BYTES_MAX, SAMPLE_BYTES_MAX).unary(call!(get_item), request).await,
        "/Snapshot" => {
            let mut grpc = grpc(&service, SMALL_BYTES_MAX, SAMPLE_BYTES_MAX);
            grpc.server_streaming(call!(snapshot), request).await
        }
        "/Grant" => grpc(&service, SMALL_BYTES_MAX, SMALL_BYTES_MAX).unary(call!(grant), request).await,
        "/IssueTicket" => {
            grpc(&service, SMALL_BYTES_MAX, SMALL_BYTES_MAX).unary(call!(issue_ticket), request).await
        }
        "/Info" => grpc(&service, SMALL_BYTES_MAX, OTHER_BYTES_MAX).unary(call!(info), request).await,
        _ => unknown(),
    }
}

fn unknown() -> http::Response<Body> {
    Status::unimplemented("this shard has no such method: list its methods with gRPC reflection").into_http()
}

/// Encodes and decodes within bounds. Messages are not compressed: frames are packed already, and a server that never
/// decompresses is safe from decompression bombs.
fn grpc<T, U: BoundedMessage>(
    service: &ReplayService,
    request_bytes_max: usize,
    reply_bytes_max: usize,
) -> Grpc<BoundedCodec<T, U>>
where
    BoundedCodec<T, U>: Codec<Encode = T, Decode = U>,
{
    let codec = BoundedCodec::new(service.metrics().clone());
    Grpc::new(codec).apply_max_message_size_config(Some(request_bytes_max), Some(reply_bytes_max))
}

/// Wraps a function as a tower service.
struct Call<F>(F);

impl<F, M, T, Answer> Service<Request<M>> for Call<F>
where
    F: FnMut(Request<M>) -> Answer,
    Answer: Future<Output = Result<Response<T>, Status>>,
{
    type Response = Response<T>;
    type Error = Status;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<M>) -> Answer {
        (self.0)(request)
    }
}
