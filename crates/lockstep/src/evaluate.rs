//! Plays a run's weights for their scores.

use std::sync::Arc;

use actor::evaluation::{Games, Who, play};
use agents::{Architecture, Behaviour, QNetwork};
use anyhow::Result;
use learner::{checkpoint, setup};
use run::checkpoint::Checkpoint;
use run::order::Agent;
use run::record::{AGENT, Evaluation};
use settings::Resolved;
use settings::choices::EvaluationPolicy;

use run::output::say;

/// A set of games that several players can play, so that their scores compare.
pub struct Tournament {
    game: String,
    options: envs::Options,
    stack: usize,
    seed: u64,
}

impl Tournament {
    /// The games of a run's settings.
    pub fn new(resolved: &Resolved, seed: u64) -> Self {
        let options = resolved.settings.environment();
        Self { game: resolved.game.clone(), options, stack: resolved.settings.frame_stack, seed }
    }

    /// The games as the actor crate wants them.
    pub fn games(&self) -> Games<'_> {
        Games { game: &self.game, options: &self.options, stack: self.stack, seed: self.seed }
    }

    /// Plays and returns the scores.
    pub fn play(&self, who: Who<'_>, episodes: u32, watch: impl FnMut(usize)) -> Result<Vec<f64>> {
        Ok(play(who, &self.games(), episodes as usize, watch)?)
    }
}

/// Scores with their mean and standard error.
pub fn evaluation(
    player: &str,
    policy: EvaluationPolicy,
    scores: Vec<f64>,
    frames: u64,
    updates: u64,
) -> Evaluation {
    let (mean, standard_error) = Evaluation::mean_and_error(&scores);
    Evaluation { frames, updates, player: player.into(), policy, mean, standard_error, scores }
}

/// A run's weights, ready to act.
pub struct TrainedAgent {
    /// The network.
    pub network: QNetwork,
    /// Its algorithm.
    pub agent: Arc<dyn agents::Agent>,
    /// The run's settings.
    pub resolved: Resolved,
    /// How it acts.
    pub policy: EvaluationPolicy,
    /// Frames and updates behind the weights.
    pub age: (u64, u64),
    /// The checkpoint's name.
    pub checkpoint: String,
    /// Frames per decision.
    pub spec: envs::Spec,
}

impl TrainedAgent {
    /// Loads an agent.
    pub fn load(agent: &Agent) -> Result<Self> {
        let resolved = run::directory::read_settings(&agent.run)?;
        let settings = &resolved.settings;
        tch::set_num_threads(settings.torch_threads as i32);
        let checkpoint =
            Checkpoint::find(&run::directory::checkpoints(&agent.run), agent.checkpoint.as_deref())?;
        let options = settings.environment();
        let spec = envs::make(&resolved.game, &options, 0)?.spec().clone();
        let device = setup::device(agent.device.unwrap_or(settings.device))?;
        let mut rng = actor::seed::generator(0, actor::seed::Purpose::Weights, &[]);
        let algorithm = agents::agent(settings);
        let architecture = Architecture::new(settings, &*algorithm, &spec)?;
        let mut network = QNetwork::random(architecture, device, &mut rng)?;
        network.load(&checkpoint.read(checkpoint::WEIGHTS)?).map_err(|error| checkpoint.nonsense(error))?;
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

    /// How it draws its actions.
    pub fn behaviour(&self) -> Behaviour {
        actor::rules::evaluation_behaviour(&*self.agent, self.policy)
    }
}

/// `quiver evaluate`.
pub fn evaluate(agent: &Agent, episodes: u32, json: bool) -> Result<()> {
    let trained = TrainedAgent::load(agent)?;
    let tournament = Tournament::new(&trained.resolved, agent.seed);
    let who = Who::Agent(&*trained.agent, &trained.network, trained.behaviour());
    let bar = crate::progress::counter(u64::from(episodes), "games");
    let scores = tournament.play(who, episodes, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let (frames, updates) = trained.age;
    let evaluation = evaluation(AGENT, trained.policy, scores, frames, updates);
    if json {
        let mut value = serde_json::to_value(&evaluation)?;
        value["game"] = trained.resolved.game.clone().into();
        value["checkpoint"] = trained.checkpoint.clone().into();
        value["episodes"] = episodes.into();
        say(&value.to_string());
        return Ok(());
    }
    let scores: Vec<String> = evaluation.scores.iter().map(f64::to_string).collect();
    say(&format!(
        "{} after {} frames (checkpoint '{}')",
        trained.resolved.game,
        settings::units::grouped(frames),
        trained.checkpoint
    ));
    say(&format!("policy  {}", trained.policy));
    say(&format!(
        "mean    {:.2} ± {:.2} standard error over {episodes} games",
        evaluation.mean, evaluation.standard_error
    ));
    say(&format!("scores  {}", scores.join(" ")));
    Ok(())
}
