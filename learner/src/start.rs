//! A learner from its command line: directory, network, shards, service, then training.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use coordinator::discovery::{Discovery, Shards};
use coordinator::hub::Sources;
use coordinator::places::{self, Places};
use coordinator::service::LearnerService;
use coordinator::{Charter, Clock, Control, Hub, ShardPool, adjust};
use envs::Spec;
use prometheus::Registry;
use proto::v1::learner_server::LearnerServer;
use replay::ReplayStatus;
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use rpc::shard::{Shard, Told};
use run::adjusted;
use run::event::Event;
use settings::Resolved;
use settings::seed::{self, Purpose};
use telemetry::{Health, TelemetryArgs};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::info;

use crate::checkpoint::State;
use crate::cluster::{Cluster, Crew, Process};
use crate::divergence;
use crate::evaluations::Evaluations;
use crate::events::Events;
use crate::intake::{Counted, Parts, Publish};
use crate::learner::Learner;
use crate::lookout::Lookout;
use crate::metrics::Metrics;
use crate::open::{self, Opened};
use crate::priorities::Priorities;
use crate::remote::RemoteReplay;
use crate::replay::Collector;
use crate::setup;
use crate::trainer::Trainer;

/// Samples from replay shards, trains, and tells actors what it learned.
///
/// 'quiver train' starts this with everything around it. By hand: start shards, then this with their addresses, then
/// actors with this one's address. If the run directory has a run in it, it goes on from its newest checkpoint.
#[derive(Debug, Parser)]
#[command(name = "quiver-learner", version, after_help = EXAMPLE)]
pub struct Args {
    /// The run's settings, as 'quiver config show' prints them
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where the run is kept
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// Where actors find this learner: host:port or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    listen: Address,
    /// A replay shard: host:port or unix:/path; once for each. A name that leads to several machines stands for a shard on
    /// each: those that answer when the run first starts
    #[arg(long = "shard", value_name = "ADDRESS", required = true)]
    shards: Vec<Address>,
    /// Where names of shards lead, in the format of /etc/hosts; read anew whenever one is missing [default: as the system
    /// says]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Speak TLS, let in only whom the secrets in this folder name, and call shards with what it holds ('quiver certs' makes
    /// it: learner)
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
    /// Listen where other machines can reach it although everyone there may do everything
    #[arg(long, conflicts_with = "secrets")]
    insecure: bool,
    /// How long to stay when the run has ended, so that members who were cut off or come late hear of it
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    farewell: u64,
    /// Print what happens as JSON lines on standard output, for a launcher
    #[arg(long)]
    events: bool,
    /// End when standard input does: whoever holds the other end has died
    #[arg(long)]
    lifeline: bool,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

const EXAMPLE: &str = "\
Example, each in a terminal of its own:
  quiver config show pong --preset quick > pong.toml
  quiver-replay-server --listen 127.0.0.1:7701
  quiver-learner --config pong.toml --run-dir runs/pong --shard 127.0.0.1:7701
  quiver-actor --learner 127.0.0.1:7700
  quiver-actor --learner 127.0.0.1:7700 --evaluate";

/// How often a learner that looks for its shards looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What this learner shows to shards, and what it asks of those who come.
struct Access {
    credentials: Credentials,
    registry: Registry,
    edge: Edge,
    gate: Gate,
}

impl Args {
    /// Runs the learner to its end.
    pub fn run(&self) -> Result<()> {
        if self.lifeline {
            telemetry::lifeline();
        }
        telemetry::init(&self.telemetry)?;
        self.listen.check_exposure(self.secrets.is_some(), self.insecure)?;
        let access = self.access()?;
        let resolved = Resolved::from_file(&self.config)?;
        let stop = stop_signal()?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let Some(shards) = self.find_shards(&runtime, &access.credentials, &stop)? else { return Ok(()) };
        let changes = adjusted::kept(&self.run_dir)?;
        let count = shards.addresses().len();
        let resolved =
            adjust::changed(&resolved, &changes, count, &ReplayStatus::default()).map_err(|error| {
                match changes.is_empty() {
                    true => anyhow!(error),
                    false => anyhow!("with what adjusted.json changes: {error}"),
                }
            })?;
        let entered = runtime.enter();
        let mut cluster = self.assemble(&runtime, access, resolved, &shards, stop)?;
        let done = cluster.run();
        drop((cluster, entered));
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }

    /// Secrets are read before anything is written or waited for.
    fn access(&self) -> Result<Access> {
        let (registry, secrets) = (Registry::new(), self.secrets.as_deref());
        let edge = Edge::register(&registry)?;
        let gate = Gate::load(secrets, &edge)?;
        Ok(Access { credentials: Credentials::load(secrets)?, registry, edge, gate })
    }

