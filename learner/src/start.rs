//! A learner from its command line: directory, network, shards, service, then training.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agents::Architecture;
use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use page::Live;
use prometheus::Registry;
use proto::v1::learner_server::LearnerServer;
use replay::control::Control;
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use rpc::shard::{Shard, Told};
use run::checkpoint::{self, Checkpoint, CheckpointError};
use run::directory::write_whole;
use run::event::Event;
use run::record::{Record, Start};
use run::{RunDir, adjusted};
use settings::Resolved;
use settings::seed::{self, Purpose};
use telemetry::{Health, TelemetryArgs};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::info;

use crate::adjust::{self, Held};
use crate::batch::Assembler;
use crate::discovery::{Discovery, Shards};
use crate::divergence;
use crate::events::Events;
use crate::fleet::Fleet;
use crate::hub::{Charter, Hub};
use crate::intake::{Intake, Parts, Phase};
use crate::lookout::{self, Lookout};
use crate::metrics::Metrics;
use crate::places::{self, Places};
use crate::priorities::Priorities;
use crate::service::LearnerService;
use crate::setup;
use crate::state::{self, State};
use crate::trainer::Learner;
use crate::training::{Course, Training};

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
/// File of the run's directory that holds its name, unique over all runs.
const RUN_NAME: &str = "run-id";
/// File of the run's directory that counts starts of the learner.
const INCARNATION: &str = "learner-incarnation";

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
        let held = Held { shards: shards.addresses().len(), ..Held::default() };
        let resolved =
            adjust::changed(&resolved, &changes, held).map_err(|error| match changes.is_empty() {
                true => anyhow!(error),
                false => anyhow!("with what adjusted.json changes: {error}"),
            })?;
        let entered = runtime.enter();
        let mut training = self.assemble(&runtime, access, resolved, &shards, stop)?;
        let done = training.run();
        drop((training, entered));
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
    ) -> Result<Training> {
        let settings = resolved.settings.clone();
        if settings.lockstep {
            bail!(
                "these settings are for lockstep: train with 'quiver train --lockstep', or set lockstep = false"
            );
        }
        tch::set_num_threads(settings.torch_threads as i32);
        let events = if self.events { Events::Lines } else { Events::Silent };
        // The network is made first: if ROM, memory or device is missing, no directory is left behind.
        let spec = envs::make(&resolved.game, &settings.environment(), settings.seed)?.spec().clone();
        let mut rng = seed::generator(settings.seed, Purpose::Weights, &[]);
        let mut learner = Learner::new(&settings, &spec, setup::device(settings.device)?, &mut rng)?;
        let architecture = *learner.online().architecture();

        let (directory, found) = self.directory(&resolved)?;
        let state = match found {
            Some(checkpoint) => {
                let state = state::restore(&mut learner, &checkpoint)?;
                let text = format!("going on from {}", checkpoint.path().display());
                info!(frames = state.frames, updates = state.updates, "{text}");
                events.send(&Event::Note { text });
                state
            }
            None => State::default(),
        };
        let incarnation = next_incarnation(directory.path())?;
        let record = Record::go_on(directory.path())?;
        Start::keep(directory.path(), incarnation, state.frames, state.updates)?;

        let charter = self.charter(&directory, &resolved, &architecture, incarnation)?;
        let told = Told {
            run: charter.run.clone(),
            learner_incarnation: incarnation,
            spec: adjust::store(&resolved.settings, &spec, shards.addresses().len()),
            reliabilities: resolved.settings.strategy.needs_reliability,
        };
        let (Access { credentials, registry, edge, gate }, health) = (access, Health::new());
        let metrics = Arc::new(Metrics::register(&registry));
        metrics.diverged_time.set(divergence::last(directory.path())?);
        // Until a shard is heard, so that frames do not seem to come all at once when a run goes on.
        metrics.frames.set(state.frames as i64);
        let places = Places::open(directory.path(), shards)?;
        let (hub, reports) = Hub::new(charter, resolved.clone(), directory.path().to_owned(), places.heard());
        let live = Arc::new(Live::new(lookout::past(directory.path())));
        let page = lookout::page(live.clone(), hub.clone());
        let served = telemetry::serve_with_page(&self.telemetry, "learner", registry, health.clone(), page);
        runtime.block_on(served)?;

        let connections: Vec<Shard> = (0u64..)
            .zip(shards.addresses())
            .map(|(seed, address)| Shard::new(address.clone(), credentials.clone(), told.clone(), seed))
            .collect();
        let updaters = connections.iter().map(Shard::updater).collect();
        let priorities = Priorities::spawn(updaters, metrics.clone());
        let fleet = Fleet::new(
            connections,
            places,
            hub.shards.clone(),
            control(&resolved, &state, shards.addresses().len())?,
            settings.without_shards.0.clone(),
            matches!(shards, Shards::Sought { .. }).then(|| self.discovery(&credentials).seek()),
            metrics.clone(),
        );
        // Who joins now hears which shards the run does without.
        self.serve(runtime, &hub, &metrics, edge, gate)?;
        let parts = Parts {
            fleet,
            adjusted: hub.resolved.subscribe(),
            environment: spec.clone(),
            assembler: Assembler::new(&settings, spec.observation.bytes()),
            input: architecture.input,
            device: learner.online().device(),
            rng: seed::generator(settings.seed, Purpose::Sampling, &[incarnation.into()]),
            priorities: priorities.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            updates: learner.updates(),
            settings,
        };
        let (intake, replay) = Intake::new(parts);
        let lookout = Lookout {
            live,
            metrics: metrics.clone(),
            replay: replay.clone(),
            hub: hub.clone(),
            updates_before: learner.updates(),
        };
        runtime.spawn(lookout.run());
        // Intake counts the places itself.
        let (prepared, batches) = mpsc::channel(1024);
        let (phase, phases) = watch::channel(Phase::Training);
        let intake = runtime.spawn(intake.run(prepared, phases));
        health.ready();
        events.send(&Event::Ready { run_dir: directory.path().to_owned(), frames: state.frames });
        Ok(Training {
            course: Course::new(incarnation, &state),
            directory,
            record,
            resolved,
            learner,
            hub,
            metrics,
            batches,
            replay,
            phase,
            intake: Some(intake),
            priorities,
            reports,
            events,
            state,
            stop,
            farewell: Duration::from_secs(self.farewell),
            handle: runtime.handle().clone(),
        })
    }

    /// The run's directory, made or taken up, and what to go on from.
    fn directory(&self, resolved: &Resolved) -> Result<(RunDir, Option<Checkpoint>)> {
        if !self.run_dir.join("config.toml").is_file() {
            return Ok((RunDir::create(&self.run_dir, resolved)?, None));
        }
        let (directory, before) = RunDir::open(&self.run_dir)?;
        if before.game != resolved.game {
            bail!(
                "{} has a run of {}, not of {}: choose another --run-dir",
                self.run_dir.display(),
                before.game,
                resolved.game
            );
        }
        let folder = directory.checkpoints();
        checkpoint::tidy(&folder).context("can't tidy the checkpoints; free some space")?;
        directory.write_config(resolved)?;
        let checkpoint = match Checkpoint::newest(&folder) {
            Err(CheckpointError::None(_)) => None,
            found => Some(found?),
        };
        Ok((directory, checkpoint))
    }

    fn charter(
        &self,
        directory: &RunDir,
        resolved: &Resolved,
        architecture: &Architecture,
        incarnation: u32,
    ) -> Result<Charter> {
        Ok(Charter {
            run: run_name(directory.path())?,
            incarnation,
            config: serde_json::to_string(resolved)?,
            architecture: serde_json::to_string(architecture)?,
        })
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

fn control(resolved: &Resolved, state: &State, shards: usize) -> Result<Control> {
    let limiter = adjust::limiter(&resolved.settings)?;
    Ok(Control::new(limiter, shards, state.agent_steps, &state.marks))
}

/// The run's name: random, made once, kept in its directory.
fn run_name(directory: &Path) -> Result<String> {
    let path = directory.join(RUN_NAME);
    if let Some(name) = read_if_there(&path)? {
        return Ok(name.trim().to_owned());
    }
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_whole(&path, name.as_bytes())?;
    Ok(name)
}

pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
    }
}

/// Counts this start of the learner. On the disk before anyone hears of it: no two starts may have one number.
fn next_incarnation(directory: &Path) -> Result<u32> {
    let path = directory.join(INCARNATION);
    let last = match read_if_there(&path)? {
        Some(text) => text.trim().parse().with_context(|| format!("{} is damaged", path.display()))?,
        None => 0u32,
    };
    let next = last.checked_add(1).context("the learner was started too often")?;
    write_whole(&path, next.to_string().as_bytes())?;
    Ok(next)
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
