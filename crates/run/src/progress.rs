//! The display of training progress: a bar on a terminal, otherwise a line every few seconds.
//!
//! It is the same for lockstep and for a cluster: the trainer fills an [`event::ProgressUpdate`], and this displays it.
#![allow(clippy::disallowed_methods, reason = "the record and the progress line carry wall-clock time")]

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event;
use crate::output::print_note;
use crate::record::{AGENT, Evaluation};
use settings::Settings;
use settings::choices::InitialPriority;
use settings::resolve::Resolved;
use settings::units::{duration, grouped};

/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// From this budget on, a new run gets a hint at a shorter preset.
const LONG_RUN_FRAMES: u64 = 5_000_000;

/// From this number of actors on, a new run whose transitions start at the largest priority gets a hint at computed ones.
const MANY_ACTORS: u32 = 8;

/// Time between two changes of the bar.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// The display of one run.
#[derive(Debug)]
pub struct ProgressDisplay {
    bar: ProgressBar,
    terminal: bool,
    budget: u64,
    /// Number of actors of the run; `None` in lockstep.
    actors: Option<u32>,
    shown: Instant,
    noted: Cell<Instant>,
    started: (Instant, u64),
}

impl ProgressDisplay {
    /// The display of a run that has not started yet.
    pub fn new(resolved: &Resolved) -> Self {
        let settings = &resolved.settings;
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(settings.frames.0),
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
        );
        let style = "{bar:16.cyan/blue} {percent:>3}% {human_pos}/{human_len} frames · {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
        let now = Instant::now();
        Self {
            bar,
            terminal,
            budget: settings.frames.0,
            actors: (!settings.lockstep).then_some(settings.actors),
            shown: now,
            noted: Cell::new(now),
            started: (now, 0),
        }
    }

    /// Prints what is trained and where; the run is at `frames`.
    pub fn begin(&mut self, resolved: &Resolved, path: &Path, frames: u64) {
        let settings = &resolved.settings;
        self.started = (Instant::now(), frames);
        self.bar.set_position(frames);
        self.print_line(&format!(
            "training {} with {} and {} replay for {} frames in {}",
            resolved.game,
            settings.algorithm,
            settings.strategy,
            grouped(settings.frames.0),
            path.display(),
        ));
        if frames == 0 && settings.frames.0 > LONG_RUN_FRAMES {
            self.print_line(&format!(
                "preset {} trains for {} frames, which takes long; for a first result on Atari use --preset quick",
                resolved.preset,
                grouped(settings.frames.0),
            ));
        }
        if frames == 0 && starts_too_much_at_the_top(settings) {
            self.print_line(&format!(
                "{} actors insert much at once, and initial_priority largest gives all of it the same priority; \
                 --initial-priority computed spreads it by TD error, as in Ape-X",
                settings.actors,
            ));
        }
    }

    /// Prints a line above the bar.
    pub fn print_line(&self, line: &str) {
        if self.terminal && !self.bar.is_finished() { self.bar.println(line) } else { print_note(line) }
    }

    /// Shows what the run is waiting for: on the bar, or as a line every few seconds.
    pub fn set_status(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if !self.terminal && self.noted.get().elapsed() >= LINE_EVERY {
            self.noted.set(Instant::now());
            print_note(what);
        }
    }

    pub fn evaluated(&self, evaluation: &Evaluation) {
        let what = match evaluation.player.as_str() {
            AGENT => "evaluation",
            other => other,
        };
        self.print_line(&format!(
            "frame {:>11}  {what} {:>9.2} ± {:.2} over {} games ({})",
            grouped(evaluation.frames),
            evaluation.mean,
            evaluation.standard_error,
            evaluation.scores.len(),
            evaluation.policy,
        ));
    }

    /// Whether [`ProgressDisplay::show`] would display anything now; callers use it to skip collecting figures.
    pub fn is_due(&self) -> bool {
        self.shown.elapsed() >= if self.terminal { BAR_EVERY } else { LINE_EVERY }
    }

    /// Displays progress, if [`Self::is_due`].
    pub fn show(&mut self, progress: &event::ProgressUpdate) {
        if !self.is_due() {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_position(progress.frames);
        let message = self.message(progress, self.started.0.elapsed());
        if self.terminal {
            self.bar.set_message(message);
        } else {
            let percent = 100 * progress.frames / self.budget.max(1);
            print_note(&format!("frame {:>11} ({percent:>3}%)  {message}", grouped(progress.frames)));
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// The line of figures. The most important come first, because a narrow terminal cuts the rest.
    fn message(&self, progress: &event::ProgressUpdate, running: Duration) -> String {
        let mut parts = Vec::new();
        parts.extend(progress.replay.blocked_on.as_ref().map(|what| format!("waiting for {what}")));
        parts.extend(self.left(progress, running).map(|left| format!("{left} left")));
        parts.extend(progress.training_score.map(|score| format!("training {score:.1}")));
        parts.extend(progress.evaluation_score.map(|score| format!("evaluation {score:.1}")));
        parts.push(format!("{:.0} frames/s", progress.frames_per_second));
        if progress.updates > 0 {
            parts.push(format!("{:.0} updates/s", progress.updates_per_second));
        }
        parts.extend(self.actors.map(|wanted| actor_count(progress.actors, wanted)));
        let megabytes = progress.replay.bytes as f64 / 1e6;
        parts.push(format!("replay {} ({megabytes:.0} MB)", grouped(progress.replay.items)));
        parts.extend(progress.loss.map(|loss| format!("loss {loss:.4}")));
        parts.join(" · ")
    }

    /// Time left, from the mean rate since the start, which short pauses hardly change.
    fn left(&self, progress: &event::ProgressUpdate, running: Duration) -> Option<String> {
        let done = progress.frames.saturating_sub(self.started.1);
        let left = self.budget.saturating_sub(progress.frames) as f64;
        (done > 0 && left > 0.0).then(|| duration(running.as_secs_f64() * left / done as f64))
    }
}

fn actor_count(joined: u32, wanted: u32) -> String {
    match (joined == wanted, wanted) {
        (true, 1) => "1 actor".into(),
        (true, _) => format!("{wanted} actors"),
        (false, _) => format!("{joined} of {wanted} actors"),
    }
}

/// Whether many actors insert transitions that all start at the largest priority.
fn starts_too_much_at_the_top(settings: &Settings) -> bool {
    !settings.lockstep
        && settings.actors >= MANY_ACTORS
        && settings.strategy.uses_priorities
        && settings.initial_priority == InitialPriority::Largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::ReplayStatus;
    use settings::resolve::Layers;

    fn shown() -> event::ProgressUpdate {
        event::ProgressUpdate {
            frames: 5_000,
            updates: 40,
            frames_per_second: 812.4,
            updates_per_second: 25.0,
            loss: Some(0.25),
            training_score: Some(21.0),
            evaluation_score: Some(9.5),
            actors: 1,
            replay: ReplayStatus { items: 4_000, bytes: 2_400_000, ..ReplayStatus::default() },
        }
    }

    fn progress(lockstep: &str) -> ProgressDisplay {
        let flags = vec![("lockstep".into(), lockstep.into())];
        ProgressDisplay::new(&Layers { flags, ..Layers::default() }.resolve(Some("cartpole")).unwrap())
    }

    #[test]
    fn a_cluster_shows_all_figures() {
        let message = progress("false").message(&shown(), Duration::from_secs(10));
        assert_eq!(
            message,
            "30 s left · training 21.0 · evaluation 9.5 · 812 frames/s · 25 updates/s · 1 of 2 actors · \
             replay 4,000 (2 MB) · loss 0.2500"
        );
    }

    #[test]
    fn what_the_learner_is_blocked_on_comes_first() {
        let replay = ReplayStatus { blocked_on: Some("shard-1".into()), ..ReplayStatus::default() };
        let blocked = event::ProgressUpdate { replay, actors: 2, ..event::ProgressUpdate::default() };
        let message = progress("false").message(&blocked, Duration::from_secs(10));
        assert_eq!(message, "waiting for shard-1 · 0 frames/s · 2 actors · replay 0 (0 MB)");
    }

    #[test]
    fn lockstep_has_no_actors_to_count() {
        let message = progress("true").message(&shown(), Duration::from_secs(10));
        assert!(!message.contains("actor"), "{message}");
    }
}