    /// The shards of the run, or none if this process shall end before they are found.
    fn find_shards(
        &self,
        runtime: &Runtime,
        credentials: &Credentials,
        stop: &AtomicBool,
    ) -> Result<Option<Shards>> {
        let remembered = places::remembered(&self.run_dir)?;
        let discovery = self.discovery(credentials);
        let mut finding = Box::pin(discovery.shards(&remembered));
        loop {
            match runtime.block_on(async { timeout(LOOK_EVERY, &mut finding).await }) {
                Ok(shards) => return Ok(Some(shards.map_err(|reason| anyhow!(reason))?)),
                Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn discovery(&self, credentials: &Credentials) -> Discovery {
        Discovery::new(&self.shards, self.hosts.clone(), credentials.clone())
    }

    fn assemble(
        &self,
        runtime: &Runtime,
        access: Access,
        resolved: Resolved,
        shards: &Shards,
        stop: Arc<AtomicBool>,
    ) -> Result<Cluster> {
        let events = if self.events { Events::Lines } else { Events::Silent };
        // The network is made first: if ROM, memory or device is missing, no directory is left behind.
        let (spec, mut learner) = make_learner(&resolved)?;
        let Opened { journal, run, incarnation } =
            open::open(&self.run_dir, &resolved, &mut learner, events)?;
        let Access { credentials, registry, edge, gate } = access;
        let (health, metrics) = (Health::new(), Arc::new(Metrics::register(&registry)));
        metrics.diverged_time.set(divergence::last(journal.path())?);
        // Until a shard is heard, so that frames do not seem to come all at once when a run is resumed.
        metrics.frames.set(journal.state.frames as i64);

        let places = Places::open(journal.path(), shards)?;
        let (published, heard) = watch::channel(places.heard());
        let (status, replay) = watch::channel(ReplayStatus::default());
        let charter = charter(run, incarnation, &resolved, &learner)?;
        let told = Told {
            run: charter.run.clone(),
            learner_incarnation: incarnation,
            spec: adjust::shard_spec(&resolved.settings, &spec, shards.addresses().len()),
            reliabilities: resolved.settings.strategy.needs_reliability,
        };
        let directory = journal.path().to_owned();
        let sources = Sources { places: heard, replay };
        let (hub, reports) = Hub::new(charter, resolved.clone(), directory, sources, Clock::system());
        let lookout = Lookout::new(journal.path(), metrics.clone(), hub.clone(), learner.updates());
        let page = lookout.page();
        let served = telemetry::serve_with_page(&self.telemetry, "learner", registry, health.clone(), page);
        runtime.block_on(served)?;

        let connections = connect(shards, &credentials, &told);
        let updaters = connections.iter().map(Shard::updater).collect();
        let pool = ShardPool::new(
            connections,
            places,
            published,
            control(&resolved, &journal.state, shards.addresses().len())?,
            resolved.settings.without_shards.0.clone(),
            matches!(shards, Shards::Sought { .. }).then(|| self.discovery(&credentials).seek()),
            Clock::system(),
        );
        // Who joins now hears which shards the run does without.
        self.serve(runtime, &hub, &metrics, edge, gate)?;
        runtime.spawn(lookout.run());
        let parts = Parts {
            pool,
            adjusted: hub.watch_settings(),
            environment: spec,
            rng: seed::generator(resolved.settings.seed, Purpose::Sampling, &[incarnation.into()]),
            priorities: Priorities::spawn(updaters, metrics.clone()),
            metrics: metrics.clone(),
            health: health.clone(),
            publish: Publish { status, counted: watch::Sender::new(Counted::default()) },
            settings: resolved.settings.clone(),
        };
        let collector = Collector::for_learner(&parts.settings, &parts.environment, &learner);
        let handle = runtime.handle().clone();
        let replay = RemoteReplay::start(parts, collector, handle.clone());
        health.ready();
        events.send(&Event::Ready { run_dir: journal.path().to_owned(), frames: journal.state.frames });
        let crew = Crew { hub, reports, evaluations: Evaluations::new(incarnation) };
        let farewell = Duration::from_secs(self.farewell);
        let process = Process { metrics, events, stop, farewell, handle };
        Ok(Cluster::new(Trainer { learner, replay }, journal, crew, process, resolved))
    }

    fn serve(
        &self,
        runtime: &Runtime,
        hub: &Arc<Hub>,
        metrics: &Metrics,
        edge: Edge,
        gate: Gate,
    ) -> Result<()> {
        let service = LearnerServer::new(LearnerService::new(hub.clone(), metrics.refused.clone()))
            .max_decoding_message_size(proto::limits::OTHER_BYTES_MAX)
            .max_encoding_message_size(proto::limits::WEIGHTS_BYTES_MAX);
        let listener = runtime.block_on(Listener::bind(&self.listen, edge, gate))?;
        info!(address = %listener.address(), "the learner listens");
        let routes = tonic::service::Routes::new(service);
        runtime.spawn(listener.serve(routes, std::future::pending()));
        Ok(())
    }
}

/// The environment's description, and a network for it.
fn make_learner(resolved: &Resolved) -> Result<(Spec, Learner)> {
    let settings = &resolved.settings;
    if settings.lockstep {
        bail!(
            "these settings are for lockstep: train with 'quiver train --lockstep', or set lockstep = false"
        );
    }
    tch::set_num_threads(settings.torch_threads as i32);
    let spec = envs::make(&resolved.game, &settings.environment(), settings.seed)?.spec().clone();
    let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
    let learner = Learner::new(settings, &spec, setup::device(settings.device)?, &mut rng)?;
    Ok((spec, learner))
}

fn charter(run: String, incarnation: u32, resolved: &Resolved, learner: &Learner) -> Result<Charter> {
    let config = serde_json::to_string(resolved)?;
    let architecture = serde_json::to_string(learner.online().architecture())?;
    Ok(Charter { run, incarnation, config, architecture })
}

fn connect(shards: &Shards, credentials: &Credentials, told: &Told) -> Vec<Shard> {
    (0u64..)
        .zip(shards.addresses())
        .map(|(seed, address)| Shard::new(address.clone(), credentials.clone(), told.clone(), seed))
        .collect()
}

fn control(resolved: &Resolved, state: &State, shards: usize) -> Result<Control> {
    let limiter = adjust::limiter(&resolved.settings)?;
    Ok(Control::new(limiter, shards, state.agent_steps, &state.marks))
}

/// True once SIGINT or SIGTERM came; a second one ends the process at once.
fn stop_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
