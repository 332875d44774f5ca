//! Progress of a sweep over all its runs: a bar on a terminal, otherwise a plain line once a minute.
#![allow(clippy::disallowed_methods, reason = "the display carries wall-clock time")]

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use settings::units::{duration, grouped};

use crate::events::{self, RunEvent};
use crate::launch::tail;
use crate::plan::Run;

/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Time between two redraws of the bar.
const BAR_EVERY: Duration = Duration::from_secs(1);
/// Time between two events for programs.
const EMIT_EVERY: Duration = Duration::from_secs(10);
/// Bytes read from the end of a training record, whose lines have about 300 bytes.
const RECORD_TAIL_BYTES: u64 = 4 << 10;

/// How much of a sweep is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Planned runs.
    pub runs: usize,
    /// Runs trained to their end.
    pub finished: usize,
    /// Runs whose process failed.
    pub failed: usize,
    /// Runs in training.
    pub running: usize,
    /// Frames trained, over all runs. A run that will resume counts up to its checkpoint.
    pub frames: u64,
    /// Frames when every run is finished. A failed run counts with the frames that it has trained.
    pub budget: u64,
    /// Frames per second since this start, over all runs. `None` before the first frame.
    pub frames_per_second: Option<f64>,
    /// `None` before the first frame, and when no run is left.
    pub seconds_left: Option<f64>,
}

/// The display of a sweep.
pub struct SweepProgress<'a> {
    name: &'a str,
    bar: ProgressBar,
    terminal: bool,
    print: &'a dyn Fn(&str),
    emit: Option<&'a dyn Fn(&Value)>,
    shown: Instant,
    emitted: Instant,
}

impl<'a> SweepProgress<'a> {
    /// A bar on a terminal, otherwise plain lines through `print`. Lines begin with `name`.
    pub fn new(name: &'a str, print: &'a dyn Fn(&str)) -> Self {
        Self::shown(name, print, std::io::stderr().is_terminal())
    }

    /// Plain lines, also on a terminal.
    pub fn plain(name: &'a str, print: &'a dyn Fn(&str)) -> Self {
        Self::shown(name, print, false)
    }

    /// Also emits events for programs; see [`events`].
    pub fn with_events(self, emit: &'a dyn Fn(&Value)) -> Self {
        Self { emit: Some(emit), ..self }
    }

