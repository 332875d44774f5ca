//! Which weights are to be evaluated, and what came of it.
//!
//! An evaluator plays the newest weights that wait; older ones that nobody got to are passed over. The weights of an
//! order are kept until its scores are in, because they may turn out to be the best so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{Order, Player, Weights};
use run::record::Evaluation;
use settings::choices::EvaluationPolicy;

/// Orders that are remembered. One is being played, one waits; what is older was passed over.
const ORDERS_MAX: usize = 4;

/// Orders under way.
#[derive(Debug)]
pub struct Evaluations {
    next: u64,
    orders: BTreeMap<u64, Arc<Weights>>,
}

/// A finished order.
#[derive(Debug)]
pub struct Evaluated {
    /// The weights that played.
    pub weights: Arc<Weights>,
    /// The agent first, then baselines.
    pub players: Vec<Evaluation>,
}

impl Evaluations {
    /// No orders yet. Numbers are unique over all starts of the learner.
    pub fn new(learner_incarnation: u32) -> Self {
        Self { next: u64::from(learner_incarnation) << 32, orders: BTreeMap::new() }
    }

    /// A new order, whose number is given here; `weights` has everything but the order.
    pub fn order(&mut self, mut weights: Weights, order: Order) -> Arc<Weights> {
        self.next += 1;
        weights.order = Some(Order { number: self.next, ..order });
        let weights = Arc::new(weights);
        self.orders.insert(self.next, weights.clone());
        while self.orders.len() > ORDERS_MAX {
            self.orders.pop_first();
        }
        weights
    }

    /// Takes in a report. `None` for one that nobody waits for: a second one, or one of a former learner.
    pub fn reported(
        &mut self,
        number: u64,
        players: Vec<Player>,
        policy: EvaluationPolicy,
    ) -> Option<Evaluated> {
        let weights = self.orders.remove(&number)?;
        let order = weights.order?;
        let evaluation = |Player { name, scores }| {
            let trained = name == run::record::AGENT;
            let (mean, standard_error) = Evaluation::mean_and_error(&scores);
            Evaluation {
                frames: if trained { order.frames } else { 0 },
                updates: if trained { order.updates } else { 0 },
                player: name,
                policy,
                mean,
                standard_error,
                scores,
            }
        };
        Some(Evaluated { players: players.into_iter().map(evaluation).collect(), weights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(scores: &[f64]) -> Vec<Player> {
        vec![Player { name: "agent".into(), scores: scores.to_vec() }]
    }

    fn weights() -> Weights {
        Weights { version: Default::default(), safetensors: Default::default(), order: None }
    }

    const ORDER: Order = Order { number: 0, frames: 40, updates: 7, episodes: 2, baselines: false };

    #[test]
    fn a_report_is_taken_once_and_has_the_orders_age() {
        let mut evaluations = Evaluations::new(3);
        let number = evaluations.order(weights(), ORDER).order.unwrap().number;
        assert!(number > 3 << 32);
        let policy = EvaluationPolicy::Greedy;
        let evaluated = evaluations.reported(number, agent(&[1.0, 3.0]), policy).unwrap();
        let played = &evaluated.players[0];
        assert_eq!((played.frames, played.updates, played.mean, played.standard_error), (40, 7, 2.0, 1.0));
        assert!(evaluations.reported(number, agent(&[1.0]), policy).is_none(), "once");
        assert!(evaluations.reported(5, agent(&[1.0]), policy).is_none(), "never ordered by this learner");
    }

    #[test]
    fn old_orders_are_forgotten() {
        let mut evaluations = Evaluations::new(0);
        for _ in 0..10 {
            evaluations.order(weights(), ORDER);
        }
        assert_eq!(evaluations.orders.len(), ORDERS_MAX);
    }
}
