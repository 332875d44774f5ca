//! How training is going: a bar on a terminal, a plain line now and then elsewhere.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use learner::Update;
use run::Resolved;
use run::record::{Evaluation, Training};
use run::units::grouped;

use crate::lockstep::Lockstep;
use crate::output::note;
use crate::summary::duration;

/// Updates between two entries of the training record.
const RECORD_EVERY_UPDATES: usize = 200;
/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between two changes of the bar.
const BAR_EVERY: Duration = Duration::from_millis(200);
/// Training games whose mean score is shown.
const RECENT_GAMES: usize = 20;

/// The display and the averages behind it.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    budget: u64,
    shown: Instant,
    noted: Cell<Instant>,
    started: (Instant, u64),
    window: Vec<(Update, f64)>,
    window_start: (Instant, u64),
    recent: VecDeque<f64>,
    evaluated: Option<f64>,
    last: Option<Training>,
}

impl Progress {
    /// A display for a run that stands at `frames`.
    pub fn new(resolved: &Resolved, path: &Path, frames: u64) -> Self {
        let settings = &resolved.settings;
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(settings.frames.0),
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
        );
        let style = "{bar:24.cyan/blue} {percent:>3}% {human_pos}/{human_len} frames · {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
        bar.set_position(frames);
        let now = Instant::now();
        let progress = Self {
            bar,
            terminal,
            budget: settings.frames.0,
            shown: now,
            noted: Cell::new(now),
            started: (now, frames),
            window: Vec::new(),
            window_start: (now, frames),
            recent: VecDeque::new(),
            evaluated: None,
            last: None,
        };
        progress.say(&format!(
            "training {} with {} and {} replay for {} frames in {}",
            resolved.game,
            settings.algorithm,
            settings.strategy,
            grouped(settings.frames.0),
            path.display(),
        ));
        progress
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        if self.terminal { self.bar.println(line) } else { note(line) }
    }

    /// Says what is being waited for.
    pub fn note(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if !self.terminal && self.noted.get().elapsed() >= LINE_EVERY {
            self.noted.set(Instant::now());
            note(what);
        }
    }

    /// Counts a training game.
    pub fn episode(&mut self, score: f64) {
        if self.recent.len() == RECENT_GAMES {
            self.recent.pop_front();
        }
        self.recent.push_back(score);
    }

    /// Prints an evaluation.
    pub fn evaluated(&mut self, evaluation: &Evaluation) {
        self.evaluated = Some(evaluation.mean);
        self.say(&format!(
            "frame {:>11}  evaluation {:>9.2} ± {:.2} over {} games ({})",
            grouped(evaluation.frames),
            evaluation.mean,
            evaluation.standard_error,
            evaluation.scores.len(),
            evaluation.policy,
        ));
    }

    /// Counts an update; every so often gives the figures to be recorded.
    pub fn update(&mut self, run: &Lockstep, update: &Update, importance_weight: f64) -> Option<Training> {
        self.window.push((update.clone(), importance_weight));
        if self.window.len() < RECORD_EVERY_UPDATES {
            return None;
        }
        let count = self.window.len() as f64;
        let mean =
            |of: fn(&Update) -> f64| self.window.iter().map(|(update, _)| of(update)).sum::<f64>() / count;
        let seconds = self.window_start.0.elapsed().as_secs_f64().max(1e-9);
        let training = Training {
            frames: run.frames,
            updates: run.learner.updates(),
            loss: mean(|update| update.loss),
            td_error: mean(|update| update.td_error),
            q: mean(|update| update.q),
            entropy: mean(|update| update.entropy),
            gradient_norm: mean(|update| update.gradient_norm),
            importance_weight: self.window.iter().map(|(_, weight)| weight).sum::<f64>() / count,
            replay_items: run.table.len() as u64,
            replay_bytes: run.table.frame_bytes_used() as u64,
            frames_per_second: (run.frames - self.window_start.1) as f64 / seconds,
            updates_per_second: count / seconds,
        };
        self.window.clear();
        self.window_start = (Instant::now(), run.frames);
        self.last = Some(training.clone());
        Some(training)
    }

    /// Shows where the run stands, not too often.
    pub fn show(&mut self, run: &Lockstep) {
        let every = if self.terminal { BAR_EVERY } else { LINE_EVERY };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_position(run.frames);
        let message = self.message(run);
        if self.terminal {
            self.bar.set_message(message);
        } else {
            let percent = 100 * run.frames / self.budget;
            note(&format!("frame {:>11} ({percent:>3}%)  {message}", grouped(run.frames)));
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn message(&self, run: &Lockstep) -> String {
        let seconds = self.started.0.elapsed().as_secs_f64().max(1e-9);
        let frames_per_second = (run.frames - self.started.1) as f64 / seconds;
        let left = self.budget.saturating_sub(run.frames) as f64 / frames_per_second.max(1e-9);
        let mut parts = Vec::new();
        if !self.recent.is_empty() {
            let mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
            parts.push(format!("training {mean:.1}"));
        }
        if let Some(score) = self.evaluated {
            parts.push(format!("evaluation {score:.1}"));
        }
        parts.push(format!("{frames_per_second:.0} frames/s"));
        match &self.last {
            Some(last) => {
                parts.push(format!("{:.0} updates/s · loss {:.4}", last.updates_per_second, last.loss));
            }
            None if run.learner.updates() == 0 => {
                let wanted = run.resolved.settings.min_size.0;
                parts.push(format!("waiting for {} transitions before the first update", grouped(wanted)));
            }
            None => {}
        }
        let (items, bytes) = (run.table.len() as u64, run.table.frame_bytes_used() as f64 / 1e6);
        parts.push(format!("replay {} ({bytes:.0} MB)", grouped(items)));
        parts.push(format!("{} left", duration(left)));
        parts.join(" · ")
    }
}

/// A plain counter for work with a known end; hidden where there is no terminal.
pub fn counter(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = format!("{{bar:24.cyan/blue}} {{pos}}/{{len}} {what} · {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is well formed"));
    bar.enable_steady_tick(BAR_EVERY);
    bar
}
