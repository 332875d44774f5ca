//! Limits that every server enforces before a handler runs, and the counters of what they refused.
//!
//! The transport refuses messages that are too large, compressed or malformed before a handler sees them. Its statuses
//! are those of a generic library; this module maps them to the statuses that our `.proto` files promise. It also
//! bounds the number of requests without an answer, because each may hold a whole message in memory.

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
use crate::role::CallGroup;

/// Maximum requests of actors, and for health and reflection, whose answer has not begun, over all connections. A learner
/// serves a few for each joining actor. Times the largest message, this bounds the memory that partially received
/// requests can hold.
const ACTOR_REQUESTS_MAX: usize = 256;
/// The same for the learner's requests to a shard, of which a few are in flight. No actor can use up these.
const LEARNER_REQUESTS_MAX: usize = 64;
/// The same for operators.
const ADMIN_REQUESTS_MAX: usize = 32;

/// How long a request may take until its answer begins. A grant waits at most 10 s. A partially received request holds
/// its permit no longer than this.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);

/// The counters and the request limit of one server. Clones share them.
#[derive(Clone)]
pub struct Edge {
    pub(crate) connections: IntGauge,
    pub(crate) connections_beyond_limit: IntCounter,
    pub(crate) connections_of_address: IntCounter,
    pub(crate) accept_errors: IntCounter,
    pub(crate) cut_off: CutOff,
    too_large: IntCounter,
    compressed: IntCounter,
    malformed: IntCounter,
    too_many: IntCounter,
    pub(crate) requests_refused: IntCounterVec,
    requests: RequestPermits,
}

/// The permits of each [`CallGroup`].
#[derive(Clone)]
struct RequestPermits {
    learner: Arc<Semaphore>,
    admin: Arc<Semaphore>,
    actors: Arc<Semaphore>,
}

impl RequestPermits {
    fn new() -> Self {
        let permits = |most| Arc::new(Semaphore::new(most));
        Self {
            learner: permits(LEARNER_REQUESTS_MAX),
            admin: permits(ADMIN_REQUESTS_MAX),
            actors: permits(ACTOR_REQUESTS_MAX),
        }
    }

    fn of(&self, path: &str) -> &Semaphore {
        match CallGroup::of(path) {
            CallGroup::Learner => &self.learner,
            CallGroup::Admin => &self.admin,
            CallGroup::Actors => &self.actors,
        }
    }
}

