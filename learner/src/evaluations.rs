//! Evaluation requests in flight, and the matching of reports to them.
//!
//! An evaluator plays the newest request; older ones that no evaluator started are skipped. The weights of a request
//! are kept until its scores arrive, because they may turn out to be the best so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{EvaluationRequest, PlayerScores, Weights};
use run::record::Evaluation;
use settings::choices::EvaluationPolicy;

/// Requests kept. One is being played and one is waiting; an older one was skipped.
const REQUESTS_MAX: usize = 4;

/// The requests in flight.
#[derive(Debug)]
pub struct Evaluations {
    next: u64,
    requests: BTreeMap<u64, Arc<Weights>>,
}

/// An evaluation whose scores have arrived.
#[derive(Debug)]
pub struct Evaluated {
    /// The weights that played.
    pub weights: Arc<Weights>,
    /// The agent first, then the baselines.
    pub players: Vec<Evaluation>,
}

impl Evaluations {
    /// No requests yet. Their numbers are unique over all starts of the learner.
    pub fn new(learner_incarnation: u32) -> Self {
        Self { next: u64::from(learner_incarnation) << 32, requests: BTreeMap::new() }
    }

    /// Assigns the request a number, attaches it to the weights and keeps both until the report.
    pub fn request(&mut self, mut weights: Weights, request: EvaluationRequest) -> Arc<Weights> {
        self.next += 1;
        weights.evaluation = Some(EvaluationRequest { number: self.next, ..request });
        let weights = Arc::new(weights);
        self.requests.insert(self.next, weights.clone());
        while self.requests.len() > REQUESTS_MAX {
            self.requests.pop_first();
        }
        weights
    }

    /// Matches a report to its request. `None` if there is none: a repeated report, or one for an earlier learner.
    pub fn complete(
        &mut self,
        number: u64,
        players: Vec<PlayerScores>,
        policy: EvaluationPolicy,
    ) -> Option<Evaluated> {
        let weights = self.requests.remove(&number)?;
        let request = weights.evaluation?;
        // Baselines do not train: their frames and updates are 0.
        let evaluation = |PlayerScores { name, scores }| {
            let trained = name == run::record::AGENT;
            let (frames, updates) = if trained { (request.frames, request.updates) } else { (0, 0) };
            Evaluation { frames, updates, ..Evaluation::new(name, policy, scores) }
        };
        Some(Evaluated { players: players.into_iter().map(evaluation).collect(), weights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(scores: &[f64]) -> Vec<PlayerScores> {
        vec![PlayerScores { name: "agent".into(), scores: scores.to_vec() }]
    }

    fn weights() -> Weights {
        Weights { version: Default::default(), safetensors: Default::default(), evaluation: None }
    }

    const REQUEST: EvaluationRequest =
        EvaluationRequest { number: 0, frames: 40, updates: 7, episodes: 2, baselines: false };

    #[test]
    fn a_report_is_accepted_once_and_has_the_age_of_its_request() {
        let mut evaluations = Evaluations::new(3);
        let number = evaluations.request(weights(), REQUEST).evaluation.unwrap().number;
        assert!(number > 3 << 32);
        let policy = EvaluationPolicy::Greedy;
        let evaluated = evaluations.complete(number, agent(&[1.0, 3.0]), policy).unwrap();
        let played = &evaluated.players[0];
        assert_eq!((played.frames, played.updates, played.mean, played.standard_error), (40, 7, 2.0, 1.0));
        assert!(evaluations.complete(number, agent(&[1.0]), policy).is_none(), "once");
        assert!(evaluations.complete(5, agent(&[1.0]), policy).is_none(), "never requested by this learner");
    }

    #[test]
    fn old_requests_are_dropped() {
        let mut evaluations = Evaluations::new(0);
        for _ in 0..10 {
            evaluations.request(weights(), REQUEST);
        }
        assert_eq!(evaluations.requests.len(), REQUESTS_MAX);
    }
}
