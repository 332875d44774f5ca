//! The main loop of an evaluator: wait for an evaluation request, play whole games with its weights, report the scores.
#![allow(clippy::disallowed_methods, reason = "the evaluator measures how long an evaluation takes")]

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result};
use proto::{EvaluationRequest, PlayerScores, Report, Weights};
use run::record::{AGENT, Evaluation};
use settings::seed::{self, Purpose};
use tokio::runtime::Runtime;
use tokio::time::Duration;
use tracing::info;

use crate::baselines;
use crate::evaluation::{self, EvaluationGames, PlayerKind, play};
use crate::rules::evaluation_behaviour;
use crate::start::{JoinedProcess, MembershipEnd};

/// Numbers of completed requests that are kept. After a member lost its stream, the learner sends the last request
/// again.
const COMPLETED_MAX: usize = 16;

/// How long the evaluator waits for its last report to be sent.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Evaluator {
    member: JoinedProcess,
    completed: VecDeque<u64>,
}

impl Evaluator {
    pub fn new(member: JoinedProcess) -> Self {
        Self { member, completed: VecDeque::new() }
    }

    pub fn run(mut self, runtime: &Runtime) -> Result<MembershipEnd> {
        loop {
            let completed = self.completed.clone();
            let is_new = |weights: &Weights| {
                weights.evaluation.is_some_and(|request| !completed.contains(&request.number))
            };
            let weights = match self.member.wait_for_weights(runtime, "evaluation_request", is_new) {
                Ok(weights) => weights,
                Err(end) => {
                    runtime.block_on(self.member.membership.flush(FLUSH_WAIT_MAX));
                    return Ok(end);
                }
            };
            let request = weights.evaluation.context("the weights carry no evaluation request")?;
            self.member.load(&weights)?;
            let EvaluationRequest { number, frames, episodes, baselines, .. } = request;
            info!(evaluation = number, frames, episodes, baselines, "evaluation started");
            let started = Instant::now();
            let players = self.play(&request)?;
            let (mean, standard_error) = Evaluation::mean_and_error(&players[0].scores);
            let elapsed_seconds = started.elapsed().as_secs_f64();
            info!(evaluation = number, frames, mean, standard_error, elapsed_seconds, "evaluation completed");
            let report = Report::Evaluation { number, players };
            runtime.block_on(self.member.membership.report_and_wait(report));
            self.member.metrics.evaluations.inc();
            self.completed.push_back(number);
            if self.completed.len() > COMPLETED_MAX {
                self.completed.pop_front();
            }
        }
    }

    /// Plays the agent's games and, on a second thread, the baselines' games if the request includes them.
    fn play(&self, request: &EvaluationRequest) -> Result<Vec<PlayerScores>> {
        let JoinedProcess { resolved, network, metrics, architecture, .. } = &self.member;
        let settings = &resolved.settings;
        let options = settings.environment();
        let seed = seed::number(settings.seed, Purpose::EvaluationEnvironment, &[request.frames]);
        let mut games = EvaluationGames::new(resolved, &options, seed);
        if request.frames >= settings.frames.0 {
            // Training is over, so no other process of the run needs the cores.
            games.threads = evaluation::cores();
        }
        let episodes = request.episodes as usize;
        let (scores, others) = std::thread::scope(|scope| {
            let others = request.baselines.then(|| {
                let note = |progress: &str| tracing::debug!(progress, "baseline episode completed");
                let games = &games;
                scope.spawn(move || {
                    baselines::play(resolved, architecture, agents::Device::Cpu, games, episodes, note)
                })
            });
            let agent = agents::agent(settings);
            let behaviour = evaluation_behaviour(&*agent, settings.evaluation_policy);
            let player = PlayerKind::Agent(&*agent, network, behaviour);
            let scores = play(player, &games, episodes, |_| metrics.evaluation_games.inc());
            (scores, others.map(|others| others.join().expect("baselines do not panic")))
        });
        let others = others.transpose()?.unwrap_or_default();
        let agent = PlayerScores { name: AGENT.into(), scores: scores? };
        let others = others.into_iter().map(|(name, scores)| PlayerScores { name, scores });
        Ok(std::iter::once(agent).chain(others).collect())
    }
}
