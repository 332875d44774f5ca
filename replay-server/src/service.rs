//! The RPCs: check the request, run one job on the shard, answer. `router` routes requests here.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::replay_server::Replay;
use proto::{PROTOCOL, StoreSpec, v1};
use replay::ShardStatus;
use rpc::edge::Edge;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::blocked::BlockedCallers;
use crate::insert_budget::{StreamBudget, shard_budget};
use crate::insert_streams::InsertStreams;
use crate::metrics::{GaugeGuard, Metrics};
use crate::refusal::Refusal;
use crate::shard::{Change, Shard};
use crate::shared_shard::SharedShard;
use crate::writers::StreamEnd;
use crate::{convert, sample_streams, writers};

/// The most insert streams at once: one for each actor of a large run. `insert_budget` bounds what they hold, which is
/// not part of --memory-limit.
pub(crate) const WRITERS_MAX: usize = 1024;
/// The most sample streams at once. A learner has a few, and a restarted one may overlap with its predecessor. Each can
/// hold replies of up to [`SAMPLE_BYTES_MAX`](proto::limits::SAMPLE_BYTES_MAX) bytes.
const SAMPLE_STREAMS_MAX: usize = 16;
/// Acknowledgements buffered for a writer that is slow to read them.
const ACKNOWLEDGEMENTS_MAX: usize = 16;

/// The most top items that Inspect returns.
const TOP_MAX: u32 = 1000;
/// Bytes of a snapshot that one job copies. Takes a fraction of a millisecond.
const SNAPSHOT_PIECE_BYTES: usize = 1 << 20;
/// How long the reader of a snapshot may take for a piece.
const SNAPSHOT_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What every call needs. Clones share everything.
#[derive(Clone)]
pub(crate) struct ServiceState {
    /// The shard's permanent id.
    pub id: String,
    /// The contents survive the process.
    pub durable: bool,
    pub started: Instant,
    pub blocked_callers: BlockedCallers,
    pub shard: SharedShard,
    pub insert_streams: InsertStreams,
    pub metrics: Metrics,
    pub edge: Edge,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
    /// Set to true when a learner reports the end of the run.
    pub run_finished: watch::Sender<bool>,
}

impl ServiceState {
    pub fn status_message(&self, mut status: ShardStatus) -> v1::ShardStatus {
        status.writers_blocked = u32::try_from(self.metrics.writers_blocked.get()).unwrap_or(0);
        proto::status::status_message(&status)
    }

    /// Runs a job on the shard and returns the shard's status after it.
    async fn status_after<T>(
        &self,
        job: impl FnOnce(&mut Shard) -> Result<T, Refusal>,
    ) -> Result<(T, v1::ShardStatus), Refusal> {
        let call = self.shard.call(|shard| job(shard).map(|result| (result, shard.status())));
        let (result, status) = call.await??;
        Ok((result, self.status_message(status)))
    }

    async fn stopped(&self) {
        // An error means that the server was dropped, which is a stop too.
        let _ = self.stopping.clone().wait_for(|&stopping| stopping).await;
    }

    fn refuse(&self, refusal: &Refusal) -> Status {
        self.metrics.record_refusal(refusal);
        refusal.status()
    }

    /// Runs one stream to its end. Ends early when the process stops or the caller disconnects.
    async fn stream<T>(
        &self,
        replies: &mpsc::Sender<Result<T, Status>>,
        serve: impl Future<Output = Result<(), StreamEnd>>,
    ) {
        let ended = tokio::select! {
            ended = serve => ended,
            () = self.stopped() => Err(Refusal::Stopping.into()),
            () = replies.closed() => Err(StreamEnd::Disconnected),
        };
        let status = match ended {
            Ok(()) | Err(StreamEnd::Disconnected) => return,
            Err(StreamEnd::Refused(refusal)) => self.refuse(&refusal),
            Err(StreamEnd::Transport(status)) => status,
        };
        // If this fails, the caller has disconnected.
        let _ = replies.send(Err(status)).await;
    }
}

/// Implements the RPCs of `quiver.v1.Replay`.
pub struct ReplayService {
    context: ServiceState,
    /// What the messages of all insert streams may hold together.
    insert_budget: Arc<Semaphore>,
    sample_streams: Arc<Semaphore>,
    snapshots: Arc<Semaphore>,
}

impl ReplayService {
    pub(crate) fn new(context: ServiceState) -> Self {
        let permits = |most| Arc::new(Semaphore::new(most));
        Self {
            context,
            insert_budget: shard_budget(),
            sample_streams: permits(SAMPLE_STREAMS_MAX),
            snapshots: permits(1),
        }
    }

    /// The budget of a new insert stream.
    pub(crate) fn stream_budget(&self) -> Arc<StreamBudget> {
        StreamBudget::new(self.insert_budget.clone())
    }

