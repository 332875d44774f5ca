//! Trains: one run from its first step to its last evaluation, and many of them, two at a time.
//!
//! A run has its own networks, generators and environments and shares nothing with its neighbour; libtorch's gradient
//! mode and thread count are a thread's own. So runs side by side give what each gives alone, bit for bit.

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
use settings::algorithms::Algorithm;
use settings::choices::EvaluationPolicy;

use super::examiner::Examiner;
use super::real::Real;
use crate::experience::{Rule, Tally};
use crate::statistics::mean_and_error;

/// Evaluations of a run after the one of its first weights.
const EVALUATIONS: u64 = 10;
/// Games of each but the last.
const EPISODES: u32 = 8;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The appendix's settings: metrics and a curve.
    Appendix,
    /// Our settings: a curve.
    Ours,
    /// The appendix's settings at another learning rate: what steps really do.
    LearningRate(f64),
}

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it is for.
    pub part: Part,
    /// Its settings.
    pub resolved: Resolved,
    /// Updates from one that is examined to the next.
    pub examine_every: u64,
    /// Games of the last evaluation.
    pub final_episodes: u32,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The theorems, transition by transition.
    pub tally: Tally,
    /// What the steps really did.
    pub real: Real,
    /// Its evaluations, both policies at each; empty for a run that is not for its curve.
    pub curve: Vec<Score>,
}

/// An evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// After so many frames.
    pub frames: u64,
    /// How the agent acted.
    pub policy: EvaluationPolicy,
    /// Mean score of the games.
    pub mean: f64,
    /// Its standard error.
    pub stderr: f64,
}

impl Job {
    /// What is learned.
    pub fn algorithm(&self) -> Algorithm {
        self.resolved.settings.algorithm
    }

    /// The seed, which names the run.
    pub fn seed(&self) -> u64 {
        self.resolved.settings.seed
    }

    /// Makes the run.
    pub fn run(&self) -> Result<JobOutcome> {
        tch::set_num_threads(1);
        let settings = &self.resolved.settings;
        let mut run = Lockstep::new(self.resolved.clone())?;
        let rule = run.trainer.learner.agent().temperature().map_or(Rule::Hard, Rule::Soft);
        let mut examiner = Examiner::new(rule, settings.seed, self.examine_every);
        let budget = settings.frames.0;
        let tenth = (budget / EVALUATIONS).max(1);
        let wants_curve = !matches!(self.part, Part::LearningRate(_));
        let mut curve = Vec::new();
        if wants_curve {
            curve.extend(evaluate(&run, EPISODES)?);
        }
        while run.frames < budget {
            run.turn_watched(&mut examiner)?;
            if wants_curve && run.frames.is_multiple_of(tenth) && run.frames < budget {
                curve.extend(evaluate(&run, EPISODES)?);
            }
        }
        if wants_curve {
            curve.extend(evaluate(&run, self.final_episodes)?);
        }
        Ok(JobOutcome { tally: examiner.tally, real: examiner.real, curve })
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (algorithm, seed) = (self.algorithm(), self.seed());
        match self.part {
            Part::Appendix => write!(f, "{algorithm}, the appendix's settings, seed {seed}"),
            Part::Ours => write!(f, "{algorithm}, our settings, seed {seed}"),
            Part::LearningRate(rate) => write!(f, "{algorithm}, learning rate {rate}, seed {seed}"),
        }
    }
}

/// Both policies from the same weights on the same games. Plain DQN's stochastic policy is ε-greedy with its final ε.
fn evaluate(run: &Lockstep, episodes: u32) -> Result<[Score; 2]> {
    let settings = &run.resolved.settings;
    let games = seed::number(settings.seed, Purpose::EvaluationEnvironment, &[run.frames]);
    let tournament = EvaluationSetup::new(&run.resolved, games);
    let score = |policy| -> Result<Score> {
        let agent = run.trainer.learner.agent();
        let behaviour = actor::rules::evaluation_behaviour(agent, policy);
        let who = PlayerKind::Agent(agent, run.trainer.learner.online(), behaviour);
        let scores = tournament.play(who, episodes, |_| ())?;
        let (mean, stderr) = mean_and_error(&scores);
        Ok(Score { frames: run.frames, policy, mean, stderr })
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
