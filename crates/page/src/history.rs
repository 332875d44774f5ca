//! The history of a learner since its start, in bounded memory.
//!
//! Samples store counts, not rates. Dropping samples therefore loses detail but no accuracy: the rate between two remaining
//! samples is the mean over the whole interval. The last minute is kept second by second.

use std::collections::VecDeque;

use replay::ReplayStatus;
use run::curve::CurvePoint;

/// Maximum samples of the whole time. At this number every second sample is dropped.
const KEPT_MAX: usize = 512;

/// Samples of the last minute.
const RECENT_MAX: usize = 61;

/// The state of a learner at one moment. Counts and seconds only grow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since this learner started.
    pub seconds: f64,
    /// Frames of the whole run.
    pub frames: u64,
    /// Updates of the whole run.
    pub updates: u64,
    /// Seconds that the training thread has waited for batches.
    pub waited: f64,
    /// Seconds that it has spent on updates.
    pub trained: f64,
    /// Seconds spent on sampling, decoding and assembling batches, in parallel with training.
    pub prepared: f64,
    /// Mean score of recent training games.
    pub training_score: Option<f64>,
    /// Actors that are connected.
    pub actors: u32,
    /// Evaluators that are connected.
    pub evaluators: u32,
    /// What the replay holds, and what the learner is blocked on.
    pub replay: ReplayStatus,
}

/// Samples in order of time, and the evaluations.
#[derive(Clone, Debug)]
pub struct History {
    kept: Vec<Sample>,
    /// One sample out of this many is kept.
    stride: usize,
    /// Samples since the last kept one.
    passed: usize,
    recent: VecDeque<Sample>,
    /// The agent's evaluations, including those before a restart of the learner.
    pub evaluations: Vec<CurvePoint>,
    /// Scores of training games before this start of the learner, as (frames, score).
    pub past_scores: Vec<(f64, f64)>,
    /// Whether the run has ended.
    pub is_finished: bool,
    /// Number of shards that the run uses.
    pub shards: u32,
}

impl History {
    #[expect(clippy::new_without_default, reason = "a history starts explicitly, never as a fallback")]
    pub fn new() -> Self {
        Self {
            kept: Vec::new(),
            stride: 1,
            passed: 0,
            recent: VecDeque::new(),
            evaluations: Vec::new(),
            past_scores: Vec::new(),
            is_finished: false,
            shards: 0,
        }
    }

    /// Adds a sample. Call it once a second.
    pub fn push(&mut self, sample: Sample) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(sample.clone());
        self.passed += 1;
        if self.passed < self.stride && !self.kept.is_empty() {
            return;
        }
        self.passed = 0;
        self.kept.push(sample);
        if self.kept.len() == KEPT_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
            // Of an even number of samples the last one was dropped.
            self.passed = self.stride / 2;
        }
    }

    pub fn now(&self) -> Option<&Sample> {
        self.recent.back()
    }

    /// The whole time in about `most` samples, including the first and the newest.
    pub fn thinned(&self, most: usize) -> Vec<Sample> {
        let newest = self.now().filter(|now| self.kept.last().is_some_and(|last| last.seconds < now.seconds));
        let all: Vec<Sample> = self.kept.iter().chain(newest).cloned().collect();
        let step = all.len().div_ceil(most.max(2) - 1).max(1);
        let mut thinned: Vec<Sample> = all.iter().step_by(step).cloned().collect();
        if let Some(last) = all.last().filter(|last| thinned.last() != Some(*last)) {
            thinned.push(last.clone());
        }
        thinned
    }

    /// The change over about the last `seconds` seconds.
    pub fn over_last(&self, seconds: f64) -> SampleSpan {
        let now = self.now().cloned().unwrap_or_default();
        let is_before = |sample: &&Sample| sample.seconds <= now.seconds - seconds;
        let before = self.recent.iter().rev().find(is_before);
        let before = before.or_else(|| self.kept.iter().rev().find(is_before));
        let first = before.or(self.kept.first()).cloned().unwrap_or_default();
        SampleSpan { first, last: now }
    }
}

/// From one sample to a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleSpan {
    pub first: Sample,
    pub last: Sample,
}

impl SampleSpan {
    pub fn new(first: &Sample, last: &Sample) -> Self {
        Self { first: first.clone(), last: last.clone() }
    }

    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.last.seconds - self.first.seconds
    }

    /// The rate of a count per second; `None` for an interval of length 0. A count that dropped has rate 0.
    pub fn rate(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let grown = (of(&self.last) - of(&self.first)).max(0.0);
        (self.seconds() > 0.0).then(|| grown / self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(seconds: u32) -> History {
        let mut history = History::new();
        for second in 0..seconds {
            let seconds = f64::from(second);
            history.push(Sample { seconds, frames: u64::from(second) * 100, ..Sample::default() });
        }
        history
    }

    #[test]
    fn memory_is_bounded_and_the_whole_time_is_covered() {
        for seconds in [1, 2, 511, 512, 513, 5_000, 100_000] {
            let history = filled(seconds);
            assert!(history.kept.len() < KEPT_MAX && history.recent.len() <= RECENT_MAX);
            let shown = history.thinned(KEPT_MAX * 2);
            assert_eq!(shown[0].seconds, 0.0, "{seconds}");
            assert_eq!(shown[shown.len() - 1].seconds, f64::from(seconds - 1));
            let gaps: Vec<f64> = shown.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
            let usual = history.stride as f64;
            assert!(gaps.iter().rev().skip(1).all(|gap| *gap == usual), "{seconds}: {gaps:?}");
            assert!(gaps.iter().all(|gap| (1.0..=usual).contains(gap)), "{seconds}: {gaps:?}");
        }
    }

    #[test]
    fn dropping_samples_does_not_change_rates() {
        let history = filled(5_000);
        for pair in history.thinned(120).windows(2) {
            let interval = SampleSpan::new(&pair[0], &pair[1]);
            assert_eq!(interval.rate(|sample| sample.frames as f64), Some(100.0));
        }
        assert!(history.thinned(120).len() <= 121);
    }

    #[test]
    fn an_interval_reaches_back_as_far_as_requested_or_to_the_start() {
        let history = filled(5_000);
        assert_eq!(history.over_last(10.0).seconds(), 10.0);
        let ten_minutes = history.over_last(600.0).seconds();
        assert!((600.0..=616.0).contains(&ten_minutes), "{ten_minutes}");
        assert_eq!(history.over_last(1e9).seconds(), 4_999.0);
    }

    #[test]
    fn an_empty_history_has_no_rate_and_a_dropped_count_has_rate_0() {
        let frames = |sample: &Sample| sample.frames as f64;
        assert_eq!(History::new().over_last(10.0).rate(frames), None);
        assert_eq!(History::new().thinned(100), []);
        assert_eq!(filled(1).over_last(10.0).rate(frames), None);
        let mut history = filled(20);
        history.push(Sample { seconds: 20.0, frames: 7, ..Sample::default() });
        assert_eq!(history.over_last(10.0).rate(frames), Some(0.0));
    }
}
