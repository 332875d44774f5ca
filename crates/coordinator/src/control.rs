//! Rate control over all shards, owned by the learner.
//!
//! Arithmetic only. What the shards count comes in ([`Control::heard`]), whether a batch may be drawn and how many
//! inserts each shard may take comes out. Counters belong to one incarnation, wherever it answers: one that comes back
//! empty starts anew, one that moved goes on, and nothing is counted twice.
//!
//! **Filling.** Until the shards that can be reached hold `min_size` items nothing is drawn, at the start as after a
//! loss. When they do, the ratio begins at that moment: neither the filling nor what happened before owes updates.
//!
//! **Running.** [`RateLimiter`] over inserts and samples since. Of the inserts allowed each shard gets its part, or all
//! of them while they are few: which shard has writers is not known here, and a part held by one that has none would
//! stall the others. So a shard may overdraw, by a bounded number, and the ratio is held by the real counts.

use std::collections::BTreeSet;

use replay::{Allowance, ReplayStatus, ShardStatus};

use crate::rate::RateLimiter;
use crate::spread::Masses;

/// Incarnations that are remembered besides those that have a number now. One that comes back after so many others is
/// counted anew.
const FORMER_MAX: usize = 64;
/// Inserts so few that every shard is granted all of them.
const FEW_INSERTS: u64 = 64;

/// How far a shard had counted, kept in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// Which start of the shard; 0 if it was never heard.
    pub incarnation: u32,
    /// Agent steps of that start that are counted already.
    pub agent_steps: u64,
}

/// Why no batch may be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// These shards have not been heard yet.
    Shards(Vec<usize>),
    /// The replay is being filled.
    Filling {
        /// Items held by the shards that can be reached.
        items: u64,
        /// Items wanted.
        min_size: u64,
    },
    /// The learner is ahead of the actors.
    Inserts {
        /// How many more are needed for a batch.
        missing: u64,
    },
}

impl Wait {
    /// A word for it, from a small closed set.
    pub fn name(&self) -> &'static str {
        match self {
            Wait::Shards(_) => "shards",
            Wait::Filling { .. } => "filling",
            Wait::Inserts { .. } => "inserts",
        }
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wait::Shards(shards) => {
                let names: Vec<_> = shards.iter().map(ToString::to_string).collect();
                write!(f, "replay shard {} to answer", names.join(", "))
            }
            Wait::Filling { items, min_size } => {
                write!(f, "the replay to fill ({items} of {min_size} transitions)")
            }
            Wait::Inserts { missing } => write!(f, "actors: {missing} more transitions for the next batch"),
        }
    }
}

/// The state of the ratio.
#[derive(Clone, Debug)]
pub struct Control {
    limiter: RateLimiter,
    shards: Vec<Known>,
    /// How far each incarnation has counted: those of the checkpoint, then those heard since, the last one heard last.
    counted: Vec<Counted>,
    inserts: u64,
    agent_steps: u64,
    samples: u64,
    /// Inserts and samples where the ratio began, while it holds. The former is counted back by `min_size` and may lie
    /// before the first insert.
    since: Option<(i128, u64)>,
}

#[derive(Clone, Debug)]
struct Known {
    /// The newest status.
    status: ShardStatus,
    /// Ever, since this control was made.
    met: bool,
    present: bool,
    /// Out of reach when the ratio began, and not heard since.
    late: bool,
    /// The run goes on without it: it is not waited for.
    absent: bool,
}

/// What an incarnation said of itself, as far as it is in the sums.
#[derive(Clone, Copy, Debug)]
struct Counted {
    incarnation: u32,
    /// `None` before it is heard by this control.
    inserts: Option<u64>,
    agent_steps: u64,
}

impl Control {
    /// Control over so many shards. `agent_steps` and the marks are those of the checkpoint that the run goes on from,
    /// or 0 and none. A mark is a shard's whose incarnation it has, wherever that shard is now.
    pub fn new(limiter: RateLimiter, shards: usize, agent_steps: u64, marks: &[Mark]) -> Self {
        let status = ShardStatus::default();
        let known = Known { status, met: false, present: false, late: false, absent: false };
        let counted =
            |&Mark { incarnation, agent_steps }: &Mark| Counted { incarnation, inserts: None, agent_steps };
        let (shards, counted) = (vec![known; shards], marks.iter().map(counted).collect());
        Self { limiter, shards, counted, inserts: 0, agent_steps, samples: 0, since: None }
    }

