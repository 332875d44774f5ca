//! Looks at the learner once a second, for its page.
//!
//! It reads what is measured and published anyway, so the training thread knows nothing of it. Scores come from the run's
//! record, so a learner that was started again shows those of its former lives too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{Hub, Role};
use page::{History, Live, Sample};
use run::{curve, record};
use telemetry::Page;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::metrics::Metrics;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Samples the learner for its page.
pub struct Lookout {
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    hub: Arc<Hub>,
    updates_before: u64,
}

impl Lookout {
    /// A page of the run in this directory. `updates_before` were made before this start of the learner.
    pub fn new(run: &Path, metrics: Arc<Metrics>, hub: Arc<Hub>, updates_before: u64) -> Self {
        Self { live: Arc::new(Live::new(past(run))), metrics, hub, updates_before }
    }

    /// The page, to be served.
    pub fn page(&self) -> Page {
        let (live, hub) = (self.live.clone(), self.hub.clone());
        Arc::new(move || live.html(&hub.settings()))
    }

    /// Looks until the runtime ends.
    pub async fn run(self) {
        let started = Instant::now();
        let mut scores = Scores::default();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let sample = self.sample(started.elapsed().as_secs_f64());
            let evaluations = scores.read_if_longer(self.hub.directory());
            self.live.change(|history| {
                history.push(sample);
                history.is_finished = self.hub.is_finished();
                history.shards = self.hub.places().iter().filter(|place| !place.absent).count() as u32;
                if let Some(evaluations) = evaluations {
                    history.evaluations = evaluations;
                }
            });
        }
    }

    fn sample(&self, seconds: f64) -> Sample {
        let metrics = &self.metrics;
        Sample {
            seconds,
            frames: metrics.frames.get().max(0) as u64,
            updates: self.updates_before + metrics.updates.get(),
            waited: metrics.wait_seconds.get(),
            trained: metrics.update_seconds.get_sample_sum(),
            prepared: metrics.prepare_seconds.get_sample_sum(),
            training_score: (metrics.episodes.get() > 0).then(|| metrics.training_score.get()),
            actors: self.hub.present(Role::Actor),
            evaluators: self.hub.present(Role::Evaluator),
            replay: self.hub.replay_status(),
        }
    }
}

/// What the run's record has of the time before this learner.
fn past(run: &Path) -> History {
    let mut history = History::new();
    match record::episodes(run) {
        Ok(episodes) => history.past_scores = curve::smoothed(&episodes),
        // A page without its past is better than no training.
        Err(error) => warn!(%error, "the page begins without former training games"),
    }
    history
}

/// The run's evaluations, read again when there are more.
#[derive(Default)]
struct Scores {
    bytes: u64,
}

impl Scores {
    fn read_if_longer(&mut self, run: &Path) -> Option<Vec<curve::Point>> {
        let bytes = std::fs::metadata(run.join(record::EVALUATIONS_FILE)).ok()?.len();
        if bytes == self.bytes {
            return None;
        }
        self.bytes = bytes;
        record::evaluations(run).ok().map(|evaluations| curve::points(&evaluations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::record::{AGENT, Episode, Evaluation, Record};
    use settings::choices::EvaluationPolicy;

    #[test]
    fn the_past_is_in_the_record_and_evaluations_are_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::go_on(folder.path()).unwrap();
        record.episode(&Episode { frames: 40, score: 7.0, steps: 10, truncated: false }).unwrap();
        assert_eq!(past(folder.path()).past_scores, [(40.0, 7.0)]);

        let mut scores = Scores::default();
        assert_eq!(scores.read_if_longer(folder.path()), None);
        let evaluation = Evaluation {
            frames: 80,
            updates: 5,
            player: AGENT.into(),
            policy: EvaluationPolicy::Greedy,
            mean: 3.0,
            standard_error: 0.5,
            scores: vec![2.5, 3.5],
        };
        record.evaluation(&evaluation).unwrap();
        let point = curve::Point { frames: 80.0, mean: 3.0, error: 0.5 };
        assert_eq!(scores.read_if_longer(folder.path()), Some(vec![point]));
        assert_eq!(scores.read_if_longer(folder.path()), None, "nothing new");
        assert!(past(Path::new("no such run")).past_scores.is_empty());
    }
}
