use super::*;
use crate::clock::Clock;
use crate::hub::{HubInputs, RunInfo};
use crate::reports::Reports;
use crate::watcher::PROGRESS_EVERY;
use proto::limits::SEGMENT_BYTES;
use proto::v1::watch_weights_reply::Update;
use proto::{Weights, WeightsAssembly};
use replay::{ReplayStatus, WeightsVersion};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{advance, timeout};
use tokio_stream::StreamExt;
use tonic::Code;

const SEGMENTS: u64 = 4;

/// Publishes a version of four segments.
fn publish(hub: &Hub, number: u64) {
    let version = WeightsVersion { incarnation: 1, number };
    let safetensors = vec![number as u8; SEGMENTS as usize * SEGMENT_BYTES].into();
    hub.publish(Arc::new(Weights { version, safetensors, evaluation: None }));
}

type Replies = <LearnerService as Learner>::WatchWeightsStream;

/// The learner's state, and the stream of an actor.
struct Watched {
    hub: Arc<Hub>,
    service: LearnerService,
    request: v1::WatchWeightsRequest,
    reports: Reports,
    replies: Replies,
    _shards: watch::Sender<Vec<ShardEntry>>,
}

/// A request by the holder of a token of this role.
fn by<T>(role: Role, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Roles::default().with(role));
    request
}

async fn watch_weights() -> Watched {
    let run_info = RunInfo::for_tests();
    let resolved = settings::Layers::default().resolve(Some("cartpole")).unwrap();
    let (shards, entries) = watch::channel(vec![ShardEntry::unnamed("shard:1".parse().unwrap())]);
    let replay = ReplayStatus { agent_steps: 77, ..ReplayStatus::default() };
    let inputs = HubInputs { shards: entries, replay: watch::channel(replay).1 };
    let (hub, reports) = Hub::new(run_info, resolved, "unused".into(), inputs, Clock::system());
    let (index, incarnation) = hub.join(MemberRole::Actor, None).unwrap();
    let options = prometheus::Opts::new("refused", "Calls refused");
    let refused = prometheus::IntCounterVec::new(options, &["reason"]).unwrap();
    let request = v1::WatchWeightsRequest {
        caller: Some(proto::caller("run")),
        role: v1::Role::Actor.into(),
        index,
        incarnation,
        ticket: hub.ticket(MemberRole::Actor, index, incarnation).into(),
    };
    let service = LearnerService::new(hub.clone(), refused);
    let replies = service.watch_weights(by(Role::Actor, request.clone())).await.unwrap().into_inner();
    Watched { hub, service, request, reports, replies, _shards: shards }
}

