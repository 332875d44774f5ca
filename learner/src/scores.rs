//! Scores of evaluations, as metrics show them: the newest, the best, and the first, which the untrained network played.

use prometheus::Gauge;
use run::record::{AGENT, Evaluation};

telemetry::metrics! {
    /// Scores of evaluations: NaN until there is one, because 0 is a good score in some games.
    #[derive(Clone, Debug)]
    pub struct Scores(new) {
        newest: Gauge = new.score("learner_evaluation_score", "Mean score of the newest evaluation"),
        standard_error: Gauge = new.score("learner_evaluation_standard_error", "Standard error of that mean"),
        best: Gauge = new.score("learner_evaluation_best_score", "Mean score of the best evaluation"),
        first: Gauge = new.score("learner_evaluation_first_score", "Mean score of the run's first evaluation"),
    }
}

impl Scores {
    /// Goes on with a run that has evaluations already.
    pub fn go_on(&self, recorded: &[Evaluation]) {
        recorded.iter().filter(|evaluation| evaluation.player == AGENT).for_each(|agent| self.add(agent));
    }

    /// Takes in an evaluation of the agent.
    pub fn add(&self, agent: &Evaluation) {
        self.newest.set(agent.mean);
        // One game says nothing of how far games lie apart.
        self.standard_error.set(if agent.scores.len() > 1 { agent.standard_error } else { f64::NAN });
        // Whatever is compared with no number is neither larger nor smaller.
        self.best.set(agent.mean.max(self.best.get()));
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
    fn the_first_and_the_best_stay_and_others_than_the_agent_do_not_count() {
        let scores = Scores::register(&Registry::new());
        let shown = |scores: &Scores| [&scores.newest, &scores.best, &scores.first].map(Gauge::get);
        assert!(shown(&scores).iter().all(|score| score.is_nan()));
        scores.go_on(&[evaluation(AGENT, -20.5), evaluation("random", 21.0), evaluation(AGENT, -3.0)]);
        scores.add(&evaluation(AGENT, -12.0));
        assert_eq!(shown(&scores), [-12.0, -3.0, -20.5]);
        assert_eq!(scores.standard_error.get(), 0.5);
        scores.add(&Evaluation { scores: vec![-12.0], ..evaluation(AGENT, -12.0) });
        assert!(scores.standard_error.get().is_nan(), "a single game has none");
    }
}
