//! What every server refuses, whatever it serves, and how it counts that.
//!
//! The transport refuses messages that are too large, compressed or not a message at all, before a handler sees them.
//! Its statuses are those of a generic library; here they become the ones that our `.proto` files promise. Requests
//! that have no answer yet are bounded, because each may hold a whole message.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::codegen::{Service, http};
use tonic::{Code, Status};
use tower::Layer;

use crate::connection::CutOff;
use crate::gate::REASONS;

/// Requests whose answer has not begun, over all connections. A shard has one learner with a handful under way; a
/// learner has some for each actor that joins. Times the largest message, this bounds what half-sent requests can hold.
const REQUESTS_MAX: usize = 256;

/// How long a request may take until its answer begins. A grant waits for 10 s at most; half a request holds its place no
/// longer than this.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);

/// The counts of one server, and its bound on requests. All clones are one.
#[derive(Clone)]
pub struct Edge {
    pub(crate) connections: IntGauge,
    pub(crate) connections_beyond_limit: IntCounter,
    pub(crate) accept_errors: IntCounter,
    pub(crate) cut_off: CutOff,
    too_large: IntCounter,
    compressed: IntCounter,
    malformed: IntCounter,
    too_many: IntCounter,
    pub(crate) requests_refused: IntCounterVec,
    requests: Arc<Semaphore>,
}

impl Edge {
    /// Metrics `rpc_…` of one server, in the process's registry.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let connections = IntGauge::new("rpc_connections", "Connections that are open")?;
        let refused =
            Opts::new("rpc_connections_refused_total", "Connections closed before they said a request");
        let refused = IntCounterVec::new(refused, &["reason"])?;
        let accept_errors =
            IntCounter::new("rpc_accept_errors_total", "Connections that could not be accepted")?;
        let messages =
            Opts::new("rpc_messages_refused_total", "Messages that were refused before they were looked at");
        let messages = IntCounterVec::new(messages, &["reason"])?;
        registry.register(Box::new(connections.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        registry.register(Box::new(accept_errors.clone()))?;
        let strangers = Opts::new("rpc_requests_refused_total", "Requests of those who may not make them");
        let requests_refused = IntCounterVec::new(strangers, &["reason"])?;
        REASONS.iter().for_each(|reason| drop(requests_refused.with_label_values(&[reason])));
        registry.register(Box::new(messages.clone()))?;
        registry.register(Box::new(requests_refused.clone()))?;
        Ok(Self {
            connections,
            connections_beyond_limit: refused.with_label_values(&["limit"]),
            accept_errors,
            cut_off: CutOff {
                silent: refused.with_label_values(&["silent"]),
                not_http2: refused.with_label_values(&["not_http2"]),
                not_tls: refused.with_label_values(&["tls"]),
            },
            too_large: messages.with_label_values(&["too_large"]),
            compressed: messages.with_label_values(&["compressed"]),
            malformed: messages.with_label_values(&["malformed"]),
            too_many: messages.with_label_values(&["too_many"]),
            requests_refused,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        })
    }

    /// The status that our callers expect, for one with which the transport ended a stream of requests, counted.
    /// Handlers of streams call it with what reading a request gave; for other requests it is done already. Statuses
    /// of handlers pass as they are, except INTERNAL and OUT_OF_RANGE: these are the transport's, don't use them.
    pub fn refuse(&self, status: Status) -> Status {
        match status.code() {
            Code::OutOfRange => {
                self.too_large.inc();
                Status::resource_exhausted("message is larger than this server takes, send less at once")
            }
            // Compressed without saying how, or in a way that is not built in, which is every way.
            Code::Internal if status.message().contains("compressed-flag") => self.refuse_compressed(),
            Code::Unimplemented if status.message().contains("compressed") => self.refuse_compressed(),
            Code::Internal => {
                self.malformed.inc();
                Status::invalid_argument(
                    "not a message of this protocol: run the same version of quiver on both ends",
                )
            }
            _ => status,
        }
    }

    fn refuse_compressed(&self) -> Status {
        self.compressed.inc();
        Status::unimplemented("compressed messages are not taken, send it as it is")
    }
}

/// Puts an [`Edge`] around a server's services.
impl<S> Layer<S> for Edge {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, edge: self.clone() }
    }
}

/// Services behind an [`Edge`].
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    edge: Edge,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, Request, Body> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    Request: Send + 'static,
    Body: Default + Send,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Boxed<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (mut inner, edge) = (self.inner.clone(), self.edge.clone());
        Box::pin(async move {
            let Ok(_place) = edge.requests.try_acquire() else {
                edge.too_many.inc();
                return Ok(Status::unavailable("too many requests at once, try again").into_http());
            };
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            match timeout(REQUEST_TIME_MAX, inner.call(request)).await {
                Ok(response) => Ok(edge.answer(response?)),
                Err(_) => {
                    Ok(Status::deadline_exceeded("the request came too slowly, send it again").into_http())
                }
            }
        })
    }
}

impl Edge {
    /// A response that already has a status is one without a message: a refusal.
    fn answer<Body: Default>(&self, response: http::Response<Body>) -> http::Response<Body> {
        match Status::from_header_map(response.headers()) {
            None => response,
            Some(status) => self.refuse(status).into_http(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceExt, service_fn};

    fn edge() -> Edge {
        Edge::register(&Registry::new()).unwrap()
    }

    #[test]
    fn the_transports_statuses_become_ours_and_others_pass() {
        let edge = edge();
        let check = |given: Status, expected: Code| assert_eq!(edge.refuse(given).code(), expected);
        check(Status::out_of_range("decoded message length too large"), Code::ResourceExhausted);
        check(Status::internal("received message with compressed-flag but no"), Code::Unimplemented);
        check(Status::unimplemented("Content is compressed with `gzip`"), Code::Unimplemented);
        check(Status::internal("failed to decode Protobuf message"), Code::InvalidArgument);
        check(Status::unimplemented("no such call"), Code::Unimplemented);
        check(Status::failed_precondition("another run"), Code::FailedPrecondition);
        let counts =
            [&edge.too_large, &edge.compressed, &edge.malformed, &edge.too_many].map(IntCounter::get);
        assert_eq!(counts, [1, 2, 1, 0]);
    }

    #[tokio::test]
    async fn requests_beyond_the_bound_are_told_to_come_back() {
        let edge = edge();
        let answer = service_fn(async |_: ()| Ok::<_, std::convert::Infallible>(http::Response::new(())));
        let guarded = edge.layer(answer);
        let call = async || {
            let response = guarded.clone().oneshot(()).await.unwrap();
            Status::from_header_map(response.headers()).map(|status| status.code())
        };
        assert_eq!(call().await, None);
        let all = edge.requests.acquire_many(REQUESTS_MAX as u32).await.unwrap();
        assert_eq!(call().await, Some(Code::Unavailable));
        assert_eq!(edge.too_many.get(), 1);
        drop(all);
        assert_eq!(call().await, None);
    }
}
