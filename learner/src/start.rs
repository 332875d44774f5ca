//! Starts a learner from its command line: run directory, network, shards, gRPC service, then training.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use coordinator::discovery::{Discovery, Shards};
use coordinator::hub::HubInputs;
use coordinator::service::LearnerService;
use coordinator::shard_directory::{self, ShardDirectory};
use coordinator::{Clock, Hub, RateController, RunInfo, ShardPool, adjust};
use envs::Spec;
use prometheus::Registry;
use proto::limits::{OTHER_BYTES_MAX, PLAYERS_MAX};
use proto::v1::learner_server::LearnerServer;
use replay::{ReplayStatus, TicketKey};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use rpc::shard::{ShardClient, ShardConfig};
use run::adjusted;
use run::event::Event;
use settings::seed::{self, Purpose};
use settings::{Resolved, Settings};
use telemetry::{Health, TelemetryArgs};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use crate::checkpoint::RunState;
use crate::divergence;
use crate::evaluations::Evaluations;
use crate::events::Events;
use crate::learner::Learner;
use crate::metrics::Metrics;
use crate::open::{self, Opened};
use crate::page_sampler::PageSampler;
use crate::prefetcher::{PrefetcherParts, RunCounts, StatusSenders};
use crate::priorities::Priorities;
use crate::remote::RemoteReplay;
use crate::replay::BatchAssembler;
use crate::ticket_key;
use crate::trainer::Trainer;
use crate::training_thread::{ProcessHandles, RunMembers, TrainingThread};
use crate::unpack::Unpacker;

/// Samples from replay shards, trains, and publishes weights to actors.
///
/// 'quiver train' starts a learner together with its shards and actors. To start them by hand: first the shards, then
/// the learner with their addresses, then actors with the learner's address. If the run directory holds a run, the
/// learner resumes it from its newest checkpoint.
#[derive(Debug, Parser)]
#[command(name = "quiver-learner", version, after_help = EXAMPLE)]
pub struct Args {
    /// The run's settings, in the format of 'quiver config show'
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The run directory; created if it does not exist
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// Address to listen on for actors: host:port or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    listen: Address,
    /// Address of a replay shard: host:port or unix:/path; repeat for each shard. A name that resolves to several
    /// addresses means one shard at each; the run keeps the shards that answer at its first start
    #[arg(long = "shard", value_name = "ADDRESS", required = true)]
    shards: Vec<Address>,
    /// File in the format of /etc/hosts to resolve shard names with; read again whenever a shard is missing [default:
    /// the system's resolver]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Serve over TLS and reject unauthorized callers. DIR is the folder `learner` that `quiver certs` created
    #[arg(long, value_name = "DIR", env = "QUIVER_SECRETS", hide_env_values = true)]
    secrets: Option<PathBuf>,
    /// Allow unauthenticated plaintext on a non-loopback address
    #[arg(long, conflicts_with = "secrets")]
    insecure: bool,
    /// Seconds to keep serving after the run has finished, so that disconnected actors and the evaluator can reconnect
    /// and exit
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    linger_seconds: u64,
    /// Print events as JSON lines on standard output, for a launcher
    #[arg(long)]
    events: bool,
    /// Exit at once, with code 0, when stdin closes: for launchers that hold the other end of a pipe, so this process ends
    /// with them. With stdin at /dev/null (systemd, nohup) it exits at its start
    #[arg(long)]
    exit_with_parent: bool,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

const EXAMPLE: &str = "\
Example, each in a terminal of its own:
  quiver config show pong --preset quick > pong.toml
  quiver-replay-server --listen 127.0.0.1:7701 --data-dir data/replay
  quiver-learner --config pong.toml --run-dir runs/pong --shard 127.0.0.1:7701
  quiver-actor --learner 127.0.0.1:7700
  quiver-actor --learner 127.0.0.1:7700 --evaluate";

/// How often a learner that discovers its shards checks whether it must stop.
const STOP_POLL_EVERY: Duration = Duration::from_millis(200);

/// Batches that are unpacked at the same time. More would only wait for the same cores.
const UNPACKED_AT_A_TIME_MAX: usize = 8;

/// Bytes of a request without scores. A report of 256 episodes has a tenth of it.
const OTHER_REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of a player in an evaluation besides its scores: its name and the lengths of fields.
const PLAYER_BYTES_MAX: usize = 128;

/// Credentials for calls to shards, and authentication of callers.
struct Access {
    credentials: Credentials,
    registry: Registry,
    edge: Edge,
    gate: Gate,
}

impl Args {
    /// Runs the learner to its end.
    pub fn run(&self) -> Result<()> {
        telemetry::init(&self.telemetry)?;
        if self.exit_with_parent {
            telemetry::exit_with_parent();
        }
        self.listen.check_exposure(self.secrets.is_some(), self.insecure)?;
        let access = self.access()?;
        let resolved = Resolved::from_file(&self.config)?;
        let stop = crate::stop_signal()?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let Some(shards) = self.discover_shards(&runtime, &access.credentials, &stop)? else { return Ok(()) };
        let changes = adjusted::load(&self.run_dir)?;
        let count = shards.addresses().len();
        let resolved =
            adjust::changed(&resolved, &changes, count, &ReplayStatus::default()).map_err(|error| {
                match changes.is_empty() {
                    true => anyhow!(error),
                    false => {
                        let path = self.run_dir.join("adjusted.json");
                        anyhow!("with the changes in {}: {error}; correct or delete it", path.display())
                    }
                }
            })?;
        let entered = runtime.enter();
        let mut cluster = self.assemble(&runtime, access, resolved, &shards, stop)?;
        let done = cluster.run();
        drop((cluster, entered));
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }

