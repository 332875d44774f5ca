//! Runs an actor process from its command line: joins a run, acts or evaluates, and rejoins if it was replaced.
#![allow(clippy::disallowed_methods, reason = "the actor's process measures its work")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agents::{Architecture, QNetwork};
use anyhow::{Context, Result, bail};
use clap::Parser;
use prometheus::Registry;
use proto::{Weights, v1};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::membership::{Membership, join, new_member, shards_in_use};
use rpc::shard_entry::ShardEntry;
use settings::Resolved;
use settings::seed::{self, Purpose};
use telemetry::{Health, TelemetryArgs};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Duration, timeout};
use tracing::{info, warn};

use crate::evaluator::Evaluator;
use crate::metrics::Metrics;
use crate::worker::Worker;

/// How often a waiting process polls for a stop signal.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What an actor is blocked on while it has no shard to write to.
const NO_SHARD: &str = "a shard: all shards of the run are excluded or have not rejoined it yet; start a lost shard again, or \
                        include others with 'quiver adjust RUN --without-shards none'";

/// Interval of the log line about a wait.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Plays games with the newest weights and streams the experience to the replay shards.
///
/// It needs the learner's address, and its secrets if the run has any: the learner supplies the settings and the shard
/// addresses. Use several lanes (environments) per actor before several actors, and at most one actor per core. 'quiver train' starts everything on one machine.
#[derive(Debug, Parser)]
#[command(name = "quiver-actor", version)]
pub struct Args {
    /// Address of the learner: host:port or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    learner: Address,
    /// Connect over TLS. DIR is the folder `actor` that `quiver certs` created, or `evaluator` with --evaluate
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
    /// Evaluate: play whole games for their scores on request of the learner, and write nothing to the replay
    #[arg(long)]
    evaluate: bool,
    /// Lanes (environments) of this actor; one forward pass of the network evaluates the states of all [default: the run's
    /// setting]
    #[arg(long)]
    lanes: Option<u32>,
    /// Request this actor index, waiting while another actor has it [default: the lowest free index]
    #[arg(long)]
    index: Option<u32>,
    /// Exit at once, with code 0, when stdin closes: for launchers that hold the other end of a pipe, so this process ends
    /// with them. With stdin at /dev/null (systemd, nohup) it exits at its start
    #[arg(long)]
    exit_with_parent: bool,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// How a membership ended.
pub(crate) enum MembershipEnd {
    /// The run has ended, or this process received a stop signal.
    Done,
    /// The learner or a shard rejected this member: another process has its index, or it is of another run or unknown. Join
    /// as a new member.
    Rejected(String),
    /// The run continues with other shards: rejoin with the same index.
    ShardsChanged,
}

/// State that actors and evaluators share.
pub(crate) struct JoinedProcess {
    pub membership: Membership,
    pub credentials: Credentials,
    pub resolved: Resolved,
    pub architecture: Architecture,
    pub network: QNetwork,
    pub metrics: Arc<Metrics>,
    pub health: Health,
    pub stop: Arc<AtomicBool>,
}

impl Args {
    /// Runs the actor to its end.
    pub fn run(&self) -> Result<()> {
        telemetry::init(&self.telemetry)?;
        if self.exit_with_parent {
            telemetry::exit_with_parent();
        }
        // One libtorch thread per process, because many actors share the cores.
        agents::keep_freed_memory();
        tch::set_num_threads(1);
        if self.lanes == Some(0) {
            bail!("--lanes is 0, must be at least 1");
        }
        let credentials = Credentials::load(self.secrets.as_deref())?;
        let stop = stop_signal(self.evaluate)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let _entered = runtime.enter();
        let (registry, health) = (Registry::new(), Health::new());
        let metrics = Arc::new(Metrics::register(&registry));
        let name = if self.evaluate { "evaluator" } else { "actor" };
        runtime.block_on(telemetry::serve(&self.telemetry, name, registry, health.clone()))?;
        let role = if self.evaluate { v1::Role::Evaluator } else { v1::Role::Actor };
        let mut request = new_member(role, self.index);
        while !stop.load(Ordering::Relaxed) {
            let joined = match self.join(&runtime, &credentials, request.clone(), &metrics, &health, &stop) {
                Err(error) if request.renew => {
                    warn!(%error, "index lost, joining with a free index");
                    request = new_member(role, None);
                    continue;
                }
                joined => joined?,
            };
            let Some(mut member) = joined else { break };
            let index = member.membership.joined.index;
            let renewal = member.membership.renewal(role);
            metrics.joins.inc();
            let end = match self.evaluate {
                true => Evaluator::new(member).run(&runtime)?,
                false => match member.wait_for_shards(&runtime) {
                    Ok(shards) => Worker::new(member, &shards)?.run(&runtime)?,
                    Err(end) => end,
                },
            };
            match end {
                MembershipEnd::Done => break,
                MembershipEnd::Rejected(reason) => {
                    warn!(index, error = reason, "membership lost, rejoining with a free index");
                    // Another process has the index now.
                    request = new_member(role, None);
                }
                MembershipEnd::ShardsChanged => {
                    info!(index, "shard set of the run changed, rejoining");
                    request = renewal;
                }
            }
        }
        health.stopping();
        info!(role = name, "process exiting");
        drop(_entered);
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(())
    }

