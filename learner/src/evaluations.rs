//! Evaluation requests in flight, and the matching of reports to them.
//!
//! An evaluator plays the newest request; older ones that no evaluator started are superseded, which is logged. The
//! weights of a request are kept until its scores arrive, because they may turn out to be the best so far.

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
    /// Requests that were not reported when a newer one was, or that were dropped, until the log has them.
    superseded: Vec<EvaluationRequest>,
    /// All requests up to this number are reported or superseded.
    settled: u64,
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
        let next = u64::from(learner_incarnation) << 32;
        Self { next, requests: BTreeMap::new(), superseded: Vec::new(), settled: next }
    }

    /// Assigns the request a number, attaches it to the weights and keeps both until the report.
    pub fn request(&mut self, mut weights: Weights, request: EvaluationRequest) -> Arc<Weights> {
        self.next += 1;
        weights.evaluation = Some(EvaluationRequest { number: self.next, ..request });
        let weights = Arc::new(weights);
        self.requests.insert(self.next, weights.clone());
        while self.requests.len() > REQUESTS_MAX
            && let Some((&oldest, _)) = self.requests.first_key_value()
        {
            self.supersede(oldest);
            self.requests.remove(&oldest);
        }
        weights
    }

    /// Requests that were superseded since the last call: no evaluator started them before a newer one, unless it is
    /// still playing.
    pub fn take_superseded(&mut self) -> Vec<EvaluationRequest> {
        std::mem::take(&mut self.superseded)
    }

    /// Marks every request up to this number as superseded, once.
    fn supersede(&mut self, last: u64) {
        if last > self.settled {
            let open = self.requests.range(self.settled + 1..=last);
            self.superseded.extend(open.filter_map(|(_, weights)| weights.evaluation));
            self.settled = last;
        }
    }

    /// Matches a report to its request. `None` if there is none: a repeated report, or one for an earlier learner. Nor does
    /// a report of more games than requested fit, whose scores would all be recorded.
    pub fn complete(
        &mut self,
        number: u64,
        players: Vec<PlayerScores>,
        policy: EvaluationPolicy,
    ) -> Option<Evaluated> {
        let requested = self.requests.get(&number)?.evaluation?.episodes as usize;
        if players.iter().any(|player| player.scores.len() > requested) {
            return None;
        }
        let weights = self.requests.remove(&number)?;
        self.supersede(number);
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
    fn a_report_of_more_games_than_requested_is_ignored_and_the_request_stays_open() {
        let mut evaluations = Evaluations::new(0);
        let number = evaluations.request(weights(), REQUEST).evaluation.unwrap().number;
        let policy = EvaluationPolicy::Greedy;
        assert!(evaluations.complete(number, agent(&[1.0; 3]), policy).is_none());
        assert!(evaluations.complete(number, agent(&[1.0; 2]), policy).is_some());
    }

    #[test]
    fn old_requests_are_dropped() {
        let mut evaluations = Evaluations::new(0);
        for _ in 0..10 {
            evaluations.request(weights(), REQUEST);
        }
        assert_eq!(evaluations.requests.len(), REQUESTS_MAX);
        assert_eq!(evaluations.take_superseded().len(), 10 - REQUESTS_MAX);
    }

    #[test]
    fn requests_older_than_a_completed_one_are_superseded_once_and_may_still_be_reported() {
        let mut evaluations = Evaluations::new(0);
        let numbers: Vec<u64> = [0, 10, 20, 30]
            .map(|frames| {
                let request = EvaluationRequest { frames, ..REQUEST };
                evaluations.request(weights(), request).evaluation.unwrap().number
            })
            .to_vec();
        let mut superseded_by = |number| {
            assert!(evaluations.complete(number, agent(&[1.0]), EvaluationPolicy::Greedy).is_some());
            evaluations.take_superseded().iter().map(|request| request.frames).collect::<Vec<_>>()
        };
        assert_eq!(superseded_by(numbers[1]), [0]);
        assert!(superseded_by(numbers[0]).is_empty(), "a second evaluator was still playing it");
        assert_eq!(superseded_by(numbers[3]), [20]);
    }
}
