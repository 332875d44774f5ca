//! Evaluation scores as metrics: the newest, the best, and the first, which is normally the untrained network's.

use prometheus::Gauge;
use run::record::{AGENT, Evaluation};

telemetry::metrics! {
    /// Evaluation scores. NaN before the first evaluation, because 0 is a good score in some games.
    #[derive(Clone, Debug)]
    pub struct ScoreGauges(new) {
        newest: Gauge = new.score("quiver_learner_evaluation_score", "Mean score of the newest evaluation"),
        standard_error: Gauge = new.score("quiver_learner_evaluation_standard_error", "Standard error of the newest evaluation's mean; NaN for one episode"),
        best: Gauge = new.score("quiver_learner_evaluation_best_score", "Mean score of the evaluation that checkpoint `best` has; NaN before the first evaluation of trained weights"),
        first: Gauge = new.score("quiver_learner_evaluation_first_score", "Mean score of the run's first evaluation, played by the untrained network"),
    }
}

impl ScoreGauges {
    /// Resumes from the evaluations in a run's record, and the score of its checkpoint `best`.
    pub fn resume(&self, recorded: &[Evaluation], best: Option<f64>) {
        let of_agent = recorded.iter().filter(|evaluation| evaluation.player == AGENT);
        of_agent.for_each(|agent| self.add(agent, best));
    }

    /// Adds an evaluation of the agent. `best` is the score of the checkpoint `best`.
    pub fn add(&self, agent: &Evaluation, best: Option<f64>) {
        self.newest.set(agent.mean);
        // A single game has no standard error.
        self.standard_error.set(if agent.scores.len() > 1 { agent.standard_error } else { f64::NAN });
        self.best.set(best.unwrap_or(f64::NAN));
        if self.first.get().is_nan() {
            self.first.set(agent.mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use settings::choices::EvaluationPolicy;

    use super::*;

    fn evaluation(player: &str, mean: f64) -> Evaluation {
        Evaluation {
            frames: 0,
            updates: 0,
            player: player.into(),
            policy: EvaluationPolicy::Stochastic,
            mean,
            standard_error: 0.5,
            scores: vec![mean; 2],
        }
    }

    #[test]
    fn the_first_is_kept_the_best_is_the_checkpoints_and_baselines_do_not_count() {
        let scores = ScoreGauges::register(&Registry::new());
        let shown = |scores: &ScoreGauges| [&scores.newest, &scores.best, &scores.first].map(Gauge::get);
        assert!(shown(&scores).iter().all(|score| score.is_nan()));
        // The untrained network's score is not a candidate for `best`.
        scores.add(&evaluation(AGENT, -2.5), None);
        assert!(scores.best.get().is_nan());
        let recorded = [evaluation(AGENT, -2.5), evaluation("random", 21.0), evaluation(AGENT, -3.0)];
        scores.resume(&recorded, Some(-3.0));
        scores.add(&evaluation(AGENT, -12.0), Some(-3.0));
        assert_eq!(shown(&scores), [-12.0, -3.0, -2.5]);
        assert_eq!(scores.standard_error.get(), 0.5);
        scores.add(&Evaluation { scores: vec![-12.0], ..evaluation(AGENT, -12.0) }, Some(-3.0));
        assert!(scores.standard_error.get().is_nan(), "a single game has none");
    }
}
