//! A shard, its thread and its listener put together; the same for the binary and for tests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use prometheus::Registry;
use rpc::address::Address;
use rpc::edge::Edge;
use rpc::serve::Listener;
use telemetry::Health;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::service::Routes;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::service::{Context, ReplayService};
use crate::shard::Shard;
use crate::wire::Wire;
use crate::worker::{self, Ended, Handle};

/// How long the shard's thread may take to end: one job, then giving back its memory.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// A shard that listens and does not answer yet.
pub struct Server {
    listener: Listener,
    service: ReplayService,
    shard: Handle,
    ended: Ended,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Binds the address and starts the shard's thread.
    pub async fn bind(config: &Config, registry: &Registry) -> anyhow::Result<Self> {
        let edge = Edge::register(registry)?;
        let metrics = Metrics::register(registry)?;
        let listener = Listener::bind(&config.listen, edge.clone()).await?;
        let shard = Shard::new(config.identity.clone(), config.bytes_limit);
        let (shard, ended) =
            worker::spawn(shard, metrics.clone()).context("cannot start the shard's thread")?;
        let (stop, stopping) = watch::channel(false);
        let context =
            Context { identity: config.identity.clone(), shard: shard.clone(), metrics, edge, stopping };
        Ok(Self { listener, service: ReplayService::new(context), shard, ended, stop })
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Serves until `shutdown` resolves, then ends every stream and stops.
    pub async fn run(self, health: &Health, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { listener, service, shard, mut ended, stop } = self;
        let mut failed = false;
        let stopping = async {
            tokio::select! {
                () = shutdown => {}
                () = follow(shard, health) => {}
                () = ended.wait() => failed = true,
            }
            health.stopping();
            stop.send_replace(true);
        };
        listener.serve(Routes::new(Wire(Arc::new(service))), stopping).await?;
        if failed {
            bail!("the shard's thread failed, see above; its contents are lost, start it anew");
        }
        // With the last stream the last handle goes, and with it the thread.
        if timeout(END_PATIENCE, ended.wait()).await.is_err() {
            tracing::warn!("the shard's thread did not end within {END_PATIENCE:?}, leaving it");
        }
        Ok(())
    }
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
