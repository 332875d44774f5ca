//! What a history means: speeds, the time left, where the time goes, who waits for whom.

use settings::Settings;

use crate::history::{History, Sample};

/// Speeds of now are over so many seconds: long enough to be steady, short enough to show a stop.
pub const NOW_SECONDS: f64 = 10.0;

/// Waiting and busyness of now are over so many seconds.
const MINUTE_SECONDS: f64 = 60.0;

/// The time left is reckoned from the newer half of the time, and no more than this: what was faster or slower at the
/// start, while the replay was filled, says nothing about the rest.
const PACE_SECONDS_MAX: f64 = 600.0;

/// A learner that waits for more than this part of the time is held up, one that waits for less than that holds others up.
const WAITS_MUCH: f64 = 0.5;
const WAITS_LITTLE: f64 = 0.15;

/// If preparing batches takes more than this part of the time, there is none left to prepare more.
const PREPARES_ALWAYS: f64 = 0.85;

/// What a learner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known yet.
    Starting,
    /// It makes updates.
    Training,
    /// It makes none, since it lacks something.
    Waiting,
    /// All frames are played, the final games are not.
    Evaluating,
    /// The run has ended.
    Finished,
}

impl State {
    /// In one word, or two.
    pub fn words(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Training => "training",
            State::Waiting => "waiting",
            State::Evaluating => "final evaluation",
            State::Finished => "finished",
        }
    }
}

/// Where the wall time goes, as shares of 1. The training thread's own three make up all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Updates.
    pub training: f64,
    /// Waiting for a batch.
    pub waiting: f64,
    /// Publishing weights, the record, checkpoints.
    pub other: f64,
    /// Batches being sampled, unpacked and copied, beside the training.
    pub preparing: f64,
}

impl Shares {
    /// Between two samples; nothing if no time lies between them.
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
        // An update that began before the stretch is counted when it ends, so that sums may be a little above 1.
        let waiting = share(|sample| sample.waited).min(1.0 - training);
        let other = (1.0 - training - waiting).max(0.0);
        Some(Self { training, waiting, other, preparing: share(|sample| sample.prepared) })
    }
}

/// A history with the settings of its run.
#[derive(Clone, Copy, Debug)]
pub struct Story<'a> {
    /// How the run is set.
    pub settings: &'a Settings,
    /// What has happened.
    pub history: &'a History,
}

