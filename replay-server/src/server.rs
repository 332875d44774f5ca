//! Assembles a shard, its lock and its listener, for the binary and for tests.
#![allow(clippy::disallowed_methods, reason = "the shard's process measures and waits")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use prometheus::Registry;
use replay::store::Recovered;
use rpc::address::Address;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use telemetry::Health;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout};
use tonic::service::Routes;

use crate::blocked::BlockedCallers;
use crate::config::{Config, Fsync};
use crate::insert_streams::InsertStreams;
use crate::metrics::Metrics;
use crate::router::ReplayRouter;
use crate::service::{ReplayService, ServiceState, WRITERS_MAX};
use crate::shard::Shard;
use crate::shared_shard::{ShardDropped, SharedShard, WeakSharedShard};

/// How long the shard may take to stop: one job, then freeing its memory.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a shard that exits with its run keeps serving after the end, so that its writers receive Finished.
const RUN_END_DELAY: Duration = Duration::from_secs(2);

/// The bound address of a shard whose store is not open yet. Recovery may take minutes, and the process serves its
/// health meanwhile.
pub struct BoundServer {
    listener: Listener,
    edge: Edge,
    registry: Registry,
    started: Instant,
}

/// A shard that listens, but does not answer yet.
pub struct Server {
    listener: Listener,
    service: Arc<ReplayService>,
    shard: SharedShard,
    shard_dropped: ShardDropped,
    stop: watch::Sender<bool>,
    /// Becomes true when the run ends. `None` if the process keeps serving then.
    run_finished: Option<watch::Receiver<bool>>,
}

impl BoundServer {
    /// Binds the address.
    pub async fn bind(config: &Config, registry: &Registry) -> anyhow::Result<Self> {
        let edge = Edge::register(registry)?;
        let gate = Gate::load(config.secrets.as_deref(), &edge)?;
        let listener = Listener::bind(&config.listen, edge.clone(), gate).await?;
        Ok(Self { listener, edge, registry: registry.clone(), started: Instant::now() })
    }

    /// Opens the shard: restores the snapshot, or recovers the data directory.
    pub fn open(self, config: &Config) -> anyhow::Result<Server> {
        let Self { listener, edge, registry, started } = self;
        let backend = config.store_backend()?;
        let (id, durable) = (backend.id().to_owned(), backend.is_durable());
        let shard = Shard::open(backend, config.memory_limit)?;
        // Only now: a scrape during recovery would see totals of 0, and the next one a jump to the recovered totals.
        let metrics = Metrics::register(&registry);
        log_recovery(&shard, &metrics, started);
        metrics.flush_failed_time.set(shard.last_failed_flush());
        let sync_each = durable && config.fsync == Fsync::Always;
        let (shard, shard_dropped) = SharedShard::new(shard, metrics.clone(), sync_each);
        if let (true, Fsync::Every(period)) = (durable, config.fsync) {
            tokio::spawn(sync_periodically(shard.downgrade(), metrics.clone(), period));
        }
        let (stop, stopping) = watch::channel(false);
        let (run_finished_sender, run_finished) = watch::channel(false);
        let blocked_callers = BlockedCallers::default();
        let context = ServiceState {
            id,
            durable,
            started,
            blocked_callers,
            shard: shard.clone(),
            insert_streams: InsertStreams::new(WRITERS_MAX),
            metrics,
            edge,
            stopping,
            run_finished: run_finished_sender,
        };
        let service = Arc::new(ReplayService::new(context));
        let run_finished = config.exit_with_run.then_some(run_finished);
        Ok(Server { listener, service, shard, shard_dropped, stop, run_finished })
    }
}

impl Server {
    /// Binds the address and opens the shard.
    pub async fn bind(config: &Config, registry: &Registry) -> anyhow::Result<Self> {
        BoundServer::bind(config, registry).await?.open(config)
    }

    /// The shard's permanent id.
    pub fn id(&self) -> &str {
        self.service.id()
    }

    /// The address it listens on, with the actual port.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// The service without the listener, for tests that bring their own connections.
    pub fn router(&self) -> ReplayRouter {
        ReplayRouter(self.service.clone())
    }

