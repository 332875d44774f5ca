//! The calls: check, one job for the shard, answer. `wire` is where they come from.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::replay_server::Replay;
use proto::{PROTOCOL, v1};
use replay::ShardStatus;
use rpc::edge::Edge;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::{Metrics, OneMore};
use crate::owner::Handle;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::waiting::Waiters;
use crate::writers::End;
use crate::{convert, samplers, writers};

/// Insert streams at once: one for each actor of a large run. Each can hold one message of
/// [`INSERT_BYTES_MAX`](proto::limits::INSERT_BYTES_MAX) bytes, so this is also a bound on memory.
const WRITERS_MAX: usize = 1024;
/// Sample streams at once: a learner has one or a few, and one that came back may overlap with its predecessor. Each
/// can hold replies of up to [`SAMPLE_BYTES_MAX`](proto::limits::SAMPLE_BYTES_MAX) bytes.
const SAMPLERS_MAX: usize = 16;
/// Acknowledgements that may lie ready for a writer that is slow to read them.
const ACKNOWLEDGEMENTS_MAX: usize = 16;

/// Items on top that are shown.
const TOP_MAX: u32 = 1000;
/// Bytes of a snapshot that are copied in one job: a fraction of a millisecond.
const SNAPSHOT_PIECE_BYTES: usize = 1 << 20;
/// How long a reader may take for a piece.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(60);

/// What every call needs. Clones share it all.
#[derive(Clone)]
pub(crate) struct Context {
    /// The shard's name for ever.
    pub id: String,
    /// What it holds survives the process.
    pub durable: bool,
    pub started: Instant,
    pub waiters: Waiters,
    pub shard: Handle,
    pub metrics: Metrics,
    pub edge: Edge,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
    /// Is set to true when a learner says that the run has ended.
    pub ended: watch::Sender<bool>,
}

impl Context {
    pub fn status_message(&self, mut status: ShardStatus) -> v1::ShardStatus {
        status.writers_blocked = u32::try_from(self.metrics.writers_waiting.get()).unwrap_or(0);
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
        // An error says that the server is gone altogether.
        let _ = self.stopping.clone().wait_for(|&stopping| stopping).await;
    }

    fn refuse(&self, refusal: &Refusal) -> Status {
        self.metrics.refused(refusal);
        refusal.status()
    }

    /// Runs one stream to its end, which comes early when the process stops or the caller goes away.
    async fn stream<T>(
        &self,
        replies: &mpsc::Sender<Result<T, Status>>,
        serve: impl Future<Output = Result<(), End>>,
    ) {
        let ended = tokio::select! {
            ended = serve => ended,
            () = self.stopped() => Err(Refusal::Stopping.into()),
            () = replies.closed() => Err(End::Gone),
        };
        let status = match ended {
            Ok(()) | Err(End::Gone) => return,
            Err(End::Refused(refusal)) => self.refuse(&refusal),
            Err(End::Transport(status)) => status,
        };
        // If it can't be sent, nobody is there to read it.
        let _ = replies.send(Err(status)).await;
    }
}

/// The service.
pub struct ReplayService {
    context: Context,
    writers: Arc<Semaphore>,
    samplers: Arc<Semaphore>,
    snapshots: Arc<Semaphore>,
}

