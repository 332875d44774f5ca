//! Strangers and malformed calls are refused by the learner with the right status and counted, and no one else
//! notices. What a shard refuses is tested in `replay-server`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use proto::v1;
use rpc::address::Address;
use rpc::channel::channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::harness::Cluster;
use crate::process::until;
use crate::wire::{learner_client, patiently};

fn join() -> v1::JoinRequest {
    v1::JoinRequest { protocol: proto::PROTOCOL, role: v1::Role::Actor.into(), ..v1::JoinRequest::default() }
}

/// One call that must fail, with the counter that must grow by it.
#[track_caller]
fn refused<T: std::fmt::Debug>(
    cluster: &Cluster,
    call: impl Future<Output = Result<T, Status>>,
    code: Code,
    counter: &str,
) {
    let before = cluster.learner.metric(counter);
    let status = cluster.runtime.block_on(patiently(call)).expect_err("it should be refused");
    assert_eq!(status.code(), code, "{status}");
    assert!(!status.message().is_empty());
    assert_eq!(cluster.learner.metric(counter), before + 1.0, "{counter} after {status}");
}

fn counted(reason: &str) -> String {
    format!("quiver_learner_requests_refused_total{{reason=\"{reason}\"}}")
}

fn unread(reason: &str) -> String {
    format!("quiver_rpc_messages_refused_total{{reason=\"{reason}\"}}")
}

#[test]
fn strangers_and_nonsense_are_refused_and_counted_and_training_continues() {
    let cluster = Cluster::start(1, 1, &["--min-size", "128"]);
    cluster.moves_on(&[0]);
    let (run, _) = cluster.run();
    let address = cluster.learner_address();
    let _inside = cluster.runtime.enter();
    let client = || learner_client(&address);
    let call_join = async |request| client().join(request).await;
    let report = async |request| client().report(request).await;

    // Who has no business here.
    let other = v1::JoinRequest { protocol: proto::PROTOCOL + 1, ..join() };
    refused(&cluster, call_join(other), Code::FailedPrecondition, &counted("protocol"));
    let other = v1::JoinRequest { run: "another".into(), ..join() };
    refused(&cluster, call_join(other), Code::FailedPrecondition, &counted("run"));
    for role in [v1::Role::Unspecified as i32, 77] {
        refused(
            &cluster,
            call_join(v1::JoinRequest { role, ..join() }),
            Code::InvalidArgument,
            &counted("invalid"),
        );
    }
    let other = v1::JoinRequest { index: Some(u32::MAX), ..join() };
    refused(&cluster, call_join(other), Code::InvalidArgument, &counted("invalid"));
    let other = v1::JoinRequest { incarnation: 5, ..join() };
    refused(&cluster, call_join(other), Code::InvalidArgument, &counted("invalid"));

    // A member that talks nonsense.
    let seat = v1::JoinRequest { index: Some(70), ..join() };
    let joined = cluster.runtime.block_on(patiently(call_join(seat.clone()))).unwrap().into_inner();
    let member = v1::ReportRequest {
        caller: Some(proto::caller(&run)),
        role: v1::Role::Actor.into(),
        index: joined.index,
        incarnation: joined.incarnation,
        ticket: joined.ticket.clone(),
        ..v1::ReportRequest::default()
    };
    let game = |score| v1::Episode { score, steps: 10, truncated: false };
    let players = |player: &str, scores: &[f64]| {
        let scores = v1::PlayerScores { player: player.into(), scores: scores.to_vec() };
        Some(v1::EvaluationReport { number: 1, players: vec![scores] })
    };
    let nonsense = [
        v1::ReportRequest { episodes: vec![game(1.0), game(f64::NAN)], ..member.clone() },
        v1::ReportRequest { episodes: vec![game(f64::INFINITY)], ..member.clone() },
        v1::ReportRequest { episodes: vec![game(1.0); 4097], ..member.clone() },
        v1::ReportRequest { evaluation: players("agent", &[]), ..member.clone() },
        v1::ReportRequest { evaluation: players("agent", &[f64::NAN]), ..member.clone() },
        v1::ReportRequest { evaluation: players(&"x".repeat(65), &[1.0]), ..member.clone() },
        v1::ReportRequest { caller: None, ..member.clone() },
    ];
    let episodes = cluster.learner.metric("quiver_learner_episodes_total");
    for request in nonsense {
        refused(&cluster, report(request), Code::InvalidArgument, &counted("invalid"));
    }
    assert!(
        cluster.learner.metric("quiver_learner_episodes_total") < episodes + 4096.0,
        "nothing of it was taken"
    );

    // Another caller who wants its index, or speaks in its name.
    refused(&cluster, call_join(seat.clone()), Code::AlreadyExists, &counted("held"));
    let forged = v1::ReportRequest { incarnation: u64::MAX, ..member.clone() };
    refused(&cluster, report(forged), Code::FailedPrecondition, &counted("identity"));

    // A member that was replaced, here by itself.
    let renewal = v1::JoinRequest {
        incarnation: joined.incarnation,
        ticket: joined.ticket.clone(),
        renew: true,
        ..seat.clone()
    };
    cluster.runtime.block_on(patiently(call_join(renewal))).unwrap();
    let late = v1::ReportRequest { episodes: vec![game(1.0)], ..member.clone() };
    refused(&cluster, report(late), Code::FailedPrecondition, &counted("fenced"));
    let watch = v1::WatchWeightsRequest {
        caller: Some(proto::caller(&run)),
        role: v1::Role::Actor.into(),
        index: joined.index,
        incarnation: joined.incarnation,
        ticket: joined.ticket.clone(),
    };
    let watching = async { client().watch_weights(watch).await.map(|_| ()) };
    refused(&cluster, watching, Code::FailedPrecondition, &counted("fenced"));
    let again = v1::JoinRequest { incarnation: joined.incarnation, ticket: joined.ticket, ..seat };
    refused(&cluster, call_join(again), Code::FailedPrecondition, &counted("fenced"));

    // What is not even read.
    let large = v1::JoinRequest { run: "x".repeat(5 << 20), ..join() };
    refused(&cluster, call_join(large), Code::ResourceExhausted, &unread("too_large"));
    refused(&cluster, join_with_a_report(&address, member), Code::InvalidArgument, &unread("malformed"));
    let cut_off = "quiver_rpc_connections_refused_total{reason=\"not_http2\"}";
    let before = cluster.learner.metric(cut_off);
    garbage(&cluster, b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n");
    garbage(&cluster, &[0x16, 0x03, 0x01, 0xff, 0xff, 0x00, 0xde, 0xad]);
    until("garbage is counted", || cluster.learner.metric(cut_off) == before + 2.0);
    garbage(&cluster, &[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0xff; 4096]].concat());

    cluster.moves_on(&[0]);
    assert_eq!(cluster.actors[0].metric("quiver_actor_joins_total"), 1.0, "the actor was not disturbed");
}