    /// Lets go by another ratio or another least size from now on. Nothing is owed for what was before.
    pub fn set_limiter(&mut self, limiter: RateLimiter) {
        self.limiter = limiter;
        self.since = None;
        self.settle();
    }

    /// Goes on without these shards, and with all others. One that comes back is waited for until it is heard.
    pub fn set_absent(&mut self, absent: &BTreeSet<usize>) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            shard.absent = absent.contains(&index);
            shard.present &= !shard.absent;
        }
        self.settle();
    }

    /// Whether the run goes on without a shard.
    pub fn is_absent(&self, shard: usize) -> bool {
        self.shards[shard].absent
    }

    /// Takes in what a shard said. Older news of the same incarnation change nothing. Another incarnation than before,
    /// be it new or back again, has this number from now on, and goes on from where it had counted.
    pub fn heard(&mut self, shard: usize, news: ShardStatus) {
        let known = &self.shards[shard];
        let same = known.met && known.status.incarnation == news.incarnation;
        let order = |status: &ShardStatus| (status.inserts(), status.counters.actions);
        if same && order(&news) < order(&known.status) {
            return;
        }
        let before = self.inserts;
        let first = self.count(&news);
        let known = &mut self.shards[shard];
        if let (true, Some((began, _))) = (known.late || first, &mut self.since) {
            // Taken before the ratio began, under what was granted for filling or by a learner before: owes no updates.
            *began += i128::from(self.inserts - before);
        }
        (known.status, known.met, known.present, known.late) = (news, true, true, false);
        self.forget_former();
        self.settle();
    }

    /// Adds to the sums what an incarnation has counted beyond what is in them. Says whether it was heard for the first
    /// time.
    fn count(&mut self, news: &ShardStatus) -> bool {
        let at = self.counted.iter().position(|counted| counted.incarnation == news.incarnation);
        let counted = at.map(|at| self.counted.remove(at));
        let inserts = counted.and_then(|counted| counted.inserts);
        let agent_steps = counted.map_or(0, |counted| counted.agent_steps);
        // Nobody counts as far as these numbers go, but a shard can say anything.
        let more = |now: u64, before: u64, sum: u64| sum.saturating_add(now.saturating_sub(before));
        self.inserts = more(news.inserts(), inserts.unwrap_or(0), self.inserts);
        self.agent_steps = more(news.counters.actions, agent_steps, self.agent_steps);
        self.counted.push(Counted {
            incarnation: news.incarnation,
            inserts: inserts.max(Some(news.inserts())),
            agent_steps: agent_steps.max(news.counters.actions),
        });
        inserts.is_none()
    }

    /// Drops the one that was not heard for longest, of those that have no number, if there are too many.
    fn forget_former(&mut self) {
        if self.counted.len() > self.shards.len() + FORMER_MAX {
            let former = |counted: &Counted| {
                !self.shards.iter().any(|shard| shard.status.incarnation == counted.incarnation)
            };
            let oldest = self.counted.iter().position(former).expect("more than there are numbers");
            self.counted.remove(oldest);
        }
    }

    /// A shard does not answer.
    pub fn lost(&mut self, shard: usize) {
        self.shards[shard].present = false;
        self.settle();
    }

    /// Counts samples drawn.
    pub fn sampled(&mut self, count: u64) {
        self.samples += count;
    }

    /// Takes back samples that were counted and could not be drawn after all.
    pub fn not_sampled(&mut self, count: u64) {
        self.samples -= count;
        if let Some((_, began)) = &mut self.since {
            // The ratio may have begun in between.
            *began = (*began).min(self.samples);
        }
    }

    /// Whether a batch may be drawn now, or what for it has to wait.
    pub fn can_sample(&self) -> Result<(), Wait> {
        let strange = |shard: &usize| !self.shards[*shard].met && !self.shards[*shard].absent;
        let strangers: Vec<usize> = (0..self.shards.len()).filter(strange).collect();
        if !strangers.is_empty() {
            return Err(Wait::Shards(strangers));
        }
        let Some((inserts, samples)) = self.effective() else {
            return Err(Wait::Filling { items: self.items(), min_size: self.limiter.min_size() });
        };
        if self.limiter.can_sample(inserts, samples) {
            return Ok(());
        }
        Err(Wait::Inserts { missing: self.limiter.inserts_wanted(inserts, samples) })
    }

    /// How many inserts a shard may have taken in total. `None` for one that was not heard yet.
    pub fn allowance(&self, shard: usize) -> Option<Allowance> {
        let known = &self.shards[shard];
        let room = self.room();
        let each = (room / self.present_count().max(1)).max(room.min(FEW_INSERTS));
        known.met.then(|| Allowance {
            incarnation: known.status.incarnation,
            inserts: known.status.inserts().saturating_add(each),
        })
    }

    /// The count of inserts at which news of a shard is worth having, for whoever waits.
    pub fn until_inserts(&self, shard: usize) -> u64 {
        let missing = match self.can_sample() {
            Err(Wait::Inserts { missing }) => missing,
            Err(Wait::Filling { items, min_size }) => min_size.saturating_sub(items),
            _ => 1,
        };
        let known = self.shards[shard].status.inserts();
        known.saturating_add((missing / self.present_count().max(1)).max(1))
    }

    /// What each shard weighs, 0 if it can't be reached.
    pub fn masses(&self) -> Masses {
        let mass = |shard: &Known| if shard.present { shard.status.first_table().mass } else { 0.0 };
        Masses::new(self.shards.iter().map(mass))
    }

    /// Items of all shards that can be reached.
    pub fn items(&self) -> u64 {
        self.present().fold(0, |items, shard| items.saturating_add(shard.first_table().items))
    }

    /// The last status of a shard that has answered since this control was made.
    pub fn last_status(&self, shard: usize) -> Option<&ShardStatus> {
        Some(&self.shards[shard]).filter(|known| known.met).map(|known| &known.status)
    }

    /// The last status of every shard that answers.
    pub fn present(&self) -> impl Iterator<Item = &ShardStatus> {
        self.shards.iter().filter(|shard| shard.present).map(|shard| &shard.status)
    }

    /// What all shards that answer hold together.
    pub fn status(&self) -> ReplayStatus {
        ReplayStatus {
            shards: self.present().count() as u32,
            items: self.items(),
            bytes: self.present().fold(0, |bytes, shard| bytes.saturating_add(shard.bytes_used)),
            agent_steps: self.agent_steps,
            inserts: self.inserts,
            samples: self.samples,
            samples_per_insert: self.ratio(),
            blocked_on: None,
        }
    }

    /// Whether a shard answered when it was last asked.
    pub fn is_present(&self, shard: usize) -> bool {
        self.shards[shard].present
    }

    /// Agent steps of the whole run.
    pub fn agent_steps(&self) -> u64 {
        self.agent_steps
    }

    /// Samples drawn, and inserts counted, since this control was made.
    pub fn totals(&self) -> (u64, u64) {
        (self.samples, self.inserts)
    }

    /// Samples per insert since the ratio last began.
    pub fn ratio(&self) -> Option<f64> {
        let (inserts, samples) = self.effective()?;
        let inserts = inserts.checked_sub(self.limiter.min_size()).filter(|&inserts| inserts > 0)?;
        Some(samples as f64 / inserts as f64)
    }

    /// How far every incarnation has counted, also those that may come back.
    pub fn marks(&self) -> Vec<Mark> {
        let mark = |&Counted { incarnation, agent_steps, .. }: &Counted| Mark { incarnation, agent_steps };
        self.counted.iter().map(mark).collect()
    }

    fn present_count(&self) -> u64 {
        self.present().count() as u64
    }

    /// Begins the ratio when there is enough, and ends it when there is not.
    fn settle(&mut self) {
        let known = self.shards.iter().all(|shard| shard.met || shard.absent);
        let enough = self.items() >= self.limiter.min_size() && known;
        self.since = match self.since {
            Some(since) if enough => Some(since),
            None if enough => {
                self.shards.iter_mut().for_each(|shard| shard.late = !shard.present);
                Some((i128::from(self.inserts) - i128::from(self.limiter.min_size()), self.samples))
            }
            _ => None,
        };
    }

    /// Inserts and samples as the limiter counts them.
    fn effective(&self) -> Option<(u64, u64)> {
        let (inserts, samples) = self.since?;
        let inserts = u64::try_from(i128::from(self.inserts) - inserts).unwrap_or(u64::MAX);
        Some((inserts, self.samples - samples))
    }

    /// Inserts that all shards together may take from here.
    fn room(&self) -> u64 {
        match self.effective() {
            Some((inserts, samples)) => self.limiter.inserts_allowed(samples).saturating_sub(inserts),
            // A little more than missing, so that actors are not held up at the moment when the ratio begins.
            None => self.limiter.inserts_allowed(0).saturating_sub(self.items()),
        }
    }
}