impl Edge {
    /// Registers the `quiver_rpc_…` metrics of one server in the process's registry.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let connections = IntGauge::new("quiver_rpc_connections", "Open connections")?;
        let refused = Opts::new(
            "quiver_rpc_connections_refused_total",
            "Connections closed before their first authorized call, by reason",
        );
        let refused = IntCounterVec::new(refused, &["reason"])?;
        let accept_errors =
            IntCounter::new("quiver_rpc_accept_errors_total", "Connections that could not be accepted")?;
        let messages =
            Opts::new("quiver_rpc_messages_refused_total", "Messages refused before decoding, by reason");
        let messages = IntCounterVec::new(messages, &["reason"])?;
        registry.register(Box::new(connections.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        registry.register(Box::new(accept_errors.clone()))?;
        let unauthorized = Opts::new("quiver_rpc_requests_refused_total", "Unauthorized requests, by reason");
        let requests_refused = IntCounterVec::new(unauthorized, &["reason"])?;
        REASONS.iter().for_each(|reason| drop(requests_refused.with_label_values(&[reason])));
        registry.register(Box::new(messages.clone()))?;
        registry.register(Box::new(requests_refused.clone()))?;
        Ok(Self {
            connections,
            connections_beyond_limit: refused.with_label_values(&["limit"]),
            connections_of_address: refused.with_label_values(&["address"]),
            accept_errors,
            cut_off: CutOff {
                silent: refused.with_label_values(&["silent"]),
                not_http2: refused.with_label_values(&["not_http2"]),
                not_tls: refused.with_label_values(&["tls"]),
                no_call: refused.with_label_values(&["no_call"]),
            },
            too_large: messages.with_label_values(&["too_large"]),
            compressed: messages.with_label_values(&["compressed"]),
            malformed: messages.with_label_values(&["malformed"]),
            too_many: messages.with_label_values(&["too_many"]),
            requests_refused,
            requests: RequestPermits::new(),
        })
    }

    /// Maps a transport status to the status that our callers expect, and counts it.
    ///
    /// Handlers of request streams call this with the error of reading a request; for unary requests [`Guarded`] does
    /// it. Statuses of handlers pass unchanged, except INTERNAL and OUT_OF_RANGE: these are reserved for the transport,
    /// so handlers must not use them.
    pub fn refuse(&self, status: Status) -> Status {
        match status.code() {
            Code::OutOfRange => {
                self.too_large.inc();
                Status::resource_exhausted(
                    "message exceeds the size limit of this server: send less per request",
                )
            }
            // Compressed without naming the encoding, or with an encoding that is not built in. None is built in.
            Code::Internal if status.message().contains("compressed-flag") => self.refuse_compressed(),
            Code::Unimplemented if status.message().contains("compressed") => self.refuse_compressed(),
            Code::Internal => {
                self.malformed.inc();
                Status::invalid_argument("malformed message: run the same version of quiver on both ends")
            }
            _ => status,
        }
    }

    fn refuse_compressed(&self) -> Status {
        self.compressed.inc();
        Status::unimplemented("compressed messages are not supported: send the message uncompressed")
    }
}

/// Wraps a server's services in an [`Edge`].
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

impl<S, In, Body> Service<http::Request<In>> for Guarded<S>
where
    S: Service<http::Request<In>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    In: Send + 'static,
    Body: Default + Send,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Boxed<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<In>) -> Self::Future {
        let (mut inner, edge) = (self.inner.clone(), self.edge.clone());
        Box::pin(async move {
            let Ok(_permit) = edge.requests.of(request.uri().path()).try_acquire() else {
                edge.too_many.inc();
                return Ok(Status::unavailable("too many concurrent requests: retry later").into_http());
            };
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            match timeout(REQUEST_TIME_MAX, inner.call(request)).await {
                Ok(response) => Ok(edge.answer(response?)),
                Err(_) => Ok(Status::deadline_exceeded("the request arrived too slowly: retry").into_http()),
            }
        })
    }
}

impl Edge {
    /// Maps the status of a refusal. A response whose headers already have a status carries no message.
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
    fn transport_statuses_are_mapped_and_handler_statuses_pass() {
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
    async fn half_sent_requests_of_actors_leave_room_for_learner_and_admin() {
        let edge = edge();
        // A half-sent request: its handler waits for the rest.
        let answer = service_fn(async |request: http::Request<bool>| {
            if !request.into_body() {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::convert::Infallible>(http::Response::new(()))
        });
        let guarded = edge.layer(answer);
        let call = |path: &str, complete: bool| {
            let request = http::Request::builder().uri(path).body(complete).unwrap();
            let guarded = guarded.clone();
            async move {
                let response = guarded.oneshot(request).await.unwrap();
                Status::from_header_map(response.headers()).map(|status| status.code())
            }
        };
        let (join, health) = ("/quiver.v1.Learner/Join", "/grpc.health.v1.Health/Check");
        assert_eq!(call(join, true).await, None);
        let paths = [join, health].into_iter().cycle();
        let half: Vec<_> =
            paths.take(ACTOR_REQUESTS_MAX).map(|path| tokio::spawn(call(path, false))).collect();
        while edge.requests.actors.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(call(join, true).await, Some(Code::Unavailable));
        assert_eq!(call(health, true).await, Some(Code::Unavailable));
        assert_eq!(edge.too_many.get(), 2);
        for method in ["Replay/Grant", "Replay/Info", "Replay/Sample", "Replay/Inspect", "Learner/Adjust"] {
            assert_eq!(call(&format!("/quiver.v1.{method}"), true).await, None, "{method}");
        }
        for one in half {
            one.abort();
            one.await.unwrap_err();
        }
        assert_eq!(call(join, true).await, None);
    }
}
