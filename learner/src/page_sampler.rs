//! Samples the learner once a second for its live page.
//!
//! Everything comes from metrics and published state, so the training thread is not involved. ScoreGauges come from the
//! run's record, so a restarted learner also shows those from before its restart.
#![allow(clippy::disallowed_methods, reason = "the learner's process measures its work")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{Hub, MemberRole};
use page::{History, Live, Sample};
use run::{curve, record};
use telemetry::PageRenderer;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::journal;
use crate::metrics::Metrics;

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Samples the learner for its live page.
pub struct PageSampler {
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    hub: Arc<Hub>,
    updates_before: u64,
}

impl PageSampler {
    /// A sampler for the run in directory `run`. `updates_before` is the number of updates by earlier starts of the
    /// learner.
    pub fn new(run: &Path, metrics: Arc<Metrics>, hub: Arc<Hub>, updates_before: u64) -> Self {
        Self { live: Arc::new(Live::new(past(run))), metrics, hub, updates_before }
    }

    /// The page, for the HTTP server.
    pub fn page(&self) -> PageRenderer {
        let (live, hub) = (self.live.clone(), self.hub.clone());
        Arc::new(move || live.html(&hub.settings()))
    }

    /// Samples until the runtime shuts down.
    pub async fn run(self) {
        let started = Instant::now();
        let mut evaluations_file = EvaluationsFile::default();
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sample = self.sample(started.elapsed().as_secs_f64());
            let evaluations = evaluations_file.read_if_longer(self.hub.directory());
            self.live.change(|history| {
                history.push(sample);
                history.is_finished = self.hub.is_finished();
                history.shards = self.hub.shards().iter().filter(|shard| !shard.excluded).count() as u32;
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
            actors: self.hub.present(MemberRole::Actor),
            evaluators: self.hub.present(MemberRole::Evaluator),
            replay: self.hub.replay_status(),
        }
    }
}

/// The history before this start of the learner, from the run's record.
fn past(run: &Path) -> History {
    let mut history = History::new();
    match record::episodes(run) {
        Ok(episodes) => history.past_scores = curve::smoothed(&journal::logged(episodes)),
        // Training must not fail because the page lacks its history.
        Err(error) => {
            warn!(%error, run_dir = %run.display(), "earlier episodes not loaded, the page starts without them");
        }
    }
    history
}

/// The run's file of evaluations, read again whenever it has grown.
#[derive(Default)]
struct EvaluationsFile {
    bytes: u64,
}

impl EvaluationsFile {
    fn read_if_longer(&mut self, run: &Path) -> Option<Vec<curve::CurvePoint>> {
        let bytes = std::fs::metadata(run.join(record::EVALUATIONS_FILE)).ok()?.len();
        if bytes == self.bytes {
            return None;
        }
        self.bytes = bytes;
        // The training thread has logged lines that can't be read.
        record::evaluations(run).ok().map(|evaluations| curve::points(&evaluations.values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::record::{AGENT, Episode, Evaluation, Record};
    use settings::choices::EvaluationPolicy;

    #[test]
    fn earlier_games_come_from_the_record_and_evaluations_are_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::resume(folder.path()).unwrap();
        record.episode(&Episode { frames: 40, score: 7.0, steps: 10, truncated: false }).unwrap();
        assert_eq!(past(folder.path()).past_scores, [(40.0, 7.0)]);

        let mut file = EvaluationsFile::default();
        assert_eq!(file.read_if_longer(folder.path()), None);
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
        let point = curve::CurvePoint { frames: 80.0, mean: 3.0, error: 0.5 };
        assert_eq!(file.read_if_longer(folder.path()), Some(vec![point]));
        assert_eq!(file.read_if_longer(folder.path()), None, "nothing new");
        assert!(past(Path::new("no such run")).past_scores.is_empty());
    }
}
