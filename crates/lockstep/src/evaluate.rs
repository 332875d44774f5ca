//! Evaluates the weights of a run's checkpoint.

use std::sync::Arc;

use actor::evaluation::{EvaluationGames, PlayerKind, play};
use agents::{Architecture, Behaviour, QNetwork};
use anyhow::Result;
use learner::checkpoint;
use run::checkpoint::Checkpoint;
use run::command::TrainedAgent;
use run::record::{AGENT, Evaluation};
use settings::Resolved;
use settings::choices::EvaluationPolicy;

use run::output::print_line;

/// A set of games that several players play, so that their scores can be compared.
pub struct EvaluationSetup {
    resolved: Resolved,
    options: envs::EnvOptions,
    seed: u64,
    threads: usize,
}

impl EvaluationSetup {
    /// The games of a run's settings.
    pub fn new(resolved: &Resolved, seed: u64) -> Self {
        Self { resolved: resolved.clone(), options: resolved.settings.environment(), seed, threads: 1 }
    }

    /// The same games on all cores: no training waits for them.
    pub fn on_all_cores(self) -> Self {
        Self { threads: actor::evaluation::cores(), ..self }
    }

    /// The games as the actor crate's type.
    pub fn games(&self) -> EvaluationGames<'_> {
        EvaluationGames {
            threads: self.threads,
            ..EvaluationGames::new(&self.resolved, &self.options, self.seed)
        }
    }

    /// Plays the games and returns the scores.
    pub fn play(&self, player: PlayerKind<'_>, episodes: u32, watch: impl FnMut(usize)) -> Result<Vec<f64>> {
        Ok(play(player, &self.games(), episodes as usize, watch)?)
    }
}

/// A run's weights, loaded and ready to act.
pub struct LoadedAgent {
    pub network: QNetwork,
    pub agent: Arc<dyn agents::Agent>,
    pub resolved: Resolved,
    /// How it chooses actions.
    pub policy: EvaluationPolicy,
    /// Frames and updates of the training that produced the weights.
    pub age: (u64, u64),
    pub checkpoint: String,
    pub spec: envs::Spec,
}

impl LoadedAgent {
    /// Loads the weights of a checkpoint.
    pub fn load(agent: &TrainedAgent) -> Result<Self> {
        let resolved = run::directory::read_settings(&agent.run)?;
        let settings = &resolved.settings;
        agents::keep_freed_memory();
        tch::set_num_threads(settings.torch_threads as i32);
        let checkpoint =
            Checkpoint::find(&run::directory::checkpoints(&agent.run), agent.checkpoint.as_deref())?;
        let options = settings.environment();
        let spec = envs::make(&resolved.game, &options, 0)?.spec().clone();
        let device = agents::device::open(agent.device.unwrap_or(settings.device))?;
        let mut rng = actor::seed::generator(0, actor::seed::Purpose::Weights, &[]);
        let algorithm = agents::agent(settings);
        let architecture = Architecture::new(settings, &*algorithm, &spec)?;
        // The random weights are replaced at once; `random` only builds the layers.
        let mut network = QNetwork::random(architecture, device, &mut rng)?;
        network
            .load(&checkpoint.read(checkpoint::WEIGHTS)?)
            .map_err(|error| checkpoint::weights_error(&checkpoint, error))?;
        let name = checkpoint.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let policy = agent.policy.unwrap_or(settings.evaluation_policy);
        let state = checkpoint::read_state(&checkpoint)?;
        Ok(Self {
            network,
            agent: algorithm,
            age: (state.frames, state.updates),
            policy,
            checkpoint: name,
            spec,
            resolved,
        })
    }

    /// Its behaviour under its policy.
    pub fn behaviour(&self) -> Behaviour {
        actor::rules::evaluation_behaviour(&*self.agent, self.policy)
    }
}

/// Executes `quiver evaluate`.
pub fn evaluate(agent: &TrainedAgent, episodes: u32, json: bool) -> Result<()> {
    let trained = LoadedAgent::load(agent)?;
    let setup = EvaluationSetup::new(&trained.resolved, agent.seed).on_all_cores();
    let player = PlayerKind::Agent(&*trained.agent, &trained.network, trained.behaviour());
    let bar = crate::progress::counter(u64::from(episodes), "games");
    let scores = setup.play(player, episodes, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let (frames, updates) = trained.age;
    let evaluation = Evaluation { frames, updates, ..Evaluation::new(AGENT, trained.policy, scores) };
    if json {
        let mut value = serde_json::to_value(&evaluation)?;
        value["game"] = trained.resolved.game.clone().into();
        value["checkpoint"] = trained.checkpoint.clone().into();
        value["episodes"] = episodes.into();
        print_line(&value.to_string());
        return Ok(());
    }
    let scores: Vec<String> = evaluation.scores.iter().map(f64::to_string).collect();
    print_line(&format!(
        "{} after {} frames (checkpoint '{}')",
        trained.resolved.game,
        settings::units::grouped(frames),
        trained.checkpoint
    ));
    print_line(&format!("policy  {}", trained.policy));
    print_line(&format!(
        "mean    {:.2} ± {:.2} standard error over {episodes} games",
        evaluation.mean, evaluation.standard_error
    ));
    print_line(&format!("scores  {}", scores.join(" ")));
    Ok(())
}