/// A message whose fields are of other types than the method's.
async fn join_with_a_report(address: &Address, report: v1::ReportRequest) -> Result<v1::JoinReply, Status> {
    let mut grpc = tonic::client::Grpc::new(channel(address));
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = "/quiver.v1.Learner/Join".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<v1::ReportRequest, v1::JoinReply>::default();
    grpc.unary(Request::new(report), path, codec).await.map(tonic::Response::into_inner)
}

/// Sends bytes, and waits until the learner hangs up.
fn garbage(cluster: &Cluster, bytes: &[u8]) {
    let Address::Unix(path) = cluster.learner_address() else { unreachable!("it is on a socket") };
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(crate::process::PATIENCE)).unwrap();
    // It may hang up before all is said.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it hangs up");
    }
}

#[test]
fn shards_and_learner_tell_their_health_and_their_services() {
    let cluster = Cluster::start(1, 1, &["--min-size", "128"]);
    cluster.moves_on(&[0]);
    for (address, service) in
        [(cluster.learner_address(), "quiver.v1.Learner"), (cluster.shard_address(0), "quiver.v1.Replay")]
    {
        let (status, services) = cluster.runtime.block_on(patiently(async {
            let health = HealthClient::new(channel(&address)).check(HealthCheckRequest::default()).await;
            (health.unwrap().into_inner().status(), services(&address).await)
        }));
        assert_eq!(status, ServingStatus::Serving);
        assert!(services.iter().any(|name| name == service), "{services:?}");
    }
}

async fn services(address: &Address) -> Vec<String> {
    let list = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request: list };
    let mut client = ServerReflectionClient::new(channel(address));
    let mut replies = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    match replies.message().await.unwrap() {
        Some(ServerReflectionResponse {
            message_response: Some(MessageResponse::ListServicesResponse(list)),
            ..
        }) => list.service.into_iter().map(|service| service.name).collect(),
        other => panic!("{other:?}"),
    }
}
