//! The learner's gRPC service: joins, weights, reports, and changes by an operator.

use std::pin::Pin;
use std::sync::Arc;

use proto::v1::learner_server::Learner;
use proto::{PROTOCOL, Report, v1};
use rpc::role::{Role, Roles};
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
        let member = (role, index, incarnation);
        let slot = self.hub.streams().open(member).map_err(|too_many| self.busy(too_many))?;
        // Capacity 1: the next message is made when the member can take it, from the newest state.
        let (replies, messages) = mpsc::channel(1);
        let task = tokio::spawn(Watcher::new(&self.hub, member, replies).run());
        self.hub.streams().replace_task(member, task.abort_handle());
        Ok(Response::new(Box::pin(Replies { messages, _slot: slot })))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let roles = roles(&request);
        let request = request.into_inner();
        let index = request.index;
        let member = (request.role, index, request.incarnation);
        let role = self.check_member(request.caller.clone(), roles, member, &request.ticket)?;
        // Never waits: a call that waits holds one of the server's request slots.
        let reports = self.reports(role, request)?;
        self.hub.report(role, index, reports).map_err(|busy| self.busy(busy))?;
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

#[cfg(test)]
mod tests;
