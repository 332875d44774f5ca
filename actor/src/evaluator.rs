//! Plays for scores: waits for the learner's orders, plays whole games with the weights that come along, reports.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use proto::{Order, Player, Report, Weights};
use run::record::AGENT;
use settings::seed::{self, Purpose};
use tokio::runtime::Runtime;
use tokio::time::Duration;
use tracing::info;

use crate::baselines;
use crate::evaluation::{Games, Who, play};
use crate::rules::evaluation_behaviour;
use crate::start::{End, Member};

/// Orders remembered as played: the learner offers one again to a member that lost its stream.
const PLAYED_MAX: usize = 16;

/// How long the last report may take.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Evaluator {
    member: Member,
    played: VecDeque<u64>,
}

impl Evaluator {
    pub fn new(member: Member) -> Self {
        Self { member, played: VecDeque::new() }
    }

    pub fn run(mut self, runtime: &Runtime) -> Result<End> {
        loop {
            let played = self.played.clone();
            let is_new =
                |weights: &Weights| weights.order.is_some_and(|order| !played.contains(&order.number));
            let weights = match self.member.wait_for_weights(runtime, "order", is_new) {
                Ok(weights) => weights,
                Err(end) => {
                    runtime.block_on(self.member.membership.flush(FLUSH_WAIT_MAX));
                    return Ok(end);
                }
            };
            let order = weights.order.context("an order comes with the weights")?;
            self.member.load(&weights)?;
            info!(order.number, order.frames, order.episodes, order.baselines, "evaluating");
            let players = self.play(&order)?;
            let report = Report::Evaluation { number: order.number, players };
            runtime.block_on(self.member.membership.report_surely(report));
            self.member.metrics.evaluations.inc();
            self.played.push_back(order.number);
            if self.played.len() > PLAYED_MAX {
                self.played.pop_front();
            }
        }
    }

    /// The agent's games, and beside them on a second thread the baselines', if ordered.
    fn play(&self, order: &Order) -> Result<Vec<Player>> {
        let Member { resolved, network, metrics, architecture, .. } = &self.member;
        let settings = &resolved.settings;
        let options = settings.environment();
        let games = Games {
            game: &resolved.game,
            options: &options,
            stack: settings.frame_stack,
            seed: seed::number(settings.seed, Purpose::EvaluationEnvironment, &[order.frames]),
        };
        let episodes = order.episodes as usize;
        let (scores, others) = std::thread::scope(|scope| {
            let others = order.baselines.then(|| {
                let note = |what: &str| tracing::debug!("{what}");
                let games = &games;
                scope.spawn(move || {
                    baselines::play(resolved, architecture, agents::Device::Cpu, games, episodes, note)
                })
            });
            let agent = agents::agent(settings);
            let behaviour = evaluation_behaviour(&*agent, settings.evaluation_policy);
            let who = Who::Agent(&*agent, network, behaviour);
            let scores = play(who, &games, episodes, |_| metrics.evaluation_games.inc());
            (scores, others.map(|others| others.join().expect("baselines do not panic")))
        });
        let others = others.transpose()?.unwrap_or_default();
        let agent = Player { name: AGENT.into(), scores: scores? };
        let others = others.into_iter().map(|(name, scores)| Player { name, scores });
        Ok(std::iter::once(agent).chain(others).collect())
    }
}
