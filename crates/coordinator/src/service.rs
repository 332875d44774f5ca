//! The learner's gRPC service: joins, weights, reports, and changes by an operator.

use std::pin::Pin;
use std::sync::Arc;

use proto::v1::learner_server::Learner;
use proto::{PROTOCOL, Report, v1};
use rpc::shard_entry::ShardEntry;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::hub::Hub;
use crate::members::{Denied, MemberRole};
use crate::watcher::{Replies, Watcher};

#[derive(Clone, Debug)]
pub struct LearnerService {
    hub: Arc<Hub>,
    refused: prometheus::IntCounterVec,
}

impl LearnerService {
    /// The service of a hub. Refused calls are counted in `refused` by reason.
    pub fn new(hub: Arc<Hub>, refused: prometheus::IntCounterVec) -> Self {
        Self { hub, refused }
    }

    fn refuse(&self, reason: &str, status: Status) -> Status {
        self.refused.with_label_values(&[reason]).inc();
        status
    }

    fn check_protocol(&self, protocol: u32) -> Result<(), Status> {
        if protocol == PROTOCOL {
            return Ok(());
        }
        let text = format!(
            "the learner uses protocol {PROTOCOL}, the caller {protocol}: run the same version of quiver on both"
        );
        Err(self.refuse("protocol", Status::failed_precondition(text)))
    }

    fn check_run(&self, run: &str) -> Result<(), Status> {
        let own = &self.hub.run_info().run;
        if run == own {
            return Ok(());
        }
        let text =
            format!("this is run {own}, the caller is a member of run {run}: the caller must join this run");
        Err(self.refuse("run", Status::failed_precondition(text)))
    }

    fn check_member(
        &self,
        caller: Option<v1::Caller>,
        role: i32,
        index: u32,
        incarnation: u64,
    ) -> Result<MemberRole, Status> {
        let caller = caller.ok_or_else(|| self.invalid("caller is missing"))?;
        self.check_protocol(caller.protocol)?;
        self.check_run(&caller.run)?;
        let role = self.role(role)?;
        self.hub.check(role, index, incarnation).map_err(|denied| self.denied(&denied))?;
        Ok(role)
    }

    fn role(&self, role: i32) -> Result<MemberRole, Status> {
        match v1::Role::try_from(role) {
            Ok(v1::Role::Actor) => Ok(MemberRole::Actor),
            Ok(v1::Role::Evaluator) => Ok(MemberRole::Evaluator),
            _ => Err(self.invalid("role must be actor or evaluator")),
        }
    }

    fn denied(&self, denied: &Denied) -> Status {
        match denied {
            Denied::Replaced { .. } | Denied::Unknown { .. } => {
                self.refuse("fenced", Status::failed_precondition(denied.to_string()))
            }
            Denied::Full { .. } => self.busy(denied),
            Denied::IndexTooLarge { .. } => self.invalid(&denied.to_string()),
        }
    }

    /// A shortage: the caller retries with backoff.
    fn busy(&self, shortage: impl std::fmt::Display) -> Status {
        self.refuse("full", Status::unavailable(shortage.to_string()))
    }

    fn invalid(&self, text: &str) -> Status {
        self.refuse("invalid", Status::invalid_argument(text))
    }

    /// The reports of a request, checked against the role of the member that sends them.
    fn reports(&self, role: MemberRole, request: v1::ReportRequest) -> Result<Vec<Report>, Status> {
        let reports = proto::play::reports(request.episodes, request.evaluation)
            .map_err(|invalid| self.invalid(&invalid.to_string()))?;
        for report in &reports {
            let Report::Evaluation { players, .. } = report else { continue };
            if role != MemberRole::Evaluator {
                return Err(self.invalid("only an evaluator may report evaluations"));
            }
            if players.first().is_none_or(|player| player.name != run::record::AGENT) {
                return Err(self.invalid("an evaluation must begin with the agent's scores"));
            }
        }
        Ok(reports)
    }
}

/// Settings that one request may change.
const CHANGES_MAX: usize = 16;

