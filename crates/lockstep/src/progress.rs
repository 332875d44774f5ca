//! The figures behind the display of a lockstep run; [`run::progress`] shows them.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use learner::Update;
use run::averages::{Averages, Counts, Figures, RecentScores, Speed};
use run::event::Standing;
use run::record::Training;
use settings::units::grouped;

use crate::lockstep::Lockstep;

/// Time between two changes of a counter.
const COUNTER_EVERY: Duration = Duration::from_millis(200);

/// Averages over the newest part of a run.
pub struct Meters {
    averages: Averages,
    scores: RecentScores,
    evaluated: Option<f64>,
    frames: Speed,
    updates: Speed,
}

impl Meters {
    /// Nothing yet.
    pub fn new(run: &Lockstep) -> Self {
        let now = Instant::now();
        Self {
            averages: Averages::new(run.frames, now),
            scores: RecentScores::default(),
            evaluated: None,
            frames: Speed::new(run.frames, now),
            updates: Speed::new(run.learner.updates(), now),
        }
    }

    /// Counts a training game.
    pub fn episode(&mut self, score: f64) {
        self.scores.add(score);
    }

    /// Notes the mean of an evaluation.
    pub fn evaluated(&mut self, mean: f64) {
        self.evaluated = Some(mean);
    }

    /// Counts an update; every so often gives the figures to be recorded.
    pub fn update(&mut self, run: &Lockstep, update: &Update, importance_weight: f64) -> Option<Training> {
        self.averages.add(&Figures {
            loss: update.loss,
            td_error: update.td_error,
            q: update.q,
            entropy: update.entropy,
            gradient_norm: update.gradient_norm,
            importance_weight,
        });
        self.averages.take(counts(run), Instant::now())
    }

    /// Where the run stands.
    pub fn standing(&mut self, run: &Lockstep) -> Standing {
        let now = Instant::now();
        let Counts { frames, updates, replay_items, replay_bytes } = counts(run);
        let wanted = run.resolved.settings.min_size.0;
        let waiting = || format!("{} transitions before the first update", grouped(wanted));
        Standing {
            frames,
            updates,
            frames_per_second: self.frames.at(frames, now),
            updates_per_second: self.updates.at(updates, now),
            loss: self.averages.loss(),
            training_score: self.scores.mean(),
            evaluation_score: self.evaluated,
            replay_items,
            replay_bytes,
            actors: 0,
            waiting: (updates == 0).then(waiting),
        }
    }
}

fn counts(run: &Lockstep) -> Counts {
    Counts {
        frames: run.frames,
        updates: run.learner.updates(),
        replay_items: run.store.tables()[0].len() as u64,
        replay_bytes: run.store.bytes_used() as u64,
    }
}

/// A plain counter for work with a known end; hidden where there is no terminal.
pub fn counter(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = format!("{{bar:24.cyan/blue}} {{pos}}/{{len}} {what} · {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is well formed"));
    bar.enable_steady_tick(COUNTER_EVERY);
    bar
}
