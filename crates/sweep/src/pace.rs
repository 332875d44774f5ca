//! How fast runs train, and how long the rest will take.
//!
//! Games differ in speed by a factor of ten and more, so each game has its own pace. It is measured while as many runs train
//! at a time as in the rest of the sweep, and it includes evaluations and the start of a run's processes.

use std::collections::BTreeMap;

/// Frames and the time that runs took for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    frames: u64,
    seconds: f64,
}

impl Measured {
    fn add(&mut self, frames: u64, seconds: f64) {
        self.frames += frames;
        self.seconds += seconds;
    }

    /// Seconds per frame.
    fn pace(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.seconds / self.frames as f64)
    }
}

/// What runs have done since this start, by game.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paces<'a> {
    games: BTreeMap<&'a str, Measured>,
    all: Measured,
}

impl<'a> Paces<'a> {
    /// Adds what a run has trained, in frames and seconds.
    pub fn add(&mut self, game: &'a str, frames: u64, seconds: f64) {
        self.games.entry(game).or_default().add(frames, seconds);
        self.all.add(frames, seconds);
    }

    /// Frames of all runs.
    pub fn frames(&self) -> u64 {
        self.all.frames
    }

    /// How long runs with these games and frames left will take if `parallel` train at a time. A game that has not trained
    /// yet is taken to be as fast as the others. `None` if nothing has trained, or nothing is left.
    pub fn seconds_left(&self, left: &[(&str, u64)], parallel: usize) -> Option<f64> {
        let seconds = |&(game, frames): &(&str, u64)| {
            let own = self.games.get(game).and_then(Measured::pace);
            Some(own.or_else(|| self.all.pace())? * frames as f64)
        };
        let each: Vec<f64> = left.iter().map(seconds).collect::<Option<_>>()?;
        let longest = each.iter().copied().reduce(f64::max)?;
        // At the end fewer runs than `parallel` are left, and the last one takes its own time.
        Some(longest.max(each.iter().sum::<f64>() / parallel.max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_game_has_its_own_pace() {
        let mut paces = Paces::default();
        assert_eq!(paces.seconds_left(&[("pong", 100)], 1), None, "nothing has trained yet");
        paces.add("pong", 0, 3.0);
        assert_eq!(paces.seconds_left(&[("pong", 100)], 1), None, "no frame yet");
        paces.add("pong", 100, 7.0);
        paces.add("cartpole", 1_000, 1.0);
        assert_eq!(paces.seconds_left(&[("pong", 50), ("cartpole", 2_000)], 1), Some(5.0 + 2.0));
        let unknown = paces.seconds_left(&[("qbert", 1_100)], 1).unwrap();
        assert!((unknown - 11.0).abs() < 1e-9, "{unknown}");
        assert_eq!(paces.seconds_left(&[], 1), None);
    }

    #[test]
    fn parallel_runs_share_the_time_but_the_last_run_takes_its_own() {
        let mut paces = Paces::default();
        paces.add("pong", 100, 10.0);
        let four = [("pong", 100); 4];
        assert_eq!(paces.seconds_left(&four, 2), Some(20.0));
        assert_eq!(paces.seconds_left(&four[..1], 2), Some(10.0));
    }
}
