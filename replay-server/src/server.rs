//! A shard, its owner and its listener put together; the same for the binary and for tests.

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

use crate::config::{Config, Fsync};
use crate::metrics::Metrics;
use crate::owner::{self, Ended, Handle, WeakHandle};
use crate::service::{Context, ReplayService};
use crate::shard::Shard;
use crate::waiting::Waiters;
use crate::wire::Wire;

/// How long the shard may take to end: one job, then giving back its memory.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// How long a shard that ends with its run stays: whoever writes to it hears of the end first.
const FAREWELL: Duration = Duration::from_secs(2);

/// A shard that listens and does not answer yet.
pub struct Server {
    listener: Listener,
    service: Arc<ReplayService>,
    shard: Handle,
    ended: Ended,
    stop: watch::Sender<bool>,
    /// Becomes true when the run ends, if that is a reason to stop.
    run_ended: Option<watch::Receiver<bool>>,
}

impl Server {
    /// Opens the shard and binds the address.
    pub async fn bind(config: &Config, registry: &Registry) -> anyhow::Result<Self> {
        let edge = Edge::register(registry)?;
        let metrics = Metrics::register(registry);
        let gate = Gate::load(config.secrets.as_deref(), &edge)?;
        let listener = Listener::bind(&config.listen, edge.clone(), gate).await?;
        let started = Instant::now();
        let place = config.place()?;
        let (id, durable) = (place.id().to_owned(), place.is_durable());
        let shard = Shard::open(place, config.bytes_limit)?;
        report(&shard, &metrics, started);
        let sync_each = durable && config.fsync == Fsync::Always;
        let (shard, ended) = owner::keep(shard, metrics.clone(), sync_each);
        if let (true, Fsync::Every(period)) = (durable, config.fsync) {
            tokio::spawn(sync_again_and_again(shard.downgrade(), metrics.clone(), period));
        }
        let (stop, stopping) = watch::channel(false);
        let (run_ends, run_ended) = watch::channel(false);
        let waiters = Waiters::default();
        let context = Context {
            id,
            durable,
            started,
            waiters,
            shard: shard.clone(),
            metrics,
            edge,
            stopping,
            ended: run_ends,
        };
        let service = Arc::new(ReplayService::new(context));
        let run_ended = config.end_with_run.then_some(run_ended);
        Ok(Self { listener, service, shard, ended, stop, run_ended })
    }

    /// The shard's name for ever.
    pub fn id(&self) -> &str {
        self.service.id()
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// The calls without the listener: what comes out of a connection goes in here.
    pub fn wire(&self) -> Wire {
        Wire(self.service.clone())
    }

    /// Serves until `shutdown` resolves, then ends every stream and stops.
    pub async fn run(self, health: &Health, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { listener, service, shard, mut ended, stop, run_ended } = self;
        let mut failed = false;
        let stopping = async {
            tokio::select! {
                () = shutdown => {}
                () = follow(shard, health) => {}
                () = end_of_run(run_ended) => {}
                () = ended.wait() => failed = true,
            }
            health.stopping();
            stop.send_replace(true);
        };
        listener.serve(Routes::new(Wire(service)), stopping).await?;
        if failed {
            bail!("the shard failed, see above; start it anew: a data directory has kept what was stored");
        }
        // With the last stream the last handle goes, and with it the shard.
        if timeout(END_PATIENCE, ended.wait()).await.is_err() {
            tracing::warn!("the shard did not end within {END_PATIENCE:?}, leaving it");
        }
        Ok(())
    }
}

/// Says what a former life has left.
fn report(shard: &Shard, metrics: &Metrics, started: Instant) {
    let Some((run, _)) = shard.told() else { return };
    let recovered = shard.recovered();
    let seconds = started.elapsed().as_secs_f64();
    let Recovered { chunks, items, .. } = recovered;
    metrics.recovered(&recovered);
    if recovered.is_whole() {
        tracing::info!(run, chunks, items, seconds, "found everything as it was left");
    } else {
        tracing::warn!(run, seconds, ?recovered, "found damage; what was hit is dropped, the rest is there");
    }
}

/// Brings everything to the disk again and again, beside the shard's work. Ends with the shard.
async fn sync_again_and_again(shard: WeakHandle, metrics: Metrics, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(handle) = shard.upgrade() else { return };
        let Ok(home) = handle.call(|shard| shard.home()).await else { return };
        drop(handle);
        let Some(home) = home else { continue };
        let started = Instant::now();
        match tokio::task::spawn_blocking(move || home.sync()).await {
            Ok(Ok(())) => metrics.synced(started.elapsed()),
            Ok(Err(error)) => tracing::error!(%error, "cannot write to the data directory"),
            Err(_) => return,
        }
    }
}

/// Resolves a moment after a learner said that the run has ended; never if that is no reason to stop. What the data
/// directory remembers of the end does not count: the learner may come to go further.
async fn end_of_run(ended: Option<watch::Receiver<bool>>) {
    if let Some(mut ended) = ended
        && ended.wait_for(|&ended| ended).await.is_ok()
    {
        tracing::info!("the run has ended");
        return sleep(FAREWELL).await;
    }
    std::future::pending::<()>().await;
}

/// Keeps `/healthz` up to date, for ever.
async fn follow(shard: Handle, health: &Health) {
    health.waiting("the learner to say what this shard holds");
    if shard.phase(|phase| phase.configured).await.is_ok() {
        health.ready();
    }
    drop(shard);
    std::future::pending::<()>().await;
}