    /// Serves until `shutdown` resolves, then ends all streams and stops.
    pub async fn run(self, health: &Health, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { listener, service, shard, mut shard_dropped, stop, run_finished } = self;
        let mut failed = false;
        let stopping = async {
            tokio::select! {
                () = shutdown => {}
                () = update_health(shard, health) => {}
                () = end_of_run(run_finished) => {}
                () = shard_dropped.wait() => failed = true,
            }
            health.stopping();
            stop.send_replace(true);
        };
        listener.serve(Routes::new(ReplayRouter(service)), stopping).await?;
        if failed {
            bail!(
                "the shard failed, see the log above; restart it: with --data-dir it keeps everything stored, without one it restarts \
                 empty"
            );
        }
        // The streams held the last handles, so the shard is being dropped now.
        if timeout(SHUTDOWN_TIMEOUT, shard_dropped.wait()).await.is_err() {
            tracing::warn!(
                timeout_seconds = SHUTDOWN_TIMEOUT.as_secs(),
                "shard did not stop in time, exiting anyway"
            );
        }
        Ok(())
    }
}

/// Logs and counts what the shard recovered from its data directory.
fn log_recovery(shard: &Shard, metrics: &Metrics, started: Instant) {
    let Some((run, _)) = shard.configuration() else { return };
    let recovered = shard.recovered();
    let elapsed_seconds = started.elapsed().as_secs_f64();
    let Recovered {
        chunks,
        items,
        damaged_chunks,
        damaged_priorities,
        damaged_lanes,
        lost_items,
        damaged_state,
        failed_flush,
    } = recovered;
    metrics.record_recovery(&recovered);
    if recovered.is_whole() {
        tracing::info!(run, chunks, items, elapsed_seconds, "recovery completed");
    } else {
        tracing::warn!(
            run,
            chunks,
            items,
            damaged_chunks,
            damaged_priorities,
            damaged_lanes,
            lost_items,
            damaged_state,
            failed_flush,
            elapsed_seconds,
            "recovery completed with data loss"
        );
    }
}

/// Flushes the files to disk periodically, without the shard's lock. Ends with the shard. A failed flush ends the shard: a
/// second one would report success for changes that the kernel has dropped. The next process checks everything.
async fn sync_periodically(shard: WeakSharedShard, metrics: Metrics, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(handle) = shard.upgrade() else { return };
        let Ok(storage) = handle.call(|shard| shard.storage()).await else { return };
        drop(handle);
        let Some(storage) = storage else { continue };
        let started = Instant::now();
        match tokio::task::spawn_blocking(move || storage.sync()).await {
            Ok(Ok(())) => metrics.record_sync(started.elapsed()),
            Ok(Err(error)) => {
                if let Some(handle) = shard.upgrade() {
                    handle.stop_after_failed_flush(&error, started.elapsed()).await;
                }
                return;
            }
            Err(_) => return,
        }
    }
}

/// Returns [`RUN_END_DELAY`] after a learner has reported the end of the run. Never returns if `ended` is `None` (no
/// `--exit-with-run`). A `finished` that was recovered from the disk is not such a report, because a resumed learner may
/// continue the run.
async fn end_of_run(ended: Option<watch::Receiver<bool>>) {
    if let Some(mut ended) = ended
        && ended.wait_for(|&ended| ended).await.is_ok()
    {
        tracing::info!(delay_seconds = RUN_END_DELAY.as_secs_f64(), "run finished, shard exits");
        return sleep(RUN_END_DELAY).await;
    }
    std::future::pending::<()>().await;
}

/// Keeps `/healthz` up to date. Never resolves.
async fn update_health(shard: SharedShard, health: &Health) {
    health.waiting("a learner to configure this shard");
    if shard.wait_for_phase(|phase| phase.configured).await.is_ok() {
        health.ready();
    }
    drop(shard);
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::LearnerIdentity;
    use crate::store_backend::StoreBackend;
    use proto::convert::StoreSpec;
    use replay::StoreOptions;
    use replay::codec::Codec;
    use replay::testing::{self, table};

    #[tokio::test]
    async fn a_failed_flush_stops_the_shard_and_is_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let backend = StoreBackend::lock_directory(folder.path()).unwrap();
        let mut shard = Shard::open(backend, u64::MAX).unwrap();
        let options = StoreOptions { tables: vec![table("replay")], ..testing::options() };
        let spec = StoreSpec { options, codec: Codec::None, actions: 2 };
        let learner = LearnerIdentity { run: "run".into(), incarnation: 1 };
        shard.grant(&learner, Some(spec), None, false).unwrap();
        shard.storage().unwrap().break_flush();
        let metrics = Metrics::register(&Registry::new());
        let (shared, mut dropped) = SharedShard::new(shard, metrics.clone(), false);
        sync_periodically(shared.downgrade(), metrics.clone(), Duration::from_millis(1)).await;
        dropped.wait().await;
        assert_eq!(metrics.syncs.get(), 0);
        let slot = replay::store::directory::SlotDirectory::take(folder.path()).unwrap();
        assert!(slot.flush_marker().is_set().unwrap(), "the next process knows");
    }
}