    /// Reads the secrets, so that bad ones are reported before anything is written or waited for.
    fn access(&self) -> Result<Access> {
        let (registry, secrets) = (Registry::new(), self.secrets.as_deref());
        let edge = Edge::register(&registry)?;
        let gate = Gate::load(secrets, &edge)?;
        Ok(Access { credentials: Credentials::load(secrets)?, registry, edge, gate })
    }

    /// Discovers the shards of the run. `None` if the process must stop before they are found.
    fn discover_shards(
        &self,
        runtime: &Runtime,
        credentials: &Credentials,
        stop: &AtomicBool,
    ) -> Result<Option<Shards>> {
        let saved_ids = shard_directory::saved_ids(&self.run_dir)?;
        let discovery = self.discovery(credentials);
        let mut shards = Box::pin(discovery.shards(&saved_ids));
        loop {
            match runtime.block_on(async { timeout(STOP_POLL_EVERY, &mut shards).await }) {
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
    ) -> Result<TrainingThread> {
        let events = if self.events { Events::Lines } else { Events::Silent };
        // The network comes first: if the ROM, memory or device is missing, no run directory is left behind.
        let (spec, mut learner) = make_learner(&resolved)?;
        let Opened { journal, run, incarnation, start } =
            open::open(&self.run_dir, &resolved, &mut learner, events)?;
        let Access { credentials, registry, edge, gate } = access;
        let (health, metrics) = (Health::new(), Arc::new(Metrics::register(&registry)));
        metrics.diverged_time.set(divergence::last(journal.path()));
        // Set before a shard has answered: from 0, the gauge of a resumed run would jump.
        metrics.frames.set(journal.state.frames as i64);

        let directory = ShardDirectory::open(journal.path(), shards)?;
        let (published, shard_entries) = watch::channel(directory.confirmed());
        let (status, replay) = watch::channel(ReplayStatus::default());
        let tickets = ticket_key::open(journal.path())?;
        let run_info = run_info(run, (incarnation, start), tickets, &resolved, &learner)?;
        let shard_config = ShardConfig {
            run: run_info.run.clone(),
            learner_incarnation: incarnation,
            spec: adjust::shard_spec(&resolved.settings, &spec, shards.addresses().len()),
            ticket_key: Some(run_info.ticket_key.clone()),
            reliabilities: resolved.settings.strategy.needs_reliability,
        };
        let path = journal.path().to_owned();
        let inputs = HubInputs { shards: shard_entries, replay };
        let (hub, reports) = Hub::new(run_info, resolved.clone(), path, inputs, Clock::system());
        let page_sampler = PageSampler::new(journal.path(), metrics.clone(), hub.clone(), learner.updates());
        let page = page_sampler.page();
        let served = telemetry::serve_with_page(&self.telemetry, "learner", registry, health.clone(), page);
        runtime.block_on(served)?;

        let connections = connect(shards, &credentials, &shard_config);
        let updaters = connections.iter().map(ShardClient::updater).collect();
        let pool = ShardPool::new(
            connections,
            directory,
            published,
            control(&resolved, &journal.state, shards.addresses().len())?,
            resolved.settings.without_shards.0.clone(),
            matches!(shards, Shards::ById { .. }).then(|| self.discovery(&credentials).watch()),
            Clock::system(),
        );
        // Members may join only now that the pool has published which shards are excluded.
        self.serve(runtime, &hub, &resolved.settings, &metrics, edge, gate)?;
        runtime.spawn(page_sampler.run());
        let parts = PrefetcherParts {
            pool,
            adjusted: hub.watch_settings(),
            environment: spec,
            rng: seed::generator(resolved.settings.seed, Purpose::Sampling, &[start.into()]),
            metrics: metrics.clone(),
            health: health.clone(),
            publish: StatusSenders { status, counted: watch::Sender::new(RunCounts::default()) },
            settings: resolved.settings.clone(),
        };
        let priorities = Priorities::spawn(updaters, metrics.clone());
        let assembler = |_| BatchAssembler::for_learner(&parts.settings, &parts.environment, &learner);
        let assemblers =
            (0..parts.settings.prefetch_batches.min(UNPACKED_AT_A_TIME_MAX)).map(assembler).collect();
        let unpacker =
            Unpacker::new(assemblers, Some(learner.shared_target()), priorities.clone(), metrics.clone());
        let handle = runtime.handle().clone();
        let replay = RemoteReplay::start(parts, unpacker, priorities, learner.updates(), handle.clone());
        health.ready();
        events.send(&Event::Ready { run_dir: journal.path().to_owned(), frames: journal.state.frames });
        let members = RunMembers { hub, reports, evaluations: Evaluations::new(incarnation) };
        let linger = Duration::from_secs(self.linger_seconds);
        let process = ProcessHandles { metrics, events, stop, linger, handle };
        Ok(TrainingThread::new(Trainer { learner, replay }, journal, members, process, resolved))
    }

    fn serve(
        &self,
        runtime: &Runtime,
        hub: &Arc<Hub>,
        settings: &Settings,
        metrics: &Metrics,
        edge: Edge,
        gate: Gate,
    ) -> Result<()> {
        let service = LearnerServer::new(LearnerService::new(hub.clone(), metrics.refused.clone()))
            .max_decoding_message_size(request_bytes_max(settings))
            .max_encoding_message_size(OTHER_BYTES_MAX);
        let listener = runtime.block_on(Listener::bind(&self.listen, edge, gate))?;
        let routes = tonic::service::Routes::new(service);
        runtime.spawn(listener.serve(routes, std::future::pending()));
        Ok(())
    }
}

/// Bytes of a request to the learner: the largest is the report of an evaluation. Every request in flight may hold so many.
fn request_bytes_max(settings: &Settings) -> usize {
    let games = settings.evaluate_episodes.max(settings.evaluate_final_episodes) as usize;
    let player = games * size_of::<f64>() + PLAYER_BYTES_MAX;
    (OTHER_REQUEST_BYTES_MAX + PLAYERS_MAX * player).min(OTHER_BYTES_MAX)
}

/// The environment's spec, and a learner with a network for it.
fn make_learner(resolved: &Resolved) -> Result<(Spec, Learner)> {
    let settings = &resolved.settings;
    if settings.lockstep {
        bail!("these settings are for lockstep: run 'quiver train --lockstep', or set lockstep = false");
    }
    agents::keep_freed_memory();
    tch::set_num_threads(settings.torch_threads as i32);
    let spec = envs::make(&resolved.game, &settings.environment(), settings.seed)?.spec().clone();
    let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
    let device = agents::device::open(settings.device)?;
    if let Some(warning) = agents::device::precision_warning(settings.precision, device) {
        warn!("{warning}");
    }
    let mut learner = Learner::new(settings, &spec, device, &mut rng)?;
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        learner = learner.with_helper()?;
    }
    Ok((spec, learner))
}

fn run_info(
    run: String,
    (incarnation, start): (u32, u32),
    (ticket_key, resumed): (TicketKey, bool),
    resolved: &Resolved,
    learner: &Learner,
) -> Result<RunInfo> {
    let config = serde_json::to_string(resolved)?;
    let architecture = serde_json::to_string(learner.online().architecture())?;
    Ok(RunInfo { run, incarnation, start, resumed, ticket_key, config, architecture })
}

fn connect(shards: &Shards, credentials: &Credentials, config: &ShardConfig) -> Vec<ShardClient> {
    (0u64..)
        .zip(shards.addresses())
        .map(|(seed, address)| ShardClient::new(address.clone(), credentials.clone(), config.clone(), seed))
        .collect()
}

fn control(resolved: &Resolved, state: &RunState, shards: usize) -> Result<RateController> {
    let limiter = adjust::limiter(&resolved.settings)?;
    Ok(RateController::new(limiter, shards, state.agent_steps, &state.shard_counts))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use proto::{PlayerScores, Report, play, v1};
    use settings::Layers;

    use super::*;

    #[test]
    fn the_largest_evaluation_of_the_run_fits_into_a_request_and_little_more() {
        let mut settings = Layers::default().resolve(Some("cartpole")).unwrap().settings;
        settings.evaluate_final_episodes = 300;
        let player = || PlayerScores { name: "x".repeat(64), scores: vec![-1e15; 300] };
        let players = (0..PLAYERS_MAX).map(|_| player()).collect();
        let report = play::report_message(
            Report::Evaluation { number: u64::MAX, players },
            v1::ReportRequest { caller: Some(proto::caller(&"r".repeat(32))), ..Default::default() },
        );
        let (bytes, most) = (report.encoded_len(), request_bytes_max(&settings));
        assert!(bytes <= most && most < bytes + (80 << 10), "{bytes} of {most}");
        settings.evaluate_episodes = 100_000;
        assert_eq!(request_bytes_max(&settings), OTHER_BYTES_MAX);
    }
}
