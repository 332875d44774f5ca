//! A run without clock, threads or network: shards, actors and a learner around the real [`RateController`].
//!
//! What the roles say to each other lies on a wire and is delivered in any order, late, or not at all. The world knows
//! the truth and an independent account of what shards reported to the learner ([`book`]), and compares after every turn.

mod book;
mod config;
mod learner;
mod shard;

use coordinator::control::{BlockedOn, RateController, ShardCount};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::Allowance;

use crate::shard_counts::ShardCounts;
use book::Book;
pub use config::Config;
use learner::Learner;
use shard::{Shard, State};

/// What can be stopped and started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    Learner,
    Actors,
    Shard(usize, Way),
}

/// How a shard can be gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// It comes back as another incarnation, empty.
    Kill,
    /// It comes back as another incarnation, with its items. Its counters start anew.
    Restore,
    /// It comes back as it was.
    Pause,
    /// Only the learner can't reach it.
    Cut,
}

impl Target {
    pub fn all(shards: usize) -> Vec<Target> {
        let ways = [Way::Kill, Way::Restore, Way::Pause, Way::Cut];
        let shards = (0..shards).flat_map(|shard| ways.map(|way| Target::Shard(shard, way)));
        [Target::Learner, Target::Actors].into_iter().chain(shards).collect()
    }
}

/// Part of a batch, and how many items of it.
type Part = Option<(u64, u64)>;

#[derive(Clone, Debug)]
enum Message {
    /// From the learner. No caller awaits the answer to an orphan.
    Request { learner: u32, shard: usize, allowance: Option<Allowance>, part: Part, orphan: bool },
    /// To the learner, `None` if there was no answer.
    Reply { learner: u32, shard: usize, counts: Option<ShardCounts>, part: Part, drawn: bool },
}

/// Where a stretch without faults began.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    samples: u64,
    inserts: u64,
}

#[derive(Debug)]
pub struct World {
    pub config: Config,
    rng: ChaCha8Rng,
    shards: Vec<Shard>,
    actors_up: bool,
    learner: Option<Learner>,
    learners: u32,
    checkpoint: (u64, Vec<ShardCount>, Book),
    wire: Vec<Message>,
    stretch: Option<Stretch>,
    /// Everything that ever happened, by all incarnations of everyone.
    pub inserts: u64,
    pub agent_steps: u64,
    pub samples: u64,
    pub updates: u64,
}

impl World {
    pub fn new(config: Config, seed: u64) -> Self {
        let book = Book::new(config.shards);
        let mut world = Self {
            config,
            rng: ChaCha8Rng::seed_from_u64(seed),
            // No two shards ever have the same incarnation.
            shards: (0..config.shards as u32).map(|shard| Shard::new(1 + (shard << 16))).collect(),
            actors_up: true,
            learner: None,
            learners: 0,
            checkpoint: (0, Vec::new(), book),
            wire: Vec::new(),
            stretch: None,
            inserts: 0,
            agent_steps: 0,
            samples: 0,
            updates: 0,
        };
        world.start(Target::Learner);
        world
    }

    pub fn stop(&mut self, target: Target) {
        self.stretch = None;
        match target {
            Target::Learner => self.learner = None,
            Target::Actors => self.actors_up = false,
            Target::Shard(shard, way) => self.shards[shard].stop(way),
        }
    }

    pub fn start(&mut self, target: Target) {
        self.stretch = None;
        match target {
            Target::Actors => self.actors_up = true,
            Target::Shard(shard, _) => self.shards[shard].start(),
            Target::Learner if self.learner.is_none() => {
                self.learners += 1;
                let (agent_steps, marks, book) = &self.checkpoint;
                let control =
                    RateController::new(self.config.limiter(), self.config.shards, *agent_steps, marks);
                let (learners, shards) = (self.learners, self.config.shards);
                self.learner = Some(Learner::new(learners, shards, control, book.again()));
            }
            Target::Learner => {}
        }
    }

    pub fn start_all(&mut self) {
        Target::all(self.config.shards).into_iter().for_each(|target| self.start(target));
    }

    pub fn save_checkpoint(&mut self) {
        if let Some(learner) = &self.learner {
            let control = &learner.control;
            self.checkpoint = (control.agent_steps(), control.shard_counts(), learner.book.clone());
        }
    }

    pub fn control(&self) -> &RateController {
        &self.learner.as_ref().expect("the learner is up").control
    }

    pub fn turn(&mut self) {
        let (actors, learner) = (self.config.actor_turns, self.config.learner_turns);
        match self.rng.random_range(0..10) {
            n if n < actors => self.actor_turn(),
            n if n < actors + learner => self.learner_turn(),
            _ if self.wire.is_empty() => {}
            _ => {
                let last = if self.config.reorder { self.wire.len() } else { 1 };
                let index = self.rng.random_range(0..last);
                self.deliver(index);
            }
        }
        self.check_stretch();
    }

