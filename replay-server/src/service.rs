//! The calls: check, one job for the shard, answer. `wire` is where they come from.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::replay_server::Replay;
use proto::{PROTOCOL, v1};
use rpc::edge::Edge;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::shard::{Identity, Shard, Standing};
use crate::worker::Handle;
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

/// What every call needs. Clones share it all.
#[derive(Clone)]
pub(crate) struct Context {
    pub identity: Identity,
    pub shard: Handle,
    pub metrics: Metrics,
    pub edge: Edge,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
}

impl Context {
    pub fn shard_message(&self, standing: &Standing) -> v1::Shard {
        let waiting = u32::try_from(self.metrics.writers_waiting.get()).unwrap_or(0);
        convert::shard_message(&self.identity, standing, waiting)
    }

    /// Has a job done and looks where the shard stands then.
    async fn standing_after<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Shard) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, v1::Shard), Refusal> {
        let call = self.shard.call(|shard| job(shard).map(|result| (result, shard.standing())));
        let (result, standing) = call.await??;
        Ok((result, self.shard_message(&standing)))
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
}

impl ReplayService {
    pub(crate) fn new(context: Context) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { context, writers: places(WRITERS_MAX), samplers: places(SAMPLERS_MAX) }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    async fn updated(
        &self,
        request: v1::UpdatePrioritiesRequest,
    ) -> Result<v1::UpdatePrioritiesReply, Refusal> {
        let learner = convert::learner(request.caller, request.learner_incarnation)?;
        let verdicts = convert::verdicts(request.updates, request.remove, request.largest_priority)?;
        let update = move |shard: &mut Shard| shard.update(&learner, &verdicts);
        let ((updated, removed), shard) = self.context.standing_after(update).await?;
        let (applied, stale) = (updated.applied, updated.stale);
        Ok(v1::UpdatePrioritiesReply { applied, stale, removed, shard: Some(shard) })
    }

    async fn granted(&self, request: v1::GrantRequest) -> Result<v1::GrantReply, Refusal> {
        let learner = convert::learner(request.caller, request.learner_incarnation)?;
        let wait = Duration::from_millis(convert::wait_milliseconds(request.wait_milliseconds)?.into());
        let spec = request.table.as_ref().map(proto::convert::table).transpose()?;
        let (allowance, finished) = (request.allowance.map(convert::allowance), request.finished);
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
            Ok(())
        };
        let ((), shard) = self.context.standing_after(grant).await?;
        if shard.counters.is_some_and(|counters| counters.inserts >= request.until_inserts) || wait.is_zero()
        {
            return Ok(v1::GrantReply { shard: Some(shard) });
        }
        tokio::select! {
            // Whether they came in time or not, the answer says where the shard stands.
            _ = timeout(wait, self.context.shard.inserts(request.until_inserts)) => {}
            () = self.context.stopped() => return Err(Refusal::Stopping),
        }
        let ((), shard) = self.context.standing_after(|_| Ok(())).await?;
        Ok(v1::GrantReply { shard: Some(shard) })
    }

    async fn looked_at(&self) -> Result<v1::InfoReply, Refusal> {
        let look = |shard: &mut Shard| {
            let told = shard.told();
            Ok(told.map(|(run, spec)| (run.to_owned(), proto::convert::table_message(spec))))
        };
        let (told, shard) = self.context.standing_after(look).await?;
        let (run, table) = told.unzip();
        Ok(v1::InfoReply { protocol: PROTOCOL, run: run.unwrap_or_default(), table, shard: Some(shard) })
    }
}

type Replies<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Replay for ReplayService {
    type InsertStream = Replies<v1::InsertReply>;
    type SampleStream = Replies<v1::SampleReply>;

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
            let _connected = Connected::new(&context.metrics);
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

    async fn info(&self, _: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        let reply = self.looked_at().await;
        reply.map(Response::new).map_err(|refusal| self.context.refuse(&refusal))
    }
}

/// Counts a writer for as long as it is there.
struct Connected<'a>(&'a Metrics);

impl<'a> Connected<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.writers_connected.inc();
        Self(metrics)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.writers_connected.dec();
    }
}