    pub(crate) fn id(&self) -> &str {
        &self.context.id
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    async fn handle_update(
        &self,
        request: v1::UpdatePrioritiesRequest,
    ) -> Result<v1::UpdatePrioritiesReply, Refusal> {
        let learner = convert::learner(request.caller, request.learner_incarnation)?;
        let updates = request.updates.ok_or(proto::Invalid::Missing("updates"))?;
        let updates = proto::convert::updates(&updates)?;
        let update = move |shard: &mut Shard| shard.update(&learner, &updates);
        let ((updated, removed), shard) = self.context.status_after(update).await?;
        let (applied, stale) = (updated.applied, updated.stale);
        Ok(v1::UpdatePrioritiesReply { applied, stale, removed, shard: Some(shard) })
    }

    async fn handle_grant(&self, request: v1::GrantRequest) -> Result<v1::GrantReply, Refusal> {
        let learner = convert::learner(request.caller, request.learner_incarnation)?;
        let wait = Duration::from_millis(convert::check_wait(request.wait_milliseconds)?.into());
        let spec = request.store.map(proto::convert::store).transpose()?;
        let (allowance, finished) = (request.allowance.map(convert::allowance), request.finished);
        let ticket_key = convert::ticket_key(&request.ticket_key)?;
        let has_spec = spec.is_some();
        let grant = move |shard: &mut Shard| {
            let is_first = shard.configuration().is_none();
            shard.grant(&learner, spec, allowance, finished)?;
            shard.set_ticket_key(ticket_key)?;
            if let Some((run, spec)) = shard.configuration().filter(|_| is_first) {
                let StoreSpec { options, codec, actions } = spec;
                let (tables, bytes, learner_incarnation) =
                    (&options.tables, options.bytes_max, learner.incarnation);
                tracing::info!(run, learner_incarnation, bytes, ?codec, actions, ?tables, "shard configured");
            }
            Ok::<_, Refusal>(shard.status())
        };
        // Allocating a whole store takes a while.
        let status = if has_spec {
            self.context.shard.call_blocking(grant).await??
        } else {
            self.context.shard.call(grant).await??
        };
        if finished {
            self.context.run_finished.send_replace(true);
        }
        let reached = status.inserts_charged() >= request.until_inserts;
        let shard = self.context.status_message(status);
        if reached || wait.is_zero() {
            return Ok(v1::GrantReply { shard: Some(shard) });
        }
        let what = format!("inserts by actors, up to {} in total", request.until_inserts);
        let _blocked = self.context.blocked_callers.enter("learner", &what);
        let _waiting = GaugeGuard::new(&self.context.metrics.grants_blocked);
        tokio::select! {
            // After a timeout too, the reply has the current status.
            _ = timeout(wait, self.context.shard.wait_for_inserts(request.until_inserts)) => {}
            () = self.context.stopped() => return Err(Refusal::Stopping),
        }
        let ((), shard) = self.context.status_after(|_| Ok(())).await?;
        Ok(v1::GrantReply { shard: Some(shard) })
    }

    async fn handle_issue_ticket(
        &self,
        request: v1::IssueTicketRequest,
    ) -> Result<v1::IssueTicketReply, Refusal> {
        let (run, actor, incarnation) = convert::identity(request)?;
        let issue = move |shard: &Shard| shard.issue_ticket(&run, actor, incarnation);
        let ticket = self.context.shard.read(issue).await??;
        Ok(v1::IssueTicketReply { ticket: ticket.into() })
    }

    async fn handle_info(&self) -> Result<v1::InfoReply, Refusal> {
        let read = |shard: &mut Shard| {
            let configuration = shard.configuration();
            let configuration =
                configuration.map(|(run, spec)| (run.to_owned(), proto::convert::store_message(spec)));
            Ok((configuration, shard.recovered()))
        };
        let ((configuration, recovered), shard) = self.context.status_after(read).await?;
        let (run, store) = configuration.unzip();
        Ok(v1::InfoReply {
            protocol: PROTOCOL,
            run: run.unwrap_or_default(),
            store,
            shard: Some(shard),
            durable: self.context.durable,
            uptime_seconds: self.context.started.elapsed().as_secs_f64(),
            blocked_callers: self
                .context
                .blocked_callers
                .list()
                .into_iter()
                .map(proto::status::blocked_message)
                .collect(),
            recovered: Some(convert::recovered_message(recovered)),
        })
    }

    async fn handle_configure(&self, request: v1::ConfigureRequest) -> Result<v1::ConfigureReply, Refusal> {
        let change = convert::change(request);
        let configure = move |shard: &mut Shard| {
            shard.configure(&change)?;
            let Change { table, capacity, priority_exponent } = &change;
            tracing::info!(table, capacity, priority_exponent, "table reconfigured by an operator");
            Ok::<_, Refusal>(shard.configuration().map(|(_, spec)| proto::convert::store_message(spec)))
        };
        let store = self.context.shard.call_blocking(configure).await??;
        Ok(v1::ConfigureReply { store })
    }

    async fn handle_inspect(&self, request: v1::InspectRequest) -> Result<v1::InspectReply, Refusal> {
        let v1::InspectRequest { table, top } = request;
        if top > TOP_MAX {
            return Err(proto::Invalid::range("top", top, format!("at most {TOP_MAX}")).into());
        }
        let inspect = move |shard: &mut Shard| shard.inspect(&table, top as usize);
        let (inspection, top) = self.context.shard.call_blocking(inspect).await??;
        Ok(convert::inspection_message(inspection, top.finish()))
    }

    async fn handle_get_item(&self, request: v1::GetItemRequest) -> Result<v1::GetItemReply, Refusal> {
        let key = proto::convert::key(request.key.ok_or(proto::Invalid::Missing("key"))?);
        let (batch, spec) = self.context.shard.call(move |shard| shard.item(&request.table, key)).await??;
        Ok(v1::GetItemReply {
            batch: Some(batch.finish()),
            store: Some(proto::convert::store_message(&spec)),
        })
    }
}

/// Sends a snapshot piece by piece. Each piece is one job, so that other calls get their turn in between.
async fn save(
    context: &ServiceState,
    replies: &mpsc::Sender<Result<v1::SnapshotReply, Status>>,
) -> Result<(), StreamEnd> {
    let mut saving = context.shard.call_blocking(|shard| shard.begin_snapshot()).await??;
    let mut more = true;
    while more {
        let piece;
        (piece, more, saving) = context
            .shard
            .call(move |shard| {
                let (piece, more) = shard.write_snapshot_piece(&mut saving, SNAPSHOT_PIECE_BYTES)?;
                Ok::<_, Refusal>((piece, more, saving))
            })
            .await??;
        let reply = v1::SnapshotReply { piece: piece.into() };
        // A reader that reads nothing must not keep the only permit for snapshots.
        let sent = timeout(SNAPSHOT_READ_TIMEOUT, replies.send(Ok(reply))).await;
        sent.map_err(|_| Refusal::ReaderTimeout(SNAPSHOT_READ_TIMEOUT))?
            .map_err(|_| StreamEnd::Disconnected)?;
    }
    Ok(())
}

fn too_many_sample_streams() -> Refusal {
    let remedy = "stop other clients that sample from it";
    Refusal::TooManyStreams { kind: "sample", most: SAMPLE_STREAMS_MAX, remedy }
}

type ReplyStream<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Replay for ReplayService {
    type InsertStream = ReplyStream<v1::InsertReply>;
    type SampleStream = ReplyStream<v1::SampleReply>;
    type SnapshotStream = ReplyStream<v1::SnapshotReply>;

    async fn insert(
        &self,
        request: Request<Streaming<v1::InsertRequest>>,
    ) -> Result<Response<Self::InsertStream>, Status> {
        let (replies, stream) = mpsc::channel(ACKNOWLEDGEMENTS_MAX);
        let context = self.context.clone();
        let budget = request.extensions().get::<Arc<StreamBudget>>().cloned();
        let budget = budget.unwrap_or_else(|| self.stream_budget());
        let pending = context.insert_streams.enter();
        tokio::spawn(async move {
            let _connected = GaugeGuard::new(&context.metrics.writers_connected);
            let serving = writers::serve(&context, request.into_inner(), pending, &budget, &replies);
            context.stream(&replies, serving).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let Ok(permit) = self.sample_streams.clone().try_acquire_owned() else {
            return Err(self.context.refuse(&too_many_sample_streams()));
        };
        // A channel of 1: one reply is being sent while the next batch is sampled.
        let (replies, stream) = mpsc::channel(1);
        let context = self.context.clone();
        tokio::spawn(async move {
            let _permit = permit;
            context.stream(&replies, sample_streams::serve(&context, request.into_inner(), &replies)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesReply>, Status> {
        let reply = self.handle_update(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn grant(&self, request: Request<v1::GrantRequest>) -> Result<Response<v1::GrantReply>, Status> {
        let reply = self.handle_grant(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn issue_ticket(
        &self,
        request: Request<v1::IssueTicketRequest>,
    ) -> Result<Response<v1::IssueTicketReply>, Status> {
        let reply = self.handle_issue_ticket(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureReply>, Status> {
        let reply = self.handle_configure(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectReply>, Status> {
        let reply = self.handle_inspect(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn get_item(
        &self,
        request: Request<v1::GetItemRequest>,
    ) -> Result<Response<v1::GetItemReply>, Status> {
        let reply = self.handle_get_item(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn snapshot(
        &self,
        _: Request<v1::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let Ok(permit) = self.snapshots.clone().try_acquire_owned() else {
            return Err(self.context.refuse(&Refusal::SnapshotInProgress));
        };
        let (replies, stream) = mpsc::channel(1);
        let context = self.context.clone();
        tokio::spawn(async move {
            let _permit = permit;
            context.stream(&replies, save(&context, &replies)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn info(&self, _: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        let reply = self.handle_info().await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }
}
