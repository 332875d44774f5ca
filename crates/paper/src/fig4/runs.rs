//! Trains: one run from its first step to its last evaluation, and many of them, two at a time.
//!
//! A run has its own networks, generators and environments and shares nothing with its neighbour; libtorch's gradient
//! mode and thread count are a thread's own. So runs side by side give what each gives alone, bit for bit.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use actor::evaluation::PlayerKind;
use actor::seed::{self, Purpose};
use anyhow::{Context, Result};
use lockstep::Lockstep;
use lockstep::evaluate::EvaluationSetup;
use settings::Resolved;
use settings::choices::EvaluationPolicy;

use super::examiner::{Examiner, Successor, TransitionName};
use super::real::Line;
use super::settings::{FigureLearner, Source};
use crate::experience::{Rule, Tally};
use crate::statistics::mean_and_error;

/// Evaluations of a run after the one of its first weights.
const EVALUATIONS: u64 = 10;
/// Games of each but the last.
const EPISODES: u32 = 8;

/// Training games of a training score, as the notebooks print it.
const TRAINING_GAMES: usize = 10;

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// A preset: metrics and curves.
    Preset(Source),
    /// Preset `paper-cartpole` at another learning rate: the effect of real steps.
    LearningRate(f64),
}

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Job {
    pub part: Part,
    pub learner: FigureLearner,
    pub resolved: Resolved,
    /// Updates from one that is examined to the next.
    pub examine_every: u64,
    /// Games of the last evaluation.
    pub final_episodes: u32,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The bounds, transition by transition.
    pub tally: Tally,
    /// Successors of the kept transitions.
    pub successors: HashMap<TransitionName, Successor>,
    /// The effects of the real steps, metric by metric.
    pub real: Vec<Line>,
    /// Scores of each policy; empty for a run at another learning rate.
    pub curve: Vec<Score>,
}

/// How the agent acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Played {
    /// In training, with its exploration: the mean of the newest games.
    Training,
    /// In evaluation games.
    Evaluation(EvaluationPolicy),
}

impl Played {
    /// All.
    pub const ALL: [Self; 3] = [
        Self::Training,
        Self::Evaluation(EvaluationPolicy::Stochastic),
        Self::Evaluation(EvaluationPolicy::Greedy),
    ];
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Training => f.write_str("training"),
            Self::Evaluation(policy) => policy.fmt(f),
        }
    }
}

/// A score: the mean over some games at one point of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub frames: u64,
    pub played: Played,
    pub mean: f64,
    /// Standard error over the games.
    pub stderr: f64,
}

impl Job {
    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.resolved.settings.seed
    }

    /// Makes the run.
    pub fn run(&self) -> Result<JobOutcome> {
        tch::set_num_threads(1);
        let settings = &self.resolved.settings;
        let mut run = Lockstep::new(self.resolved.clone())?;
        let rule = run.trainer.learner.agent().temperature().map_or(Rule::Hard, Rule::Soft);
        let mut examiner = Examiner::new(rule, settings, self.examine_every);
        let budget = settings.frames.0;
        let tenth = (budget / EVALUATIONS).max(1);
        let has_curve = matches!(self.part, Part::Preset(_));
        let mut curve = Vec::new();
        let mut games = Vec::new();
        if has_curve {
            curve.extend(evaluate(&run, EPISODES)?);
        }
        while run.frames < budget {
            games.extend(run.turn_watched(&mut examiner)?.episodes.iter().map(|end| end.score));
            if has_curve && run.frames.is_multiple_of(tenth) && run.frames < budget {
                curve.extend(training(run.frames, &games));
                curve.extend(evaluate(&run, EPISODES)?);
            }
        }
        if has_curve {
            curve.extend(training(run.frames, &games));
            curve.extend(evaluate(&run, self.final_episodes)?);
        }
        let Examiner { tally, successors, real, .. } = examiner.finish();
        Ok(JobOutcome { tally, successors, real: real.lines(), curve })
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (learner, seed) = (self.learner.title(), self.seed());
        match self.part {
            Part::Preset(source) => write!(f, "{learner}, {}, seed {seed}", source.preset()),
            Part::LearningRate(rate) => write!(f, "{learner}, learning rate {rate}, seed {seed}"),
        }
    }
}

/// The score of the newest training games.
fn training(frames: u64, games: &[f64]) -> Option<Score> {
    let newest = &games[games.len().saturating_sub(TRAINING_GAMES)..];
    let (mean, stderr) = mean_and_error(newest);
    (!newest.is_empty()).then_some(Score { frames, played: Played::Training, mean, stderr })
}

/// Both policies from the same weights on the same games. The stochastic policy of DQN is ε-greedy with its final ε.
fn evaluate(run: &Lockstep, episodes: u32) -> Result<[Score; 2]> {
    let settings = &run.resolved.settings;
    let games = seed::number(settings.seed, Purpose::EvaluationEnvironment, &[run.frames]);
    let tournament = EvaluationSetup::new(&run.resolved, games);
    let score = |policy| -> Result<Score> {
        let agent = run.trainer.learner.agent();
        let behaviour = actor::rules::evaluation_behaviour(agent, policy);
        let player = PlayerKind::Agent(agent, run.trainer.learner.online(), behaviour);
        let scores = tournament.play(player, episodes, |_| ())?;
        let (mean, stderr) = mean_and_error(&scores);
        Ok(Score { frames: run.frames, played: Played::Evaluation(policy), mean, stderr })
    };
    Ok([score(EvaluationPolicy::Stochastic)?, score(EvaluationPolicy::Greedy)?])
}

/// Makes all runs, `workers` at a time, and gives their outcomes in the order of the jobs. The first that fails is the
/// error; those that have begun by then are waited for.
pub fn side_by_side(jobs: &[Job], workers: usize, say: &dyn Fn(&str)) -> Result<Vec<JobOutcome>> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(jobs.len().max(1));
    let mut outcomes: Vec<Option<JobOutcome>> = Vec::new();
    outcomes.resize_with(jobs.len(), || None);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..workers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    // The receiver is gone once a run has failed.
                    if sender.send((index, job.run())).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (done, (index, outcome)) in receiver.into_iter().enumerate() {
            let job = &jobs[index];
            let outcome = outcome.with_context(|| format!("figure 4: {job}"))?;
            say(&format!("fig4: run {} of {}: {job}{}", done + 1, jobs.len(), last_scores(&outcome)));
            outcomes[index] = Some(outcome);
        }
        Ok(())
    })?;
    outcomes.into_iter().map(|outcome| outcome.context("a run of figure 4 has no outcome")).collect()
}

fn last_scores(outcome: &JobOutcome) -> String {
    match outcome.curve.as_slice() {
        [.., stochastic, greedy] => {
            format!(": ends with {:.0} stochastic, {:.0} greedy", stochastic.mean, greedy.mean)
        }
        _ => String::new(),
    }
}