    pub fn turns(&mut self, count: u64) {
        (0..count).for_each(|_| self.turn());
    }

    /// Takes turns until inserts and updates have grown, for which everything must be up.
    pub fn expect_progress(&mut self, story: &dyn std::fmt::Debug) {
        let (inserts, updates, patience) = (self.inserts, self.updates, self.config.patience_turns());
        for _ in 0..patience {
            self.turn();
            if self.inserts > inserts && self.updates >= updates + 3 {
                return;
            }
        }
        panic!("no progress in {patience} turns after {story:?}: {:#?}", (&self.shards, &self.learner));
    }

    /// Delivers everything, lets the learner draw until it has to wait, and tells everyone. A stretch whose ratio is
    /// checked begins here, if it is the ratio that the learner waits for. Everything must be up.
    pub fn calm(&mut self) {
        let draws_max = if self.config.ratio.is_some() { 100_000 } else { 1 };
        for draws in 0.. {
            for _ in 0..2 {
                (0..self.config.shards).for_each(|shard| self.poll(shard));
                while !self.wire.is_empty() {
                    self.deliver(0);
                }
            }
            let Some(learner) = &mut self.learner else { panic!("the learner is down") };
            self.updates += std::mem::take(&mut learner.ready);
            let owes = learner.owes();
            if draws == draws_max || !owes && learner.control.can_sample().is_err() {
                break;
            }
            self.draw();
        }
        let room = self.shards_with_lanes().any(|shard| self.shards[shard].has_room());
        let wait = self.control().can_sample();
        assert!(wait.is_ok() || room, "everyone waits for someone else, the learner for {wait:?}");
        assert!(!matches!(wait, Err(BlockedOn::Shards(_))), "all shards have answered");
        let begin = Stretch { samples: self.samples, inserts: self.inserts };
        self.stretch = matches!(wait, Err(BlockedOn::Inserts { .. })).then_some(begin);
        self.check_all_steps_counted();
    }

    pub fn shards_with_lanes(&self) -> impl Iterator<Item = usize> {
        0..self.config.shards.min(self.config.actors * self.config.lanes)
    }

    fn actor_turn(&mut self) {
        let lane = self.rng.random_range(0..self.config.actors * self.config.lanes);
        let shard = &mut self.shards[lane % self.config.shards];
        if !self.actors_up || !shard.takes_chunks() {
            return;
        }
        // Now and then a chunk completes no item, and some steps never do.
        let items = if self.rng.random_bool(0.1) { 0 } else { self.config.chunk };
        let steps = items + self.rng.random_range(0..3);
        shard.insert(items, steps, self.config.capacity);
        self.inserts += items;
        self.agent_steps += steps;
    }

    fn deliver(&mut self, index: usize) {
        match self.wire.remove(index) {
            Message::Request { learner, shard, allowance, part, orphan } => {
                let at = &mut self.shards[shard];
                let answer = at.answer(learner, allowance);
                let (counts, drawn) = (answer, at.items > 0);
                if counts.is_none() && at.state == State::Paused && (orphan || self.rng.random_bool(0.5)) {
                    // It may still find this when it resumes.
                    self.wire.push(Message::Request { learner, shard, allowance, part, orphan: true });
                }
                if !orphan {
                    self.wire.push(Message::Reply { learner, shard, counts, part, drawn });
                }
            }
            Message::Reply { learner, shard, counts, part, drawn } => {
                let min_size = self.config.min_size;
                if let Some(current) = self.learner.as_mut().filter(|current| current.incarnation == learner)
                {
                    current.reply(shard, counts, part, drawn, min_size);
                }
            }
        }
    }

    /// In a stretch without faults the ratio holds, at any time, in true inserts:
    /// −2·slack − ratio·overdraw ≤ Δsamples − ratio·Δinserts ≤ 2·slack.
    /// When it began the samples were within the slack of what was allowed, on either side.
    fn check_stretch(&self) {
        let (Some(stretch), Some(ratio)) = (self.stretch, self.config.ratio) else { return };
        let inserts = (self.inserts - stretch.inserts) as f64;
        let drift = (self.samples - stretch.samples) as f64 - ratio * inserts;
        let most = 2.0 * self.config.limiter().slack() * (1.0 + 1e-9);
        let least = -most - ratio * self.config.overdraw();
        assert!((least..=most).contains(&drift), "drift {drift} not in {least}..{most}: {:?}", self.config);
    }

    /// Every live shard has reported, and all its steps are counted.
    fn check_all_steps_counted(&self) {
        let book = &self.learner.as_ref().expect("the learner is up").book;
        for (index, shard) in self.shards.iter().enumerate() {
            assert_eq!(book.steps_of(index, shard.incarnation), shard.agent_steps, "shard {index}");
        }
    }
}