#[tonic::async_trait]
impl Learner for LearnerService {
    async fn adjust(&self, request: Request<v1::AdjustRequest>) -> Result<Response<v1::AdjustReply>, Status> {
        let settings = request.into_inner().settings;
        if settings.len() > CHANGES_MAX {
            return Err(self.invalid("too many settings in one request, at most 16"));
        }
        let changes = settings.into_iter().collect();
        let resolved = self.hub.adjust(&changes).map_err(|error| self.invalid(&error))?;
        let changes: Vec<_> = changes.iter().map(|(key, text)| format!("{key}={text}")).collect();
        info!(changes = changes.join(" "), "settings changed by an operator");
        let config = serde_json::to_string(&resolved).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(v1::AdjustReply { config }))
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        let request = request.into_inner();
        self.check_protocol(request.protocol)?;
        if !request.run.is_empty() {
            self.check_run(&request.run)?;
        }
        let role = self.role(request.role)?;
        let (index, incarnation) = match (request.incarnation, request.index) {
            (0, requested) => self.hub.join(role, requested).map_err(|denied| self.denied(&denied))?,
            (incarnation, Some(index)) => {
                self.hub.rejoin(role, index, incarnation).map_err(|denied| self.denied(&denied))?;
                (index, incarnation)
            }
            (_, None) => return Err(self.invalid("incarnation without index: send both, or neither")),
        };
        info!(role = role.name(), index, incarnation, rejoined = request.incarnation != 0, "member joined");
        let run_info = self.hub.run_info();
        Ok(Response::new(v1::JoinReply {
            run: run_info.run.clone(),
            index,
            incarnation,
            learner_incarnation: run_info.incarnation,
            config: run_info.config.clone(),
            shards: shard_messages(&self.hub.shards()),
            finished: self.hub.is_finished(),
            architecture: run_info.architecture.clone(),
        }))
    }

    type WatchWeightsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchWeightsReply, Status>> + Send>>;

    async fn watch_weights(
        &self,
        request: Request<v1::WatchWeightsRequest>,
    ) -> Result<Response<Self::WatchWeightsStream>, Status> {
        let v1::WatchWeightsRequest { caller, role, index, incarnation } = request.into_inner();
        let role = self.check_member(caller, role, index, incarnation)?;
        let member = (role, index, incarnation);
        let slot = self.hub.streams().open(member).map_err(|too_many| self.busy(too_many))?;
        // Capacity 1: the next message is made when the member can take it, from the newest state.
        let (replies, messages) = mpsc::channel(1);
        let task = tokio::spawn(Watcher::new(&self.hub, member, replies).run());
        self.hub.streams().replace_task(member, task.abort_handle());
        Ok(Response::new(Box::pin(Replies { messages, _slot: slot })))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        let index = request.index;
        let role = self.check_member(request.caller.clone(), request.role, index, request.incarnation)?;
        // Never waits: a call that waits holds one of the server's request slots.
        let reports = self.reports(role, request)?;
        self.hub.report(role, index, reports).map_err(|busy| self.busy(busy))?;
        Ok(Response::new(v1::ReportReply {}))
    }
}

fn shard_messages(entries: &[ShardEntry]) -> Vec<v1::ShardEntry> {
    entries.iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
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

    async fn watch_weights() -> Watched {
        let run_info =
            RunInfo { run: "run".into(), incarnation: 1, config: String::new(), architecture: String::new() };
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
        };
        let service = LearnerService::new(hub.clone(), refused);
        let replies = service.watch_weights(Request::new(request.clone())).await.unwrap().into_inner();
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

    #[tokio::test(start_paused = true)]
    async fn a_second_stream_of_a_member_ends_the_first_and_a_third_is_a_shortage() {
        let Watched { hub, service, request, mut replies, _shards, .. } = watch_weights().await;
        let watch =
            async || service.watch_weights(Request::new(request.clone())).await.map(Response::into_inner);
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
        let v1::WatchWeightsRequest { caller, role, index, incarnation } = request;
        let episodes = vec![v1::Episode { score: 1.0, steps: 9, truncated: false }; 3];
        let message = v1::ReportRequest { caller, role, index, incarnation, episodes, evaluation: None };
        let report =
            async || service.report(Request::new(message.clone())).await.map_err(|status| status.code());
        assert!(report().await.is_ok());
        for _ in 0..1_000 {
            assert_eq!(report().await.err(), Some(Code::Unavailable), "it does not wait");
        }
        assert_eq!(reports.take_episodes().len(), 3);
        assert!(report().await.is_ok());
    }
}