impl Story<'_> {
    /// The newest sample; all zero before the first.
    pub fn now(&self) -> Sample {
        self.history.now().cloned().unwrap_or_default()
    }

    /// What the learner is blocked on, if it is.
    fn blocked_on(&self) -> Option<&str> {
        self.history.now()?.replay.blocked_on.as_deref()
    }

    /// Frames a second, now.
    pub fn frames_speed(&self) -> Option<f64> {
        self.history.lately(NOW_SECONDS).speed(|sample| sample.frames as f64)
    }

    /// Updates a second, now.
    pub fn updates_speed(&self) -> Option<f64> {
        self.history.lately(NOW_SECONDS).speed(|sample| sample.updates as f64)
    }

    /// How much of the frame budget is played, from 0 to 1.
    pub fn progress(&self) -> f64 {
        (self.now().frames as f64 / self.settings.frames.0.max(1) as f64).min(1.0)
    }

    /// Seconds until the frame budget at the present pace; nothing if there is no pace, or nothing left to play.
    pub fn seconds_left(&self) -> Option<f64> {
        let now = self.now();
        let left = self.settings.frames.0.checked_sub(now.frames).filter(|left| *left > 0)?;
        let window = (now.seconds / 2.0).min(PACE_SECONDS_MAX);
        let pace = self.history.lately(window).speed(|sample| sample.frames as f64)?;
        (pace > 0.0).then(|| left as f64 / pace)
    }

    /// What the learner is doing.
    pub fn state(&self) -> State {
        let now = self.now();
        let learns = self.updates_speed().is_some_and(|speed| speed > 0.0);
        match () {
            () if self.history.is_finished => State::Finished,
            () if self.history.now().is_none() => State::Starting,
            () if now.frames >= self.settings.frames.0 => State::Evaluating,
            () if learns => State::Training,
            () if self.blocked_on().is_some() => State::Waiting,
            () => State::Starting,
        }
    }

    /// Where the time of the last minute went.
    pub fn shares(&self) -> Option<Shares> {
        let lately = self.history.lately(MINUTE_SECONDS);
        Shares::of(&lately.first, &lately.last)
    }

    /// Who waits for whom, in a sentence or two.
    pub fn verdict(&self) -> String {
        match (self.state(), self.shares(), self.blocked_on()) {
            (State::Finished, ..) => "The run has ended; nobody waits.".into(),
            (State::Evaluating, ..) if self.now().evaluators == 0 => {
                "All frames are played. The learner waits for an evaluator: start one with quiver-actor --evaluate."
                    .into()
            }
            (State::Evaluating, ..) => {
                "All frames are played. The learner waits for the evaluator to finish the final games.".into()
            }
            (State::Starting | State::Waiting, _, Some(what)) => format!("The learner waits for {what}."),
            (State::Training, Some(shares), _) => self.balance(shares),
            _ => "The learner starts.".into(),
        }
    }

    fn balance(&self, Shares { waiting, preparing, .. }: Shares) -> String {
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let is_free = self.settings.samples_per_insert.0.is_none();
        match () {
            () if waiting > WAITS_MUCH && preparing > PREPARES_ALWAYS => format!(
                "The learner waits for batches {} of the time, although they are prepared without a break: sampling is \
                 the limit.",
                percent(waiting)
            ),
            () if waiting > WAITS_MUCH => format!(
                "The learner waits for actors {} of the time: they are the limit, and more of them would be faster.",
                percent(waiting)
            ),
            () if waiting > WAITS_LITTLE => format!(
                "Actors and learner keep pace: the learner waits {} of the time, and neither is far ahead.",
                percent(waiting)
            ),
            () if is_free => "Actors and learner run free, and the learner is busy: nobody waits.".into(),
            () => format!(
                "The learner is busy {} of the time: it is the limit, and actors wait for it.",
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

    /// Two minutes of 100 frames, 5 updates, and so many seconds of waiting and preparing each second.
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

    fn verdict(waited: f64, prepared: f64) -> String {
        Story { settings: &settings(), history: &history(waited, prepared) }.verdict()
    }

    #[test]
    fn speeds_progress_and_the_time_left_are_those_of_now() {
        let story = Story { settings: &settings(), history: &history(0.1, 0.2) };
        assert_eq!((story.frames_speed(), story.updates_speed()), (Some(100.0), Some(5.0)));
        assert_eq!((story.progress(), story.seconds_left()), (0.12, Some(880.0)));
        assert_eq!(story.state(), State::Training);
    }

    #[test]
    fn the_time_is_split_into_parts_that_make_up_all_of_it() {
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
    fn it_is_said_who_waits_for_whom() {
        assert!(verdict(0.8, 0.2).starts_with("The learner waits for actors 80% of the time"));
        assert!(verdict(0.8, 0.95).contains("sampling is the limit"));
        assert!(verdict(0.3, 0.2).starts_with("Actors and learner keep pace"));
        assert!(verdict(0.05, 0.2).ends_with("actors wait for it."));
        let free = Settings { samples_per_insert: SamplesPerInsert(None), ..settings() };
        assert!(Story { settings: &free, history: &history(0.0, 0.2) }.verdict().contains("run free"));
    }

    #[test]
    fn a_learner_that_does_not_train_says_what_it_lacks() {
        let settings = settings();
        let mut history = History::new();
        let told = |history: &History| {
            let story = Story { settings: &settings, history };
            (story.state(), story.verdict())
        };
        assert_eq!(told(&history), (State::Starting, "The learner starts.".into()));
        let blocked_on = Some("replay shard 1 to answer".to_owned());
        let replay = ReplayStatus { blocked_on, ..ReplayStatus::default() };
        for second in 0..30 {
            history.push(Sample { seconds: f64::from(second), replay: replay.clone(), ..Sample::default() });
        }
        assert_eq!(
            told(&history),
            (State::Waiting, "The learner waits for replay shard 1 to answer.".into())
        );
        history.push(Sample { seconds: 31.0, frames: 100_000, ..Sample::default() });
        assert_eq!(told(&history).0, State::Evaluating);
        assert!(told(&history).1.contains("start one"));
        history.push(Sample { seconds: 32.0, frames: 100_000, evaluators: 1, ..Sample::default() });
        assert!(told(&history).1.contains("the evaluator to finish"));
        history.is_finished = true;
        assert_eq!(told(&history).0, State::Finished);
    }

    #[test]
    fn nothing_is_left_at_the_end_and_nothing_is_known_without_a_pace() {
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