impl ReplayService {
    pub(crate) fn new(context: Context) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { context, writers: places(WRITERS_MAX), samplers: places(SAMPLERS_MAX), snapshots: places(1) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.context.id
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    async fn updated(
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

    async fn granted(&self, request: v1::GrantRequest) -> Result<v1::GrantReply, Refusal> {
        let learner = convert::learner(request.caller, request.learner_incarnation)?;
        let wait = Duration::from_millis(convert::wait_milliseconds(request.wait_milliseconds)?.into());
        let spec = request.store.map(proto::convert::store).transpose()?;
        let (allowance, finished) = (request.allowance.map(convert::allowance), request.finished);
        let news = spec.is_some();
        let grant = move |shard: &mut Shard| {
            let news = shard.told().is_none();
            shard.grant(&learner, spec, allowance, finished)?;
            if let Some((run, spec)) = shard.told().filter(|_| news) {
                tracing::info!(
                    run,
                    learner = learner.incarnation,
                    ?spec,
                    "the learner said what this shard holds"
                );
            }
            Ok::<_, Refusal>(shard.status())
        };
        // To make room for a whole store takes a while.
        let status = if news {
            self.context.shard.call_long(grant).await??
        } else {
            self.context.shard.call(grant).await??
        };
        if finished {
            self.context.ended.send_replace(true);
        }
        let shard = self.context.status_message(status);
        if shard.counters.is_some_and(|counters| counters.inserts >= request.until_inserts) || wait.is_zero()
        {
            return Ok(v1::GrantReply { shard: Some(shard) });
        }
        let what = format!("actors to insert until there are {}", request.until_inserts);
        let _waiter = self.context.waiters.enter("learner", &what);
        let _waiting = OneMore::new(&self.context.metrics.grants_waiting);
        tokio::select! {
            // Whether they came in time or not, the answer says where the shard stands.
            _ = timeout(wait, self.context.shard.inserts(request.until_inserts)) => {}
            () = self.context.stopped() => return Err(Refusal::Stopping),
        }
        let ((), shard) = self.context.status_after(|_| Ok(())).await?;
        Ok(v1::GrantReply { shard: Some(shard) })
    }

    async fn looked_at(&self) -> Result<v1::InfoReply, Refusal> {
        let look = |shard: &mut Shard| {
            let told = shard.told();
            let told = told.map(|(run, spec)| (run.to_owned(), proto::convert::store_message(spec)));
            Ok((told, shard.recovered()))
        };
        let ((told, recovered), shard) = self.context.status_after(look).await?;
        let (run, store) = told.unzip();
        Ok(v1::InfoReply {
            protocol: PROTOCOL,
            run: run.unwrap_or_default(),
            store,
            shard: Some(shard),
            durable: self.context.durable,
            uptime_seconds: self.context.started.elapsed().as_secs_f64(),
            waiters: self.context.waiters.list().into_iter().map(proto::status::blocked_message).collect(),
            recovered: Some(convert::recovered_message(recovered)),
        })
    }

    async fn configured(&self, request: v1::ConfigureRequest) -> Result<v1::ConfigureReply, Refusal> {
        let change = convert::change(request);
        let configure = move |shard: &mut Shard| {
            shard.configure(&change)?;
            tracing::info!(?change, "an operator has changed a table");
            Ok::<_, Refusal>(shard.told().map(|(_, spec)| proto::convert::store_message(spec)))
        };
        let store = self.context.shard.call_long(configure).await??;
        Ok(v1::ConfigureReply { store })
    }

    async fn inspected(&self, request: v1::InspectRequest) -> Result<v1::InspectReply, Refusal> {
        let v1::InspectRequest { table, top } = request;
        if top > TOP_MAX {
            return Err(proto::Invalid::range("top", top, format!("at most {TOP_MAX}")).into());
        }
        let inspect = move |shard: &mut Shard| shard.inspect(&table, top as usize);
        let (look, top) = self.context.shard.call_long(inspect).await??;
        Ok(convert::look_message(look, top.finish()))
    }

    async fn shown(&self, request: v1::LookRequest) -> Result<v1::LookReply, Refusal> {
        let key = proto::convert::key(request.key.ok_or(proto::Invalid::Missing("key"))?);
        let (batch, spec) = self.context.shard.call(move |shard| shard.look(&request.table, key)).await??;
        Ok(v1::LookReply { batch: Some(batch.finish()), store: Some(proto::convert::store_message(&spec)) })
    }
}

/// Pieces of a snapshot, each one job of the shard, so that others get their turn in between.
async fn save(
    context: &Context,
    replies: &mpsc::Sender<Result<v1::SnapshotReply, Status>>,
) -> Result<(), End> {
    let mut saving = context.shard.call_long(|shard| shard.begin_saving()).await??;
    let mut more = true;
    while more {
        let piece;
        (piece, more, saving) = context
            .shard
            .call(move |shard| {
                let (piece, more) = shard.save_some(&mut saving, SNAPSHOT_PIECE_BYTES)?;
                Ok::<_, Refusal>((piece, more, saving))
            })
            .await??;
        let reply = v1::SnapshotReply { piece: piece.into() };
        // The one place for snapshots is not kept by someone who takes none of it.
        let sent = timeout(SNAPSHOT_PATIENCE, replies.send(Ok(reply))).await;
        sent.map_err(|_| Refusal::Silent(SNAPSHOT_PATIENCE))?.map_err(|_| End::Gone)?;
    }
    Ok(())
}

type Replies<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Replay for ReplayService {
    type InsertStream = Replies<v1::InsertReply>;
    type SampleStream = Replies<v1::SampleReply>;
    type SnapshotStream = Replies<v1::SnapshotReply>;

    async fn insert(
        &self,
        request: Request<Streaming<v1::InsertRequest>>,
    ) -> Result<Response<Self::InsertStream>, Status> {
        let Ok(place) = self.writers.clone().try_acquire_owned() else {
            return Err(self.context.refuse(&Refusal::TooManyStreams { most: WRITERS_MAX }));
        };
        let (replies, stream) = mpsc::channel(ACKNOWLEDGEMENTS_MAX);
        let context = self.context.clone();
        tokio::spawn(async move {
            let _place = place;
            let _connected = OneMore::new(&context.metrics.writers_connected);
            context.stream(&replies, writers::serve(&context, request.into_inner(), &replies)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let Ok(place) = self.samplers.clone().try_acquire_owned() else {
            return Err(self.context.refuse(&Refusal::TooManyStreams { most: SAMPLERS_MAX }));
        };
        // One reply is being sent while the next is drawn.
        let (replies, stream) = mpsc::channel(1);
        let context = self.context.clone();
        tokio::spawn(async move {
            let _place = place;
            context.stream(&replies, samplers::serve(&context, request.into_inner(), &replies)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesReply>, Status> {
        let reply = self.updated(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn grant(&self, request: Request<v1::GrantRequest>) -> Result<Response<v1::GrantReply>, Status> {
        let reply = self.granted(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureReply>, Status> {
        let reply = self.configured(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectReply>, Status> {
        let reply = self.inspected(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn look(&self, request: Request<v1::LookRequest>) -> Result<Response<v1::LookReply>, Status> {
        let reply = self.shown(request.into_inner()).await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }

    async fn snapshot(
        &self,
        _: Request<v1::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let Ok(place) = self.snapshots.clone().try_acquire_owned() else {
            return Err(self.context.refuse(&Refusal::Busy));
        };
        let (replies, stream) = mpsc::channel(1);
        let context = self.context.clone();
        tokio::spawn(async move {
            let _place = place;
            context.stream(&replies, save(&context, &replies)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn info(&self, _: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        let reply = self.looked_at().await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }
}
