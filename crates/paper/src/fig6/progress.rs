//! How a sweep is going, all runs together: a bar on a terminal, a plain line now and then elsewhere.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use settings::units::{duration, grouped};

use super::supervisor::tail;

/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Time between two changes of the bar.
const BAR_EVERY: Duration = Duration::from_secs(1);
/// A line of the training record has some 300 bytes.
const RECORD_TAIL_BYTES: u64 = 4 << 10;

/// Where a sweep stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Runs in all.
    pub runs: usize,
    /// Those that have ended well.
    pub finished: usize,
    /// Those that have not.
    pub failed: usize,
    /// Those that train now.
    pub running: usize,
    /// Frames trained, over all runs.
    pub frames: u64,
    /// Frames to be trained.
    pub budget: u64,
}

/// The display of a sweep.
pub struct Progress<'a> {
    bar: ProgressBar,
    terminal: bool,
    say: &'a dyn Fn(&str),
    shown: Instant,
    started: (Instant, u64),
}

impl<'a> Progress<'a> {
    /// A bar on a terminal, else plain lines through `say`.
    pub fn new(say: &'a dyn Fn(&str)) -> Self {
        Self::shown(say, std::io::stderr().is_terminal())
    }

    /// Plain lines wherever it is.
    #[cfg(test)]
    pub fn plain(say: &'a dyn Fn(&str)) -> Self {
        Self::shown(say, false)
    }

    fn shown(say: &'a dyn Fn(&str), terminal: bool) -> Self {
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{bar:16.cyan/blue} {percent:>3}% · {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
        let now = Instant::now();
        Self { bar, terminal, say, shown: now, started: (now, 0) }
    }

    /// Says what is there already.
    pub fn begin(&mut self, standing: &Standing) {
        self.started = (Instant::now(), standing.frames);
        self.bar.set_length(standing.budget);
        self.bar.set_position(standing.frames);
        let Standing { runs, finished, frames, budget, .. } = *standing;
        let there = match frames {
            0 => String::new(),
            _ => format!("; {finished} runs and {} frames are there already", grouped(frames)),
        };
        self.say(&format!("fig6: {runs} runs, {} frames in all{there}", grouped(budget)));
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        if self.terminal && !self.bar.is_finished() { self.bar.println(line) } else { (self.say)(line) }
    }

    /// Shows where the sweep stands, not too often; it is asked for only then.
    pub fn show(&mut self, standing: impl FnOnce() -> Standing) {
        if self.shown.elapsed() < if self.terminal { BAR_EVERY } else { LINE_EVERY } {
            return;
        }
        self.shown = Instant::now();
        let standing = standing();
        let text = message(&standing, self.started.1, self.started.0.elapsed());
        self.bar.set_length(standing.budget);
        self.bar.set_position(standing.frames);
        if self.terminal {
            self.bar.set_message(text);
        } else {
            let percent = 100 * standing.frames / standing.budget.max(1);
            (self.say)(&format!("fig6: {percent}% · {text}"));
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// `3 of 12 runs done · 2 train now · 450,000 of 1,800,000 frames · 31 min 0 s left`. Time left is at the pace since this sweep
/// was started, of which `before` frames were there.
fn message(standing: &Standing, before: u64, running: Duration) -> String {
    let Standing { runs, finished, failed, running: now, frames, budget } = *standing;
    let mut parts = vec![format!("{finished} of {runs} runs done"), format!("{now} train now")];
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    parts.push(format!("{} of {} frames", grouped(frames), grouped(budget)));
    let (done, left) = (frames.saturating_sub(before), budget.saturating_sub(frames));
    if done > 0 && left > 0 {
        parts.push(format!("{} left", duration(running.as_secs_f64() * left as f64 / done as f64)));
    }
    parts.join(" · ")
}

/// How far a run has come, by the last whole line of its training record; 0 before there is one.
pub fn frames(run: &Path) -> u64 {
    let text = tail(&run.join("training.jsonl"), RECORD_TAIL_BYTES).unwrap_or_default();
    let frames = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("frames")?.as_u64();
    text.lines().rev().find_map(frames).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_sweep_is_told_with_the_time_left() {
        let standing =
            Standing { runs: 12, finished: 3, failed: 0, running: 2, frames: 450_000, budget: 1_800_000 };
        assert_eq!(
            message(&standing, 300_000, Duration::from_secs(100)),
            "3 of 12 runs done · 2 train now · 450,000 of 1,800,000 frames · 15 min 0 s left"
        );
        let failed = Standing { failed: 1, ..standing };
        assert!(message(&failed, 450_000, Duration::ZERO).contains("1 failed · 450,000 of"));
    }

    #[test]
    fn a_torn_record_tells_as_far_as_it_is_whole() {
        let run = tempfile::tempdir().unwrap();
        assert_eq!(frames(run.path()), 0);
        let record = format!("{}{{\"frames\":7000,\"loss\":0.1}}\n{{\"frames\":80", "x".repeat(9_000) + "\n");
        std::fs::write(run.path().join("training.jsonl"), record).unwrap();
        assert_eq!(frames(run.path()), 7_000);
    }
}
