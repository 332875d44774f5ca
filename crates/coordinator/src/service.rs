//! The learner's gRPC edge: joins, weights, reports.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::v1::learner_server::Learner;
use proto::v1::watch_weights_reply::News;
use proto::{PROTOCOL, Report, Weights, v1};
use rpc::place::Place;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::hub::{Connected, Hub};
use crate::members::{Denied, Role};

/// How often members hear of the run's progress. They consider a learner dead after several times this.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The service.
#[derive(Clone, Debug)]
pub struct LearnerService {
    hub: Arc<Hub>,
    refused: prometheus::IntCounterVec,
}

impl LearnerService {
    /// The service of a hub; refused calls are counted by reason.
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
            "the learner speaks protocol {PROTOCOL}, the caller {protocol}: run the same version of quiver on both"
        );
        Err(self.refuse("protocol", Status::failed_precondition(text)))
    }

    fn check_run(&self, run: &str) -> Result<(), Status> {
        let own = &self.hub.charter().run;
        if run == own {
            return Ok(());
        }
        let text =
            format!("this is run {own}, the caller belongs to run {run}: start it anew to join this one");
        Err(self.refuse("run", Status::failed_precondition(text)))
    }

    fn check_member(
        &self,
        caller: Option<v1::Caller>,
        role: i32,
        index: u32,
        incarnation: u64,
    ) -> Result<Role, Status> {
        let caller = caller.ok_or_else(|| self.invalid("caller is missing"))?;
        self.check_protocol(caller.protocol)?;
        self.check_run(&caller.run)?;
        let role = self.role(role)?;
        self.hub.check(role, index, incarnation).map_err(|denied| self.denied(&denied))?;
        Ok(role)
    }

    fn role(&self, role: i32) -> Result<Role, Status> {
        match v1::Role::try_from(role) {
            Ok(v1::Role::Actor) => Ok(Role::Actor),
            Ok(v1::Role::Evaluator) => Ok(Role::Evaluator),
            _ => Err(self.invalid("role must be actor or evaluator")),
        }
    }

    fn denied(&self, denied: &Denied) -> Status {
        match denied {
            Denied::Replaced { .. } | Denied::Unknown { .. } => {
                self.refuse("fenced", Status::failed_precondition(denied.to_string()))
            }
            Denied::Full { .. } => self.refuse("full", Status::resource_exhausted(denied.to_string())),
        }
    }

    fn invalid(&self, text: &str) -> Status {
        self.refuse("invalid", Status::invalid_argument(text))
    }

    /// What is reported, by whoever may report it.
    fn reports(&self, role: Role, request: v1::ReportRequest) -> Result<Vec<Report>, Status> {
        let reports = proto::play::reports(request.episodes, request.evaluation)
            .map_err(|invalid| self.invalid(&invalid.to_string()))?;
        for report in &reports {
            let Report::Evaluation { players, .. } = report else { continue };
            if role != Role::Evaluator {
                return Err(self.invalid("only an evaluator reports evaluations"));
            }
            if players.first().is_none_or(|player| player.name != run::record::AGENT) {
                return Err(self.invalid("an evaluation begins with the agent's scores"));
            }
        }
        Ok(reports)
    }
}

/// Settings in one request.
const CHANGES_MAX: usize = 16;

#[tonic::async_trait]
impl Learner for LearnerService {
    async fn adjust(&self, request: Request<v1::AdjustRequest>) -> Result<Response<v1::AdjustReply>, Status> {
        let settings = request.into_inner().settings;
        if settings.len() > CHANGES_MAX {
            return Err(self.invalid("too many settings at once"));
        }
        let changes = settings.into_iter().collect();
        let resolved = self.hub.adjust(&changes).map_err(|error| self.invalid(&error))?;
        info!(?changes, "an operator has changed the run");
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
            (0, wish) => self.hub.join(role, wish).map_err(|denied| self.denied(&denied))?,
            (incarnation, Some(index)) => {
                self.hub.rejoin(role, index, incarnation).map_err(|denied| self.denied(&denied))?;
                (index, incarnation)
            }
            (_, None) => return Err(self.invalid("who has an incarnation has an index too")),
        };
        info!(role = role.name(), index, incarnation, again = request.incarnation != 0, "joined");
        let charter = self.hub.charter();
        Ok(Response::new(v1::JoinReply {
            run: charter.run.clone(),
            index,
            incarnation,
            learner_incarnation: charter.incarnation,
            config: charter.config.clone(),
            shards: shard_addresses(&self.hub.places()),
            finished: self.hub.is_finished(),
            architecture: charter.architecture.clone(),
        }))
    }

    type WatchWeightsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchWeightsReply, Status>> + Send>>;

    async fn watch_weights(
        &self,
        request: Request<v1::WatchWeightsRequest>,
    ) -> Result<Response<Self::WatchWeightsStream>, Status> {
        let v1::WatchWeightsRequest { caller, role, index, incarnation } = request.into_inner();
        let role = self.check_member(caller, role, index, incarnation)?;
        // One message waits at most: the next is made when it is wanted, and is then the newest.
        let (replies, receiver) = mpsc::channel(1);
        let connected = self.hub.connected(role, index, incarnation);
        let watcher = Watcher {
            hub: self.hub.clone(),
            place: (role, index, incarnation),
            weights: self.hub.watch_weights(role),
            shards: self.hub.watch_places(),
            replies,
            _connected: connected,
        };
        tokio::spawn(watcher.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        let role =
            self.check_member(request.caller.clone(), request.role, request.index, request.incarnation)?;
        for report in self.reports(role, request)? {
            self.hub.report(report).await;
        }
        Ok(Response::new(v1::ReportReply {}))
    }
}

fn shard_addresses(places: &[Place]) -> Vec<v1::ShardAddress> {
    places.iter().map(Into::into).collect()
}

/// One member's stream of weights.
struct Watcher {
    hub: Arc<Hub>,
    place: (Role, u32, u64),
    weights: watch::Receiver<Option<Arc<Weights>>>,
    shards: watch::Receiver<Vec<Place>>,
    replies: mpsc::Sender<Result<v1::WatchWeightsReply, Status>>,
    _connected: Connected,
}

impl Watcher {
    async fn run(mut self) {
        let mut finished = self.hub.watch_finished();
        let mut progress = interval(PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.weights.mark_changed();
        // It may have moved since the member joined.
        self.shards.mark_changed();
        loop {
            let news = tokio::select! {
                biased;
                _ = finished.wait_for(|finished| *finished) => Some(News::Finished(v1::Finished {})),
                changed = self.weights.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let newest = self.weights.borrow_and_update().clone();
                    let Some(newest) = newest else { continue };
                    Some(News::Weights((&*newest).into()))
                }
                _ = self.shards.changed() => {
                    self.shards.mark_changed();
                    None
                }
                _ = progress.tick() => None,
                () = self.replies.closed() => return,
            };
            let (role, index, incarnation) = self.place;
            if let Err(denied) = self.hub.check(role, index, incarnation) {
                let _ = self.replies.send(Err(Status::failed_precondition(denied.to_string()))).await;
                return;
            }
            let ends = matches!(news, Some(News::Finished(_)));
            let agent_steps = self.hub.replay_status().agent_steps;
            let moved = self.shards.has_changed().unwrap_or(false);
            let shards = if moved { shard_addresses(&self.shards.borrow_and_update()) } else { Vec::new() };
            if self.replies.send(Ok(v1::WatchWeightsReply { agent_steps, news, shards })).await.is_err()
                || ends
            {
                return;
            }
        }
    }
}
