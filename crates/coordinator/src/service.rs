//! The learner's gRPC service: joins, weights, reports, and changes by an operator.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::v1::learner_server::Learner;
use proto::v1::watch_weights_reply::Update;
use proto::{PROTOCOL, Report, Segments, Weights, v1};
use rpc::role::{Role, Roles};
use rpc::shard_entry::ShardEntry;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::hub::{Connected, Hub};
use crate::members::{Denied, MemberRole};

/// Time between two progress messages to a member, which are also heartbeats: a member that misses several considers
/// the learner dead.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

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

    /// Checks a call that a member makes with these roles (of its token or certificate) and this ticket.
    fn check_member(
        &self,
        caller: Option<v1::Caller>,
        roles: Option<Roles>,
        (role, index, incarnation): (i32, u32, u64),
        ticket: &[u8],
    ) -> Result<MemberRole, Status> {
        let caller = caller.ok_or_else(|| self.invalid("caller is missing"))?;
        self.check_protocol(caller.protocol)?;
        self.check_run(&caller.run)?;
        let role = self.role(role, roles)?;
        self.check_ticket(role, index, incarnation, ticket)?;
        self.hub.check(role, index, incarnation).map_err(|denied| self.denied(&denied))?;
        Ok(role)
    }

    /// The role of a member, which must be a role of its token or certificate.
    fn role(&self, role: i32, roles: Option<Roles>) -> Result<MemberRole, Status> {
        let (role, needed) = match v1::Role::try_from(role) {
            Ok(v1::Role::Actor) => (MemberRole::Actor, Role::Actor),
            Ok(v1::Role::Evaluator) => (MemberRole::Evaluator, Role::Evaluator),
            _ => return Err(self.invalid("role must be actor or evaluator")),
        };
        let roles = roles.unwrap_or_default();
        if roles.has(needed) {
            return Ok(role);
        }
        let text = format!(
            "{roles} may not take part as {needed}: use --secrets of the role {needed}; 'quiver certs' adds that folder to \
             secrets of version 0.1, then restart the servers"
        );
        Err(self.refuse("role", Status::permission_denied(text)))
    }

    fn check_ticket(
        &self,
        role: MemberRole,
        index: u32,
        incarnation: u64,
        ticket: &[u8],
    ) -> Result<(), Status> {
        if self.hub.is_proven(role, index, incarnation, ticket) {
            return Ok(());
        }
        let role = role.name();
        let text = format!(
            "the ticket does not prove {role} {index} incarnation {incarnation} of this run: join again as a new member"
        );
        Err(self.refuse("identity", Status::failed_precondition(text)))
    }

    fn denied(&self, denied: &Denied) -> Status {
        match denied {
            Denied::Replaced { .. } | Denied::Unknown { .. } => {
                self.refuse("fenced", Status::failed_precondition(denied.to_string()))
            }
            // Not permanent: the caller retries with backoff.
            Denied::Held { .. } | Denied::Reserved => {
                self.refuse("held", Status::already_exists(denied.to_string()))
            }
            Denied::Full { .. } => self.refuse("full", Status::resource_exhausted(denied.to_string())),
            Denied::IndexTooLarge { .. } => self.invalid(&denied.to_string()),
        }
    }

    fn invalid(&self, text: &str) -> Status {
        self.refuse("invalid", Status::invalid_argument(text))
    }

    /// The reports of a request, checked against the role of the member that sends them.
    fn reports(&self, role: MemberRole, request: v1::ReportRequest) -> Result<Vec<Report>, Status> {
        let reports = proto::play::reports(request.episodes, request.evaluation)
            .map_err(|invalid| self.invalid(&invalid.to_string()))?;
        for report in &reports {
            let Report::Evaluation { players, .. } = report else {
                if role != MemberRole::Actor {
                    return Err(self.invalid("only an actor may report training games"));
                }
                continue;
            };
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
        let roles = roles(&request);
        let request = request.into_inner();
        self.check_protocol(request.protocol)?;
        if !request.run.is_empty() {
            self.check_run(&request.run)?;
        }
        let role = self.role(request.role, roles)?;
        let (index, incarnation) = match (request.incarnation, request.index) {
            (0, requested) => self.hub.join(role, requested).map_err(|denied| self.denied(&denied))?,
            (incarnation, Some(index)) => {
                self.check_ticket(role, index, incarnation, &request.ticket)?;
                let readmitted = match request.renew {
                    true => self.hub.renew(role, index, incarnation),
                    false => self.hub.rejoin(role, index, incarnation).map(|()| incarnation),
                };
                (index, readmitted.map_err(|denied| self.denied(&denied))?)
            }
            (_, None) => return Err(self.invalid("incarnation without index: send both, or neither")),
        };
        info!(
            role = role.name(),
            index,
            incarnation,
            rejoined = incarnation == request.incarnation,
            "member joined"
        );
        let run_info = self.hub.run_info();
        Ok(Response::new(v1::JoinReply {
            run: run_info.run.clone(),
            index,
            incarnation,
            learner_incarnation: run_info.incarnation,
            learner_start: run_info.start,
            config: run_info.config.clone(),
            shards: shard_messages(&self.hub.shards()),
            finished: self.hub.is_finished(),
            architecture: run_info.architecture.clone(),
            ticket: self.hub.ticket(role, index, incarnation).into(),
        }))
    }

    type WatchWeightsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchWeightsReply, Status>> + Send>>;

    async fn watch_weights(
        &self,
        request: Request<v1::WatchWeightsRequest>,
    ) -> Result<Response<Self::WatchWeightsStream>, Status> {
        let roles = roles(&request);
        let v1::WatchWeightsRequest { caller, role, index, incarnation, ticket } = request.into_inner();
        let role = self.check_member(caller, roles, (role, index, incarnation), &ticket)?;
        // Capacity 1: the next message is made when the member can take it, from the newest state.
        let (replies, receiver) = mpsc::channel(1);
        let connected = self.hub.connected(role, index, incarnation);
        let watcher = Watcher {
            hub: self.hub.clone(),
            member: (role, index, incarnation),
            weights: self.hub.watch_weights(role),
            sending: None,
            shards: self.hub.watch_shards(),
            replies,
            _connected: connected,
        };
        tokio::spawn(watcher.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let roles = roles(&request);
        let request = request.into_inner();
        let member = (request.role, request.index, request.incarnation);
        let role = self.check_member(request.caller.clone(), roles, member, &request.ticket)?;
        for report in self.reports(role, request)? {
            self.hub.report(report).await;
        }
        Ok(Response::new(v1::ReportReply {}))
    }
}

/// The roles of a request's token or certificate, as the gate found them.
fn roles<T>(request: &Request<T>) -> Option<Roles> {
    request.extensions().get().copied()
}

fn shard_messages(entries: &[ShardEntry]) -> Vec<v1::ShardEntry> {
    entries.iter().map(Into::into).collect()
}

/// One member's stream of weights.
struct Watcher {
    hub: Arc<Hub>,
    member: (MemberRole, u32, u64),
    weights: watch::Receiver<Option<Arc<Weights>>>,
    /// The rest of the version in transit. It is sent to its end before a newer one begins: on a link that takes longer
    /// for a version than the learner takes for the next, the member would otherwise never complete one.
    sending: Option<Segments>,
    shards: watch::Receiver<Vec<ShardEntry>>,
    replies: mpsc::Sender<Result<v1::WatchWeightsReply, Status>>,
    _connected: Connected,
}

impl Watcher {
    async fn run(mut self) {
        let mut finished = self.hub.watch_finished();
        let mut progress = interval(PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.weights.mark_changed();
        // A shard may have moved since the member joined.
        self.shards.mark_changed();
        while let Some(update) = self.next_update(&mut finished, &mut progress).await {
            let (role, index, incarnation) = self.member;
            if let Err(denied) = self.hub.check(role, index, incarnation) {
                let _ = self.replies.send(Err(Status::failed_precondition(denied.to_string()))).await;
                return;
            }
            let ends = matches!(update, Some(Update::Finished(_)));
            let agent_steps = self.hub.replay_status().agent_steps;
            let moved = self.shards.has_changed().unwrap_or(false);
            let shards = if moved { shard_messages(&self.shards.borrow_and_update()) } else { Vec::new() };
            if self.replies.send(Ok(v1::WatchWeightsReply { agent_steps, update, shards })).await.is_err()
                || ends
            {
                return;
            }
        }
    }

    /// Waits for something to send: the end of the run, the next segment of weights, or `Some(None)`, which is a message
    /// of progress. `None` if the stream has ended.
    async fn next_update(
        &mut self,
        finished: &mut watch::Receiver<bool>,
        progress: &mut Interval,
    ) -> Option<Option<Update>> {
        loop {
            if *finished.borrow() {
                return Some(Some(Update::Finished(v1::Finished {})));
            }
            if let Some(segment) = self.sending.as_mut().and_then(Iterator::next) {
                return Some(Some(Update::Segment(segment)));
            }
            self.sending = None;
            tokio::select! {
                biased;
                _ = finished.wait_for(|finished| *finished) => {}
                changed = self.weights.changed() => {
                    changed.ok()?;
                    self.sending = self.weights.borrow_and_update().clone().map(Segments::new);
                }
                _ = self.shards.changed() => {
                    // Read by the caller, after the check that the member still holds its index.
                    self.shards.mark_changed();
                    return Some(None);
                }
                _ = progress.tick() => return Some(None),
                () = self.replies.closed() => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