    fn shown(name: &'a str, print: &'a dyn Fn(&str), terminal: bool) -> Self {
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{bar:16.cyan/blue} {percent:>3}% · {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
        let now = Instant::now();
        Self { name, bar, terminal, print, emit: None, shown: now, emitted: now }
    }

    /// Prints the size of the sweep and the progress of its earlier starts.
    pub fn begin(&mut self, status: &Status) {
        self.bar.set_length(status.budget);
        self.bar.set_position(status.frames);
        let Status { runs, finished, frames, budget, .. } = *status;
        let earlier = match frames {
            0 => String::new(),
            _ => format!("; {finished} runs and {} frames are done already", grouped(frames)),
        };
        self.print_line(&format!("{runs} runs, {} frames in all{earlier}", grouped(budget)));
    }

    /// Prints a line above the bar.
    pub fn print_line(&self, line: &str) {
        let line = format!("{}: {line}", self.name);
        if self.terminal && !self.bar.is_finished() { self.bar.println(line) } else { (self.print)(&line) }
    }

    /// Reports what happened to a run, which is at `frames`.
    pub fn report(&self, event: RunEvent<'_>, run: &Run, frames: u64) {
        self.print_line(&event.text(run, frames));
        self.emit(|| event.json(run, frames));
    }

    /// Shows the status if an update is due; only then is it computed.
    pub fn show(&mut self, status: impl FnOnce() -> Status) {
        let show = self.shown.elapsed() >= if self.terminal { BAR_EVERY } else { LINE_EVERY };
        let emit = self.emit.is_some() && self.emitted.elapsed() >= EMIT_EVERY;
        if !show && !emit {
            return;
        }
        let status = status();
        if emit {
            self.emitted = Instant::now();
            self.emit(|| events::progress(&status));
        }
        if show {
            self.shown = Instant::now();
            self.draw(&status);
        }
    }

    fn draw(&self, status: &Status) {
        let text = message(status);
        self.bar.set_length(status.budget);
        self.bar.set_position(status.frames);
        if self.terminal {
            self.bar.set_message(text);
        } else {
            let percent = 100 * status.frames / status.budget.max(1);
            self.print_line(&format!("{percent}% · {text}"));
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn emit(&self, event: impl FnOnce() -> Value) {
        if let Some(emit) = self.emit {
            emit(&event());
        }
    }
}

/// `3 of 12 runs done · 15 min 0 s left · 2 training · 1,500 frames/s · 450,000 of 1,800,000 frames`. A narrow terminal cuts
/// off the end, so the time left is not there.
fn message(status: &Status) -> String {
    let Status { runs, finished, failed, running, frames, budget, .. } = *status;
    let mut parts = vec![format!("{finished} of {runs} runs done")];
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if let Some(left) = status.seconds_left {
        parts.push(format!("{} left", duration(left)));
    }
    parts.push(format!("{running} training"));
    if let Some(pace) = status.frames_per_second {
        parts.push(format!("{} frames/s", grouped(pace.round() as u64)));
    }
    parts.push(format!("{} of {} frames", grouped(frames), grouped(budget)));
    parts.join(" · ")
}

/// Recorded frames of a run, from the last complete line of its training record; 0 if there is none.
pub fn frames(run: &Path) -> u64 {
    let text = tail(&run.join("training.jsonl"), RECORD_TAIL_BYTES).unwrap_or_default();
    let frames = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("frames")?.as_u64();
    text.lines().rev().find_map(frames).unwrap_or_default()
}

/// The frame that a run has reached since it started or resumed.
///
/// A resumed run trains the frames after its checkpoint again. Until it records something, the end of its record is from
/// before, and would show a progress that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The frame at which it started: its checkpoint's.
    pub from: u64,
    stale: u64,
    moved: bool,
}

impl Reached {
    /// A run that starts at the frame `from`, with `recorded` at the end of its record.
    pub fn new(from: u64, recorded: u64) -> Self {
        Self { from, stale: recorded, moved: false }
    }

    /// The frame, now that `recorded` is at the end of its record.
    pub fn frames(&mut self, recorded: u64) -> u64 {
        self.moved |= recorded != self.stale;
        if self.moved { recorded.max(self.from) } else { self.from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_covers_the_whole_sweep_and_the_time_left() {
        let status = Status {
            runs: 12,
            finished: 3,
            failed: 0,
            running: 2,
            frames: 450_000,
            budget: 1_800_000,
            frames_per_second: Some(1_500.2),
            seconds_left: Some(900.0),
        };
        assert_eq!(
            message(&status),
            "3 of 12 runs done · 15 min 0 s left · 2 training · 1,500 frames/s · 450,000 of 1,800,000 frames"
        );
        let failed = Status { failed: 1, frames_per_second: None, seconds_left: None, ..status };
        assert_eq!(
            message(&failed),
            "3 of 12 runs done · 1 failed · 2 training · 450,000 of 1,800,000 frames"
        );
    }

    #[test]
    fn a_resumed_run_counts_from_its_checkpoint() {
        let mut reached = Reached::new(500, 900);
        assert_eq!(
            [900, 510, 600, 900, 950].map(|recorded| reached.frames(recorded)),
            [500, 510, 600, 900, 950]
        );
        let mut cut = Reached::new(500, 900);
        assert_eq!(cut.frames(480), 500, "the record is cut at the checkpoint");
        let mut fresh = Reached::new(0, 0);
        assert_eq!([0, 100].map(|recorded| fresh.frames(recorded)), [0, 100]);
    }

    #[test]
    fn a_torn_record_counts_up_to_its_last_complete_line() {
        let run = tempfile::tempdir().unwrap();
        assert_eq!(frames(run.path()), 0);
        let record = format!("{}{{\"frames\":7000,\"loss\":0.1}}\n{{\"frames\":80", "x".repeat(9_000) + "\n");
        std::fs::write(run.path().join("training.jsonl"), record).unwrap();
        assert_eq!(frames(run.path()), 7_000);
    }
}
