//! Which weights are to be evaluated, and what came of it.
//!
//! An evaluator plays the newest weights that wait; older ones that nobody got to are passed over. The weights of an
//! order are kept until its scores are in, because they may turn out to be the best so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::v1;
use run::choices::EvaluationPolicy;
use run::record::Evaluation;

/// Orders that are remembered. One is being played, one waits; what is older was passed over.
const ORDERS_MAX: usize = 4;

/// Orders under way.
#[derive(Debug)]
pub struct Evaluations {
    next: u64,
    orders: BTreeMap<u64, Arc<v1::Weights>>,
}

/// A finished order.
#[derive(Debug)]
pub struct Evaluated {
    /// The weights that played.
    pub weights: Arc<v1::Weights>,
    /// The order.
    pub order: v1::EvaluationOrder,
    /// The agent first, then baselines.
    pub players: Vec<Evaluation>,
}

impl Evaluations {
    /// No orders yet. Numbers are unique over all starts of the learner.
    pub fn new(learner_incarnation: u32) -> Self {
        Self { next: u64::from(learner_incarnation) << 32, orders: BTreeMap::new() }
    }

    /// A new order; `weights` has everything but the order.
    pub fn order(&mut self, mut weights: v1::Weights, order: v1::EvaluationOrder) -> Arc<v1::Weights> {
        self.next += 1;
        weights.evaluation = Some(v1::EvaluationOrder { number: self.next, ..order });
        let weights = Arc::new(weights);
        self.orders.insert(self.next, weights.clone());
        while self.orders.len() > ORDERS_MAX {
            self.orders.pop_first();
        }
        weights
    }

    /// Takes in a report. `None` for one that nobody waits for: a second one, or one of a former learner.
    pub fn reported(&mut self, report: v1::EvaluationReport, policy: EvaluationPolicy) -> Option<Evaluated> {
        let weights = self.orders.remove(&report.number)?;
        let order = weights.evaluation?;
        let players = report.players.into_iter().map(|player| {
            let trained = player.player == run::record::AGENT;
            let (mean, standard_error) = Evaluation::mean_and_error(&player.scores);
            Evaluation {
                frames: if trained { order.frames } else { 0 },
                updates: if trained { order.updates } else { 0 },
                player: player.player,
                policy,
                mean,
                standard_error,
                scores: player.scores,
            }
        });
        let players: Vec<_> = players.collect();
        let agent_first = players.first().is_some_and(|player| player.player == run::record::AGENT);
        agent_first.then_some(Evaluated { weights, order, players })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, scores: &[f64]) -> v1::EvaluationReport {
        let agent = v1::PlayerScores { player: "agent".into(), scores: scores.to_vec() };
        v1::EvaluationReport { number, players: vec![agent] }
    }

    #[test]
    fn a_report_is_taken_once_and_has_the_orders_age() {
        let mut evaluations = Evaluations::new(3);
        let order = v1::EvaluationOrder { frames: 40, updates: 7, episodes: 2, ..Default::default() };
        let number = evaluations.order(v1::Weights::default(), order).evaluation.unwrap().number;
        assert!(number > 3 << 32);
        let policy = EvaluationPolicy::Greedy;
        let evaluated = evaluations.reported(report(number, &[1.0, 3.0]), policy).unwrap();
        let agent = &evaluated.players[0];
        assert_eq!((agent.frames, agent.updates, agent.mean, agent.standard_error), (40, 7, 2.0, 1.0));
        assert!(evaluations.reported(report(number, &[1.0]), policy).is_none(), "once");
        assert!(evaluations.reported(report(5, &[1.0]), policy).is_none(), "never ordered by this learner");
    }

    #[test]
    fn old_orders_are_forgotten() {
        let mut evaluations = Evaluations::new(0);
        for _ in 0..10 {
            evaluations.order(v1::Weights::default(), v1::EvaluationOrder::default());
        }
        assert_eq!(evaluations.orders.len(), ORDERS_MAX);
    }
}
