//! Progress of a sweep over all its runs: a bar on a terminal, otherwise a plain line once a minute.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use settings::units::{duration, grouped};

use crate::runner::tail;

/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Time between two redraws of the bar.
const BAR_EVERY: Duration = Duration::from_secs(1);
/// Bytes read from the end of a training record, whose lines have about 300 bytes.
const RECORD_TAIL_BYTES: u64 = 4 << 10;

/// How much of a sweep is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Planned runs.
    pub runs: usize,
    /// Runs trained to their end.
    pub finished: usize,
    /// Runs whose process failed.
    pub failed: usize,
    /// Runs in training.
    pub running: usize,
    /// Frames trained, over all runs.
    pub frames: u64,
    /// Frames when every run is finished. A failed run counts with the frames that it has trained.
    pub budget: u64,
}

/// The display of a sweep.
pub struct SweepProgress<'a> {
    name: &'a str,
    bar: ProgressBar,
    terminal: bool,
    print: &'a dyn Fn(&str),
    shown: Instant,
    started: (Instant, u64),
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

    fn shown(name: &'a str, print: &'a dyn Fn(&str), terminal: bool) -> Self {
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{bar:16.cyan/blue} {percent:>3}% · {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
        let now = Instant::now();
        Self { name, bar, terminal, print, shown: now, started: (now, 0) }
    }

    /// Prints the size of the sweep and the progress of its earlier starts.
    pub fn begin(&mut self, status: &Status) {
        self.started = (Instant::now(), status.frames);
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

    /// Shows the status if an update is due; only then is it computed.
    pub fn show(&mut self, status: impl FnOnce() -> Status) {
        if self.shown.elapsed() < if self.terminal { BAR_EVERY } else { LINE_EVERY } {
            return;
        }
        self.shown = Instant::now();
        let status = status();
        let text = message(&status, self.started.1, self.started.0.elapsed());
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
}

/// `3 of 12 runs done · 2 training · 450,000 of 1,800,000 frames · 31 min 0 s left`. The time left assumes the pace
/// since this start, when `before` frames were done.
fn message(status: &Status, before: u64, running: Duration) -> String {
    let Status { runs, finished, failed, running: now, frames, budget } = *status;
    let mut parts = vec![format!("{finished} of {runs} runs done"), format!("{now} training")];
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

/// Frames of a run, from the last complete line of its training record; 0 if there is none.
pub fn frames(run: &Path) -> u64 {
    let text = tail(&run.join("training.jsonl"), RECORD_TAIL_BYTES).unwrap_or_default();
    let frames = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("frames")?.as_u64();
    text.lines().rev().find_map(frames).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_covers_the_whole_sweep_and_the_time_left() {
        let status =
            Status { runs: 12, finished: 3, failed: 0, running: 2, frames: 450_000, budget: 1_800_000 };
        assert_eq!(
            message(&status, 300_000, Duration::from_secs(100)),
            "3 of 12 runs done · 2 training · 450,000 of 1,800,000 frames · 15 min 0 s left"
        );
        let failed = Status { failed: 1, ..status };
        assert!(message(&failed, 450_000, Duration::ZERO).contains("1 failed · 450,000 of"));
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