/// The next message, which comes within two intervals of progress.
async fn next(replies: &mut Replies) -> v1::WatchWeightsReply {
    let reply = timeout(2 * PROGRESS_EVERY, replies.next()).await.expect("the learner is not silent");
    let reply = reply.unwrap().unwrap();
    assert_eq!(reply.agent_steps, 77, "every message carries the progress");
    reply
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_receives_whole_versions_and_skips_those_in_between() {
    let Watched { hub, mut replies, _shards, .. } = watch_weights().await;
    let (mut assembly, mut complete, mut published) = (WeightsAssembly::default(), Vec::new(), 0);
    // Each message takes as long as two versions, so a version of four takes as long as eight.
    while complete.len() < 6 {
        for _ in 0..2 {
            published += 1;
            publish(&hub, published);
            advance(PROGRESS_EVERY).await;
        }
        if let Some(Update::Segment(segment)) = next(&mut replies).await.update {
            let weights = assembly.add(&segment).expect("no version is interrupted by another");
            complete.extend(weights.map(|weights| weights.version.number));
        }
    }
    let skipped: Vec<u64> = complete.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(skipped[1..].iter().all(|&versions| versions == 2 * SEGMENTS), "{complete:?}");
    // Two messages wait: one to be taken, one to be put in its place.
    assert!(complete[5] + 2 * (SEGMENTS + 2) >= published, "{complete:?} of {published}");
}

#[tokio::test(start_paused = true)]
async fn a_complete_version_is_followed_by_progress_and_its_memory_is_free() {
    let Watched { hub, mut replies, _shards, .. } = watch_weights().await;
    publish(&hub, 1);
    let first = next(&mut replies).await;
    assert!(first.shards.len() == 1, "the first reply has the shards");
    let mut updates = vec![first.update];
    while updates.last().unwrap().is_some() {
        updates.push(next(&mut replies).await.update);
    }
    assert_eq!(updates.len() as u64, SEGMENTS + 1);
    drop(updates);
    let mut published = hub.watch_weights(MemberRole::Actor);
    let weights = published.borrow_and_update().clone().unwrap();
    assert_eq!(Arc::strong_count(&weights), 2, "the hub's and ours");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_run_does_not_wait_for_the_rest_of_a_version() {
    let Watched { hub, mut replies, _shards, .. } = watch_weights().await;
    publish(&hub, 1);
    assert!(matches!(next(&mut replies).await.update, Some(Update::Segment(_))));
    hub.finish();
    let mut segments = 0;
    while let Some(Update::Segment(_)) = next(&mut replies).await.update {
        segments += 1;
    }
    assert!(segments <= 2, "only messages that were made before");
    assert!(replies.next().await.is_none(), "the stream ends");
}

/// A learner's service without a stream.
fn service() -> (Arc<Hub>, LearnerService, Reports) {
    let resolved = settings::Layers::default().resolve(Some("cartpole")).unwrap();
    let shards = watch::channel(Vec::new()).1;
    let inputs = HubInputs { shards, replay: watch::channel(ReplayStatus::default()).1 };
    let (hub, reports) = Hub::new(RunInfo::for_tests(), resolved, "unused".into(), inputs, Clock::system());
    let options = prometheus::Opts::new("refused", "Calls refused");
    let refused = prometheus::IntCounterVec::new(options, &["reason"]).unwrap();
    (hub.clone(), LearnerService::new(hub, refused), reports)
}

fn join(role: v1::Role, index: Option<u32>) -> v1::JoinRequest {
    v1::JoinRequest { protocol: PROTOCOL, role: role.into(), index, ..v1::JoinRequest::default() }
}

/// The request of a member to keep its incarnation.
fn again(joined: &v1::JoinReply, role: v1::Role) -> v1::JoinRequest {
    let v1::JoinReply { index, incarnation, ticket, .. } = joined.clone();
    v1::JoinRequest { incarnation, ticket, ..join(role, Some(index)) }
}

fn report(joined: &v1::JoinReply, role: v1::Role) -> v1::ReportRequest {
    let v1::JoinReply { index, incarnation, ticket, .. } = joined.clone();
    let caller = Some(proto::caller("run"));
    v1::ReportRequest { caller, role: role.into(), index, incarnation, ticket, ..Default::default() }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    service: &LearnerService,
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) {
    assert_eq!(answer.unwrap_err().code(), code);
    assert_eq!(service.refused.with_label_values(&[reason]).get(), 1, "{reason}");
    service.refused.reset();
}

#[tokio::test]
async fn a_member_proves_its_incarnation_in_every_call() {
    use tonic::Code::{AlreadyExists, FailedPrecondition};
    let (hub, service, _reports) = service();
    let victim = service.join(by(Role::Actor, join(v1::Role::Actor, None))).await.unwrap().into_inner();
    let other = service.join(by(Role::Actor, join(v1::Role::Actor, None))).await.unwrap().into_inner();
    let forgeries = [
        v1::JoinReply { ticket: other.ticket.clone(), ..victim.clone() },
        v1::JoinReply { ticket: Vec::new().into(), ..victim.clone() },
        v1::JoinReply { incarnation: u64::MAX, ..victim.clone() },
        v1::JoinReply { incarnation: u64::MAX, ticket: other.ticket.clone(), ..victim.clone() },
    ];
    for forged in forgeries {
        let request = by(Role::Actor, again(&forged, v1::Role::Actor));
        refused(&service, service.join(request).await, FailedPrecondition, "identity");
        let request = v1::JoinRequest { renew: true, ..again(&forged, v1::Role::Actor) };
        refused(&service, service.join(by(Role::Actor, request)).await, FailedPrecondition, "identity");
        let request = by(Role::Actor, report(&forged, v1::Role::Actor));
        refused(&service, service.report(request).await, FailedPrecondition, "identity");
        let v1::JoinReply { index, incarnation, ticket, .. } = forged;
        let caller = Some(proto::caller("run"));
        let role = v1::Role::Actor.into();
        let request = v1::WatchWeightsRequest { caller, role, index, incarnation, ticket };
        let watched = service.watch_weights(by(Role::Actor, request)).await.map(|_| ());
        refused(&service, watched, FailedPrecondition, "identity");
    }
    let request = by(Role::Actor, join(v1::Role::Actor, Some(victim.index)));
    refused(&service, service.join(request).await, AlreadyExists, "held");
    service.report(by(Role::Actor, report(&victim, v1::Role::Actor))).await.unwrap();
    // A ticket of a former start of the learner is one of this run.
    let former = hub.ticket(MemberRole::Actor, 9, 1 << 20).into();
    let former = v1::JoinReply { index: 9, incarnation: 1 << 20, ticket: former, ..victim.clone() };
    let reply = service.join(by(Role::Actor, again(&former, v1::Role::Actor))).await.unwrap().into_inner();
    assert_eq!((reply.index, reply.incarnation, &reply.ticket), (9, 1 << 20, &former.ticket));
    // Its holder may replace itself.
    let request = v1::JoinRequest { renew: true, ..again(&victim, v1::Role::Actor) };
    let renewed = service.join(by(Role::Actor, request)).await.unwrap().into_inner();
    assert!(renewed.index == victim.index && renewed.incarnation > victim.incarnation);
    let late = service.report(by(Role::Actor, report(&victim, v1::Role::Actor))).await;
    refused(&service, late, FailedPrecondition, "fenced");
}

#[tokio::test]
async fn actors_and_evaluators_take_part_only_as_themselves() {
    use tonic::Code::{FailedPrecondition, InvalidArgument, PermissionDenied};
    let (_hub, service, _reports) = service();
    for (token, claimed) in [(Role::Actor, v1::Role::Evaluator), (Role::Evaluator, v1::Role::Actor)] {
        let request = by(token, join(claimed, None));
        refused(&service, service.join(request).await, PermissionDenied, "role");
    }
    let unknown = Request::new(join(v1::Role::Actor, None));
    refused(&service, service.join(unknown).await, PermissionDenied, "role");
    let actor = service.join(by(Role::Actor, join(v1::Role::Actor, None))).await.unwrap().into_inner();
    let evaluator =
        service.join(by(Role::Evaluator, join(v1::Role::Evaluator, None))).await.unwrap().into_inner();
    assert_eq!((actor.index, evaluator.index), (0, 0));
    // A ticket proves one role.
    let request = by(Role::Actor, again(&evaluator, v1::Role::Actor));
    refused(&service, service.join(request).await, FailedPrecondition, "identity");
    let players = vec![v1::PlayerScores { player: "agent".into(), scores: vec![1.0] }];
    let evaluation = Some(v1::EvaluationReport { number: 1, players });
    let episodes = vec![v1::Episode { score: 1.0, steps: 10, truncated: false }];
    let scores = |joined, role| v1::ReportRequest { evaluation: evaluation.clone(), ..report(joined, role) };
    let games = |joined, role| v1::ReportRequest { episodes: episodes.clone(), ..report(joined, role) };
    let by_actor = |request| service.report(by(Role::Actor, request));
    let by_evaluator = |request| service.report(by(Role::Evaluator, request));
    refused(&service, by_actor(scores(&actor, v1::Role::Actor)).await, InvalidArgument, "invalid");
    refused(&service, by_actor(scores(&evaluator, v1::Role::Evaluator)).await, PermissionDenied, "role");
    refused(&service, by_evaluator(games(&evaluator, v1::Role::Evaluator)).await, InvalidArgument, "invalid");
    by_actor(games(&actor, v1::Role::Actor)).await.unwrap();
    by_evaluator(scores(&evaluator, v1::Role::Evaluator)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_stream_of_a_member_ends_the_first_and_a_third_is_a_shortage() {
    let Watched { hub, service, request, mut replies, _shards, .. } = watch_weights().await;
    let watch =
        async || service.watch_weights(by(Role::Actor, request.clone())).await.map(Response::into_inner);
    publish(&hub, 1);
    next(&mut replies).await;
    let mut second = watch().await.unwrap();
    next(&mut second).await;
    while let Some(reply) = replies.next().await {
        assert!(reply.is_ok(), "what was made before");
    }
    assert_eq!(hub.present(MemberRole::Actor), 1);
    // The bodies of both are still held by the connection.
    let refused = watch().await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    drop(replies);
    assert!(watch().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_read_holds_no_weights_for_ever() {
    let Watched { hub, replies, _shards, .. } = watch_weights().await;
    publish(&hub, 1);
    let weights = hub.watch_weights(MemberRole::Actor).borrow_and_update().clone().unwrap();
    let weak = Arc::downgrade(&weights);
    drop(weights);
    publish(&hub, 2);
    timeout(Duration::from_secs(3600), std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(hub.present(MemberRole::Actor), 0, "its stream has ended");
    assert!(weak.upgrade().is_none());
    drop(replies);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_reads_a_version_too_slowly_gets_a_shortage() {
    let Watched { hub, mut replies, _shards, .. } = watch_weights().await;
    publish(&hub, 1);
    let end = loop {
        advance(Duration::from_secs(25)).await;
        match replies.next().await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_members_next_report_is_accepted_when_its_last_one_was_handled() {
    let Watched { service, request, mut reports, _shards, .. } = watch_weights().await;
    let v1::WatchWeightsRequest { caller, role, index, incarnation, ticket } = request;
    let episodes = vec![v1::Episode { score: 1.0, steps: 9, truncated: false }; 3];
    let message = v1::ReportRequest { caller, role, index, incarnation, episodes, evaluation: None, ticket };
    let report =
        async || service.report(by(Role::Actor, message.clone())).await.map_err(|status| status.code());
    assert!(report().await.is_ok());
    for _ in 0..1_000 {
        assert_eq!(report().await.err(), Some(Code::Unavailable), "it does not wait");
    }
    assert_eq!(reports.take_episodes().len(), 3);
    assert!(report().await.is_ok());
}
