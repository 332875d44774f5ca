//! Interprets a history: rates, time left, time shares, the bottleneck.

use settings::Settings;

use crate::history::{History, Sample};

/// Window of current rates, in seconds: long enough to be steady, short enough to show a stop.
pub const NOW_SECONDS: f64 = 10.0;

/// Window of current time shares, in seconds.
const MINUTE_SECONDS: f64 = 60.0;

/// The time left is estimated from the newer half of the history, at most this many seconds: the rate at the start, while
/// the replay was filling, does not predict the rest.
const PACE_SECONDS_MAX: f64 = 600.0;

/// A learner that waits for more than `WAITS_MUCH` of the time is blocked by others; one that waits for less than
/// `WAITS_LITTLE` is itself the bottleneck.
const WAITS_MUCH: f64 = 0.5;
const WAITS_LITTLE: f64 = 0.15;

/// If preparing batches takes more than this share of the time, sampling is the bottleneck.
const PREPARES_ALWAYS: f64 = 0.85;

/// The state of a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnerState {
    Starting,
    Training,
    /// It makes no updates, because it is blocked.
    Waiting,
    /// All frames are played; the final evaluation is not finished.
    Evaluating,
    /// The run has ended.
    Finished,
}

impl LearnerState {
    /// The state in one or two words.
    pub fn words(self) -> &'static str {
        match self {
            LearnerState::Starting => "starting",
            LearnerState::Training => "training",
            LearnerState::Waiting => "waiting",
            LearnerState::Evaluating => "final evaluation",
            LearnerState::Finished => "finished",
        }
    }
}

/// Shares of the wall time. The three shares of the training thread sum to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    pub training: f64,
    /// Waiting for a batch.
    pub waiting: f64,
    /// Publishing weights, the record, checkpoints.
    pub other: f64,
    /// Sampling, decoding and assembling batches, in parallel with training.
    pub preparing: f64,
}

impl Shares {
    /// The shares between two samples; `None` if no time lies between them.
    pub fn of(first: &Sample, last: &Sample) -> Option<Self> {
        let seconds = last.seconds - first.seconds;
        if seconds.is_nan() || seconds <= 0.0 {
            return None;
        }
        let share = |of: fn(&Sample) -> f64| {
            let share = (of(last) - of(first)) / seconds;
            if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
        };
        let training = share(|sample| sample.trained);
        // An update that began before the interval is counted when it ends, so sums may be slightly above 1.
        let waiting = share(|sample| sample.waited).min(1.0 - training);
        let other = (1.0 - training - waiting).max(0.0);
        Some(Self { training, waiting, other, preparing: share(|sample| sample.prepared) })
    }
}

/// A history with the settings of its run.
#[derive(Clone, Copy, Debug)]
pub struct Story<'a> {
    pub settings: &'a Settings,
    pub history: &'a History,
}

