//! An actor from its command line: joins a run, plays in it or evaluates, joins again if it was replaced.

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
use rpc::membership::{Membership, join};
use settings::Resolved;
use settings::seed::{self, Purpose};
use telemetry::{Health, TelemetryArgs};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Duration, timeout};
use tracing::{info, warn};

use crate::evaluator::Evaluator;
use crate::metrics::Metrics;
use crate::playing::Playing;

/// How often a process that waits looks whether it shall end.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a log line repeats what is waited for.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Plays many environments with the newest weights and streams what it sees to the replay shards.
///
/// One address is enough: the learner says what to play and where the shards are. Start as many as there are cores.
/// 'quiver train' does all that on one machine.
#[derive(Debug, Parser)]
#[command(name = "quiver-actor", version)]
pub struct Args {
    /// The learner: host:port or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    learner: Address,
    /// What to show to learner and shards, and whom to believe ('quiver certs' makes it: actor); then connections are TLS
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
    /// Play whole games for their scores when the learner asks, instead of for experience
    #[arg(long)]
    evaluate: bool,
    /// Environments stepped side by side [default: the run's setting]
    #[arg(long)]
    lanes: Option<u32>,
    /// Wish for this place among the actors; whoever has it is replaced [default: the lowest free one]
    #[arg(long)]
    index: Option<u32>,
    /// End when standard input does: whoever holds the other end has died
    #[arg(long)]
    lifeline: bool,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// How a membership ended.
pub(crate) enum End {
    /// The run has ended, or this process shall.
    Done,
    /// Someone else has this place now, or the learner knows nothing of it: join as a new member.
    Replaced(String),
    /// The run goes on with other shards: join anew, in the same place.
    Rearranged,
}

/// What both kinds of members work with.
pub(crate) struct Member {
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
        if self.lifeline {
            telemetry::lifeline();
        }
        telemetry::init(&self.telemetry)?;
        // One thread of libtorch: many actors share the cores.
        tch::set_num_threads(1);
        if self.lanes == Some(0) {
            bail!("--lanes must be at least 1");
        }
        let credentials = Credentials::load(self.secrets.as_deref())?;
        let stop = stop_signal(self.evaluate)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let _entered = runtime.enter();
        let (registry, health) = (Registry::new(), Health::new());
        let metrics = Arc::new(Metrics::register(&registry));
        let name = if self.evaluate { "evaluator" } else { "actor" };
        runtime.block_on(telemetry::serve(&self.telemetry, name, registry, health.clone()))?;
        let mut wish = self.index;
        while !stop.load(Ordering::Relaxed) {
            let Some(member) = self.join(&runtime, &credentials, wish, &metrics, &health, &stop)? else {
                break;
            };
            let index = member.membership.joined.index;
            metrics.incarnations.inc();
            let end = match self.evaluate {
                true => Evaluator::new(member).run(&runtime)?,
                false => Playing::new(member)?.run(&runtime)?,
            };
            match end {
                End::Done => break,
                End::Replaced(reason) => {
                    warn!(reason, "joining again as a new member");
                    // The place is someone else's: wishing for it again would only take it back.
                    wish = None;
                }
                End::Rearranged => {
                    info!("the run goes on with other shards; joining anew");
                    wish = Some(index);
                }
            }
        }
        health.stopping();
        info!("ends");
        drop(_entered);
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(())
    }

    /// Joins the run; `None` if it has ended, or this process shall.
    fn join(
        &self,
        runtime: &Runtime,
        credentials: &Credentials,
        wish: Option<u32>,
        metrics: &Arc<Metrics>,
        health: &Health,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Member>> {
        let role = if self.evaluate { v1::Role::Evaluator } else { v1::Role::Actor };
        metrics.waits_for(Some("learner"));
        health.waiting(format!("the learner at {}", self.learner));
        info!(learner = %self.learner, "joining");
        let mut joining =
            Box::pin(join(self.learner.clone(), credentials, role, wish, std::process::id().into()));
        let membership = loop {
            match runtime.block_on(async { timeout(LOOK_EVERY, &mut joining).await }) {
                Ok(joined) => break joined?,
                Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
                Err(_) => {}
            }
        };
        metrics.waits_for(None);
        let joined = &membership.joined;
        if joined.finished {
            info!("the run has ended");
            return Ok(None);
        }
        info!(run = joined.run, index = joined.index, incarnation = joined.incarnation, "joined");
        let mut resolved: Resolved = serde_json::from_str(&joined.config)
            .context("the learner's settings are unknown here: run the same version of quiver on both")?;
        if let Some(lanes) = self.lanes {
            resolved.settings.lanes = lanes;
        }
        let architecture: Architecture = serde_json::from_str(&joined.architecture).context(
            "the learner's network is of a kind unknown here: run the same version of quiver on both",
        )?;
        let mut rng = seed::generator(resolved.settings.seed, Purpose::Weights, &[]);
        let network = QNetwork::random(architecture, tch::Device::Cpu, &mut rng)?;
        let (metrics, health, stop) = (metrics.clone(), health.clone(), stop.clone());
        let credentials = credentials.clone();
        Ok(Some(Member { membership, credentials, resolved, architecture, network, metrics, health, stop }))
    }
}

impl Member {
    /// Whether this membership is over.
    pub fn end(&self) -> Option<End> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(End::Done);
        }
        let news = self.membership.news.borrow();
        if news.finished {
            info!("the run has ended");
            return Some(End::Done);
        }
        news.refused.clone().map(End::Replaced)
    }

    /// Takes over weights.
    pub fn load(&mut self, weights: &Weights) -> Result<()> {
        self.network.load(&weights.safetensors).context("the learner's weights do not fit")?;
        self.metrics.weights_version.set(weights.version.number as i64);
        self.metrics.weights_loads.inc();
        Ok(())
    }

    /// Waits for weights that `wanted` picks.
    pub fn wait_for_weights(
        &mut self,
        runtime: &Runtime,
        what: &str,
        wanted: impl Fn(&Weights) -> bool,
    ) -> std::result::Result<Arc<Weights>, End> {
        let mut news = self.membership.news.clone();
        let mut told = None;
        loop {
            if let Some(end) = self.end() {
                return Err(end);
            }
            let newest = news.borrow_and_update().weights.clone();
            if let Some(weights) = newest.filter(|weights| wanted(weights)) {
                self.metrics.waits_for(None);
                self.health.ready();
                return Ok(weights);
            }
            self.metrics.waits_for(Some(what));
            self.health.waiting(format!("{what} from the learner"));
            if told.is_none_or(|at: std::time::Instant| at.elapsed() >= COMPLAIN_EVERY) && what == "weights" {
                told = Some(std::time::Instant::now());
                info!(for_what = what, "waiting");
            }
            let _ = runtime.block_on(async { timeout(LOOK_EVERY, news.changed()).await });
        }
    }
}

/// True once SIGINT or SIGTERM came; a second one ends the process at once. An evaluator has nothing to lose and ends at
/// the first.
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