    /// Joins the run. `None` if the run has ended or this process received a stop signal.
    fn join(
        &self,
        runtime: &Runtime,
        credentials: &Credentials,
        request: v1::JoinRequest,
        metrics: &Arc<Metrics>,
        health: &Health,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<JoinedProcess>> {
        let name = if self.evaluate { "evaluator" } else { "actor" };
        metrics.set_blocked_on(Some("learner"));
        health.waiting(format!("the learner at {}", self.learner));
        info!(learner = %self.learner, role = name, requested_index = request.index, "joining the run");
        let mut joining =
            Box::pin(join(self.learner.clone(), credentials, request, std::process::id().into()));
        let membership = loop {
            match runtime.block_on(async { timeout(POLL_INTERVAL, &mut joining).await }) {
                Ok(joined) => break joined?,
                Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
                Err(_) => {}
            }
        };
        metrics.set_blocked_on(None);
        let joined = &membership.joined;
        if joined.finished {
            info!("run finished, exiting");
            return Ok(None);
        }
        info!(run = joined.run, index = joined.index, incarnation = joined.incarnation, "joined the run");
        let mut resolved: Resolved = serde_json::from_str(&joined.config)
            .context("cannot parse the learner's settings: run the same version of quiver on both")?;
        if let Some(lanes) = self.lanes {
            resolved.settings.lanes = lanes;
        }
        let architecture: Architecture = serde_json::from_str(&joined.architecture).context(
            "this actor does not know the learner's network: run the same version of quiver on both",
        )?;
        let mut rng = seed::generator(resolved.settings.seed, Purpose::Weights, &[]);
        if let Some(warning) = agents::device::precision_warning(architecture.precision, tch::Device::Cpu) {
            warn!("{warning}");
        }
        let network = QNetwork::random(architecture, tch::Device::Cpu, &mut rng)?;
        let (metrics, health, stop) = (metrics.clone(), health.clone(), stop.clone());
        let credentials = credentials.clone();
        Ok(Some(JoinedProcess {
            membership,
            credentials,
            resolved,
            architecture,
            network,
            metrics,
            health,
            stop,
        }))
    }
}

impl JoinedProcess {
    /// Why this membership ends, if it does.
    pub fn end(&self) -> Option<MembershipEnd> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(MembershipEnd::Done);
        }
        let update = self.membership.updates.borrow();
        if update.finished {
            info!("run finished, exiting");
            return Some(MembershipEnd::Done);
        }
        update.refused.clone().map(MembershipEnd::Rejected)
    }

    /// Loads weights into the network.
    pub fn load(&mut self, weights: &Weights) -> Result<()> {
        self.network.load(&weights.safetensors).context(
            "the learner's weights do not match its network: run the same version of quiver on both",
        )?;
        self.metrics.weights_version.set(weights.version.number as i64);
        self.metrics.weights_loads.inc();
        Ok(())
    }

    /// Waits until the run has a shard to write to, and returns all shards. An error says why the membership ended first.
    pub fn wait_for_shards(
        &mut self,
        runtime: &Runtime,
    ) -> std::result::Result<Vec<ShardEntry>, MembershipEnd> {
        let mut updates = self.membership.updates.clone();
        let (started, mut logged_at) = (std::time::Instant::now(), None);
        loop {
            if let Some(end) = self.end() {
                return Err(end);
            }
            let wait = runtime.block_on(async { timeout(POLL_INTERVAL, shards_in_use(&mut updates)).await });
            if let Ok(shards) = wait {
                self.metrics.set_blocked_on(None);
                return Ok(shards);
            }
            self.metrics.set_blocked_on(Some("shard"));
            self.health.waiting(NO_SHARD);
            if logged_at.is_none_or(|at: std::time::Instant| at.elapsed() >= LOG_INTERVAL) {
                logged_at = Some(std::time::Instant::now());
                let blocked_seconds = started.elapsed().as_secs_f64();
                info!(blocked_on = NO_SHARD, blocked_seconds, "actor blocked");
            }
        }
    }

    /// Waits for weights for which `wanted` is true. An error says why the membership ended first.
    pub fn wait_for_weights(
        &mut self,
        runtime: &Runtime,
        what: &str,
        wanted: impl Fn(&Weights) -> bool,
    ) -> std::result::Result<Arc<Weights>, MembershipEnd> {
        let mut updates = self.membership.updates.clone();
        let (started, mut logged_at) = (std::time::Instant::now(), None);
        loop {
            if let Some(end) = self.end() {
                return Err(end);
            }
            let newest = updates.borrow_and_update().weights.clone();
            if let Some(weights) = newest.filter(|weights| wanted(weights)) {
                self.metrics.set_blocked_on(None);
                self.health.ready();
                return Ok(weights);
            }
            self.metrics.set_blocked_on(Some(what));
            self.health.waiting(format!("{what} from the learner"));
            // An evaluator without a request is idle, which is not worth a log line.
            let due = logged_at.is_none_or(|at: std::time::Instant| at.elapsed() >= LOG_INTERVAL);
            if due && what == "weights" {
                logged_at = Some(std::time::Instant::now());
                info!(blocked_on = what, blocked_seconds = started.elapsed().as_secs_f64(), "actor blocked");
            }
            let _ = runtime.block_on(async { timeout(POLL_INTERVAL, updates.changed()).await });
        }
    }
}

/// Becomes true on SIGINT or SIGTERM; a second signal ends the process at once. An evaluator has no data to lose, so it
/// ends at the first signal.
fn stop_signal(at_once: bool) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if at_once {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
        }
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