impl Story<'_> {
    /// The newest sample; all zero before the first.
    pub fn now(&self) -> Sample {
        self.history.now().cloned().unwrap_or_default()
    }

    /// What the learner is blocked on, if anything.
    fn blocked_on(&self) -> Option<&str> {
        self.history.now()?.replay.blocked_on.as_deref()
    }

    /// Current frames per second.
    pub fn frames_rate(&self) -> Option<f64> {
        self.history.over_last(NOW_SECONDS).rate(|sample| sample.frames as f64)
    }

    /// Current updates per second.
    pub fn updates_rate(&self) -> Option<f64> {
        self.history.over_last(NOW_SECONDS).rate(|sample| sample.updates as f64)
    }

    /// Share of the frame budget that is played, from 0 to 1.
    pub fn progress(&self) -> f64 {
        (self.now().frames as f64 / self.settings.frames.0.max(1) as f64).min(1.0)
    }

    /// Estimated seconds until the frame budget is reached; `None` if the rate is 0 or unknown, or no frames are left.
    pub fn seconds_left(&self) -> Option<f64> {
        let now = self.now();
        let left = self.settings.frames.0.checked_sub(now.frames).filter(|left| *left > 0)?;
        let window = (now.seconds / 2.0).min(PACE_SECONDS_MAX);
        let pace = self.history.over_last(window).rate(|sample| sample.frames as f64)?;
        (pace > 0.0).then(|| left as f64 / pace)
    }

    /// The state of the learner.
    pub fn state(&self) -> LearnerState {
        let now = self.now();
        let learns = self.updates_rate().is_some_and(|speed| speed > 0.0);
        match () {
            () if self.history.is_finished => LearnerState::Finished,
            () if self.history.now().is_none() => LearnerState::Starting,
            () if now.frames >= self.settings.frames.0 => LearnerState::Evaluating,
            () if learns => LearnerState::Training,
            () if self.blocked_on().is_some() => LearnerState::Waiting,
            () => LearnerState::Starting,
        }
    }

    /// The time shares of the last minute.
    pub fn shares(&self) -> Option<Shares> {
        let minute = self.history.over_last(MINUTE_SECONDS);
        Shares::of(&minute.first, &minute.last)
    }

    /// The bottleneck, in one or two sentences.
    pub fn bottleneck(&self) -> String {
        match (self.state(), self.shares(), self.blocked_on()) {
            (LearnerState::Finished, ..) => "The run has ended.".into(),
            (LearnerState::Evaluating, ..) if self.now().evaluators == 0 => {
                "All frames are played. The learner is blocked on the final evaluation, and no evaluator is connected: start one with quiver-actor --evaluate."
                    .into()
            }
            (LearnerState::Evaluating, ..) => {
                "All frames are played. The learner is blocked on the evaluator, which plays the final evaluation.".into()
            }
            (LearnerState::Starting | LearnerState::Waiting, _, Some(what)) => format!("The learner is waiting for {what}."),
            (LearnerState::Training, Some(shares), _) => self.balance(shares),
            _ => "The learner is starting.".into(),
        }
    }

    fn balance(&self, Shares { waiting, preparing, .. }: Shares) -> String {
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let is_free = self.settings.samples_per_insert.0.is_none();
        match () {
            () if waiting > WAITS_MUCH && preparing > PREPARES_ALWAYS => format!(
                "Bottleneck: sampling. The learner waits for batches {} of the time, although the prefetcher is always busy.",
                percent(waiting)
            ),
            () if waiting > WAITS_MUCH => format!(
                "Bottleneck: actors. The learner waits for them {} of the time; more actors would speed up training.",
                percent(waiting)
            ),
            () if waiting > WAITS_LITTLE => format!(
                "No bottleneck: actors and learner keep pace. The learner waits {} of the time.",
                percent(waiting)
            ),
            () if is_free => {
                "No bottleneck: actors and learner are decoupled, and the learner is busy.".into()
            }
            () => format!(
                "Bottleneck: learner. It is busy {} of the time, and actors wait for it.",
                percent(1.0 - waiting)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::ReplayStatus;
    use settings::choices::SamplesPerInsert;
    use settings::units::Frames;

    fn settings() -> Settings {
        Settings { frames: Frames(100_000), ..Settings::paper() }
    }

    /// Two minutes with 100 frames, 5 updates, and the given seconds of waiting and preparing per second.
    fn history(waited: f64, prepared: f64) -> History {
        let mut history = History::new();
        for second in 0..=120 {
            let (seconds, count) = (f64::from(second), second as u64);
            history.push(Sample {
                seconds,
                frames: 100 * count,
                updates: 5 * count,
                waited: waited * seconds,
                trained: (0.9 - waited) * seconds,
                prepared: prepared * seconds,
                ..Sample::default()
            });
        }
        history
    }

    fn bottleneck(waited: f64, prepared: f64) -> String {
        Story { settings: &settings(), history: &history(waited, prepared) }.bottleneck()
    }

    #[test]
    fn rates_progress_and_the_time_left_are_current() {
        let story = Story { settings: &settings(), history: &history(0.1, 0.2) };
        assert_eq!((story.frames_rate(), story.updates_rate()), (Some(100.0), Some(5.0)));
        assert_eq!((story.progress(), story.seconds_left()), (0.12, Some(880.0)));
        assert_eq!(story.state(), LearnerState::Training);
    }

    #[test]
    fn time_shares_sum_to_1() {
        let story = Story { settings: &settings(), history: &history(0.3, 0.2) };
        let shares = story.shares().unwrap();
        let all = shares.training + shares.waiting + shares.other;
        assert!((all - 1.0).abs() < 1e-9 && (shares.waiting - 0.3).abs() < 1e-9, "{shares:?}");
        let at = |seconds: f64, trained: f64| Sample {
            seconds,
            trained,
            waited: 0.5 * seconds,
            ..Sample::default()
        };
        let crowded = Shares::of(&at(0.0, 0.0), &at(10.0, 11.0)).unwrap();
        assert_eq!((crowded.training, crowded.waiting, crowded.other), (1.0, 0.0, 0.0));
        assert_eq!(Shares::of(&at(1.0, 0.0), &at(1.0, 0.0)), None);
    }

    #[test]
    fn the_bottleneck_is_named() {
        assert!(
            bottleneck(0.8, 0.2)
                .starts_with("Bottleneck: actors. The learner waits for them 80% of the time")
        );
        assert!(bottleneck(0.8, 0.95).starts_with("Bottleneck: sampling"));
        assert!(bottleneck(0.3, 0.2).contains("actors and learner keep pace"));
        assert!(bottleneck(0.05, 0.2).ends_with("actors wait for it."));
        let free = Settings { samples_per_insert: SamplesPerInsert(None), ..settings() };
        assert!(Story { settings: &free, history: &history(0.0, 0.2) }.bottleneck().contains("decoupled"));
    }

    #[test]
    fn a_learner_that_does_not_train_names_what_it_is_blocked_on() {
        let settings = settings();
        let mut history = History::new();
        let shown = |history: &History| {
            let story = Story { settings: &settings, history };
            (story.state(), story.bottleneck())
        };
        assert_eq!(shown(&history), (LearnerState::Starting, "The learner is starting.".into()));
        let blocked_on = Some("replay shard 1 (no answer yet; check its log)".to_owned());
        let replay = ReplayStatus { blocked_on, ..ReplayStatus::default() };
        for second in 0..30 {
            history.push(Sample { seconds: f64::from(second), replay: replay.clone(), ..Sample::default() });
        }
        assert_eq!(
            shown(&history),
            (
                LearnerState::Waiting,
                "The learner is waiting for replay shard 1 (no answer yet; check its log).".into()
            )
        );
        history.push(Sample { seconds: 31.0, frames: 100_000, ..Sample::default() });
        assert_eq!(shown(&history).0, LearnerState::Evaluating);
        assert!(shown(&history).1.contains("start one"));
        history.push(Sample { seconds: 32.0, frames: 100_000, evaluators: 1, ..Sample::default() });
        assert!(shown(&history).1.contains("blocked on the evaluator"));
        history.is_finished = true;
        assert_eq!(shown(&history).0, LearnerState::Finished);
    }

    #[test]
    fn the_time_left_is_unknown_at_the_end_and_without_a_rate() {
        let settings = settings();
        let mut history = History::new();
        assert_eq!(Story { settings: &settings, history: &history }.seconds_left(), None);
        for second in 0..20 {
            history.push(Sample { seconds: f64::from(second), frames: 500, ..Sample::default() });
        }
        assert_eq!(Story { settings: &settings, history: &history }.seconds_left(), None);
        history.push(Sample { seconds: 21.0, frames: 200_000, ..Sample::default() });
        let story = Story { settings: &settings, history: &history };
        assert_eq!((story.seconds_left(), story.progress()), (None, 1.0));
    }
}
