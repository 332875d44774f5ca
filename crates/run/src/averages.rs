//! Moving statistics of training: means over updates, the mean of recent scores, rates per second.
//!
//! Lockstep and the learner use them. They need no tensors, and time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use replay::ReplayStatus;

use crate::record::Training;

/// Updates between two entries of the training record.
pub const RECORD_EVERY_UPDATES: u64 = 200;

/// Number of recent training games in the mean score.
const RECENT_GAMES: usize = 20;

/// Window over which a rate is measured: long enough to be steady, short enough to show a stop.
const SPEED_WINDOW: Duration = Duration::from_secs(5);

/// Minimum time between two points of a rate, which bounds their number.
const SPEED_STEP: Duration = Duration::from_millis(100);

/// Statistics of one update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateMetrics {
    /// The weighted mean loss.
    pub loss: f64,
    /// Mean |TD|.
    pub td_error: f64,
    /// Mean Q-value over states and actions.
    pub q: f64,
    /// Mean entropy of the policy in nats.
    pub entropy: f64,
    /// Norm of the gradient before clamping.
    pub gradient_norm: f64,
    /// Mean importance weight.
    pub importance_weight: f64,
}

/// Means over the updates since the last entry of the training record.
#[derive(Clone, Debug)]
pub struct Averages {
    sums: UpdateMetrics,
    count: u64,
    since: Instant,
    since_frames: u64,
    loss: Option<f64>,
}

impl Averages {
    /// Empty, for a run that is at `frames`.
    pub fn new(frames: u64, now: Instant) -> Self {
        Self { sums: UpdateMetrics::default(), count: 0, since: now, since_frames: frames, loss: None }
    }

    pub fn add(&mut self, update: &UpdateMetrics) {
        let UpdateMetrics { loss, td_error, q, entropy, gradient_norm, importance_weight } = update;
        self.sums.loss += loss;
        self.sums.td_error += td_error;
        self.sums.q += q;
        self.sums.entropy += entropy;
        self.sums.gradient_norm += gradient_norm;
        self.sums.importance_weight += importance_weight;
        self.count += 1;
    }

    /// The entry for the record after [`RECORD_EVERY_UPDATES`] updates; then the means start anew.
    pub fn take(
        &mut self,
        frames: u64,
        updates: u64,
        replay: &ReplayStatus,
        now: Instant,
    ) -> Option<Training> {
        if self.count < RECORD_EVERY_UPDATES {
            return None;
        }
        let count = self.count as f64;
        let seconds = now.saturating_duration_since(self.since).as_secs_f64().max(1e-9);
        let training = Training {
            frames,
            updates,
            loss: self.sums.loss / count,
            td_error: self.sums.td_error / count,
            q: self.sums.q / count,
            entropy: self.sums.entropy / count,
            gradient_norm: self.sums.gradient_norm / count,
            importance_weight: self.sums.importance_weight / count,
            replay_items: replay.items,
            replay_bytes: replay.bytes,
            // The count of frames drops when a shard returns empty.
            frames_per_second: frames.saturating_sub(self.since_frames) as f64 / seconds,
            updates_per_second: count / seconds,
        };
        *self = Self { loss: Some(training.loss), ..Self::new(frames, now) };
        Some(training)
    }

    /// Mean loss of the last complete entry, for [`crate::event::ProgressUpdate`].
    pub fn loss(&self) -> Option<f64> {
        self.loss
    }
}

/// The mean of numbers, finite if they are: a sum that overflows is replaced by one of shares.
pub fn mean(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    if mean.is_finite() {
        mean
    } else {
        numbers.iter().map(|number| number / count).sum::<f64>().clamp(f64::MIN, f64::MAX)
    }
}

/// The mean score of recent training games.
#[derive(Clone, Debug, Default)]
pub struct RecentScores(VecDeque<f64>);

impl RecentScores {
    /// Adds the score of a game.
    pub fn add(&mut self, score: f64) {
        if self.0.len() == RECENT_GAMES {
            self.0.pop_front();
        }
        self.0.push_back(score);
    }

    /// The mean; `None` before the first game.
    pub fn mean(&self) -> Option<f64> {
        let scores: Vec<f64> = self.0.iter().copied().collect();
        (!scores.is_empty()).then(|| mean(&scores))
    }
}

/// The rate at which a count grows, over the last seconds.
#[derive(Clone, Debug)]
pub struct Speed(VecDeque<(Instant, u64)>);

impl Speed {
    /// A rate of a count that is now `count`.
    pub fn new(count: u64, now: Instant) -> Self {
        Self(VecDeque::from([(now, count)]))
    }

    /// The rate per second, given the current count.
    pub fn at(&mut self, count: u64, now: Instant) -> f64 {
        while self.0.len() > 1 && now.saturating_duration_since(self.0[1].0) >= SPEED_WINDOW {
            self.0.pop_front();
        }
        let (since, from) = self.0[0];
        if self.0.back().is_none_or(|(last, _)| now.saturating_duration_since(*last) >= SPEED_STEP) {
            self.0.push_back((now, count));
        }
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        if seconds > 0.0 { count.saturating_sub(from) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the test needs points in time to compute with")]

    use super::*;

    #[test]
    fn an_entry_is_averaged_and_the_next_starts_anew() {
        let start = Instant::now();
        let mut averages = Averages::new(1_000, start);
        let replay = ReplayStatus { items: 7, bytes: 70, ..ReplayStatus::default() };
        for update in 0..RECORD_EVERY_UPDATES {
            assert_eq!(averages.take(1_800, 200, &replay, start), None);
            averages.add(&UpdateMetrics { loss: (update % 2) as f64, q: 3.0, ..UpdateMetrics::default() });
        }
        let training = averages.take(1_800, 200, &replay, start + Duration::from_secs(2)).unwrap();
        assert_eq!((training.loss, training.q, training.td_error), (0.5, 3.0, 0.0));
        assert_eq!((training.frames_per_second, training.updates_per_second), (400.0, 100.0));
        assert_eq!((training.frames, training.updates, training.replay_items), (1_800, 200, 7));
        assert_eq!((averages.loss(), averages.take(1_800, 200, &replay, start)), (Some(0.5), None));
    }

    #[test]
    fn only_the_newest_games_count() {
        let mut recent = RecentScores::default();
        assert_eq!(recent.mean(), None);
        recent.add(1e6);
        (0..RECENT_GAMES).for_each(|_| recent.add(2.0));
        assert_eq!(recent.mean(), Some(2.0));
        (0..RECENT_GAMES).for_each(|_| recent.add(1.7e308));
        assert!(recent.mean().unwrap().is_finite());
    }

    #[test]
    fn a_rate_ignores_counts_outside_its_window() {
        let start = Instant::now();
        let after = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut speed = Speed::new(100, start);
        assert_eq!(speed.at(100, start), 0.0);
        assert_eq!(speed.at(300, after(2.0)), 100.0);
        for second in 3..20 {
            speed.at(300, after(f64::from(second)));
        }
        assert_eq!(speed.at(300, after(20.0)), 0.0, "no change within the window");
        assert_eq!(speed.at(50, after(21.0)), 0.0, "a count that dropped has rate 0");
        assert!(speed.0.len() < 60);
    }
}
