//! Rate control over all shards, owned by the learner.
//!
//! Arithmetic only. Input are the shards' counters ([`RateController::update_status`]); output is whether a batch may be drawn
//! and how many inserts each shard may accept. Counters belong to one incarnation, whatever its address: a shard that
//! restarts empty starts from zero, one that moved continues, and nothing is counted twice. Inserts include what a shard
//! charged for steps without items, which is nothing in an honest run.
//!
//! **Filling.** Nothing is drawn until the reachable shards hold `min_size` items, at the start and after a loss. At
//! that moment the ratio starts: neither the filling nor anything before it owes updates.
//!
//! **Running.** [`RateLimiter`] over the inserts and samples since the ratio started. Each shard is granted an equal part
//! of the inserts that are allowed. But rate control does not know which shards have writers (a shard without lanes has
//! none). If it split the last few inserts, a shard without writers would hold a part that nothing uses, and the writers
//! of the others would block. So every shard may use all of them when at most `FEW_INSERTS` are allowed, and at least
//! `FEW_INSERTS` otherwise; the sum can exceed what is allowed by at most `FEW_INSERTS` × (shards − 1). The ratio is
//! computed from the real counts.

use std::collections::BTreeSet;

use replay::{Allowance, ReplayStatus, ShardStatus};

use crate::rate::RateLimiter;
use crate::sample_points::ShardMasses;

/// Incarnations whose counts are kept besides those of the current shards. One that returns after more others than this
/// is counted from zero again.
const FORMER_INCARNATIONS_MAX: usize = 64;
/// Up to this number of inserts, every shard is granted all of them.
const FEW_INSERTS: u64 = 64;

/// The agent steps counted of one shard incarnation, as stored in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShardCount {
    pub incarnation: u32,
    /// Agent steps of that incarnation that are in the run's total.
    pub agent_steps: u64,
}

/// What sampling is blocked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    /// These shards have not answered yet.
    Shards(Vec<usize>),
    /// The replay is being filled.
    Filling {
        /// Items held by the reachable shards.
        items: u64,
        min_size: u64,
    },
    /// The learner is ahead of the actors.
    Inserts {
        /// Inserts needed before the next batch.
        missing: u64,
    },
}

impl BlockedOn {
    /// A label from a small closed set, for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            BlockedOn::Shards(_) => "shards",
            BlockedOn::Filling { .. } => "filling",
            BlockedOn::Inserts { .. } => "inserts",
        }
    }
}

impl std::fmt::Display for BlockedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockedOn::Shards(shards) => {
                let names: Vec<_> = shards.iter().map(ToString::to_string).collect();
                write!(f, "replay shard {} (no answer yet; check its log)", names.join(", "))
            }
            BlockedOn::Filling { items, min_size } => {
                write!(f, "the replay to reach min_size ({items} of {min_size} transitions)")
            }
            BlockedOn::Inserts { missing } => {
                write!(f, "inserts: {missing} more for the next batch")
            }
        }
    }
}

/// The state of rate control.
#[derive(Clone, Debug)]
pub struct RateController {
    limiter: RateLimiter,
    shards: Vec<ShardState>,
    /// The counts of each incarnation: those of the checkpoint, then those reported since, the most recent last.
    counted: Vec<IncarnationCount>,
    inserts: u64,
    agent_steps: u64,
    samples: u64,
    /// Inserts and samples when the ratio started, while it applies. `min_size` is subtracted from the inserts, so they
    /// may be negative.
    since: Option<(i128, u64)>,
}

#[derive(Clone, Debug)]
struct ShardState {
    status: ShardStatus,
    /// Since this control was created.
    has_answered: bool,
    /// It answered when it was last asked, and is not excluded.
    present: bool,
    /// Unreachable when the ratio started, and has not answered since.
    missed_start: bool,
    /// The run continues without it (`without_shards`): nothing waits for it.
    excluded: bool,
}

/// The counts of an incarnation that are included in the totals.
#[derive(Clone, Copy, Debug)]
struct IncarnationCount {
    incarnation: u32,
    /// `None` before its first status to this control.
    inserts: Option<u64>,
    agent_steps: u64,
}

impl RateController {
    /// RateController over `shards` shards. `agent_steps` and `shard_counts` are those of the checkpoint that the run resumes
    /// from, or 0 and empty. A count belongs to the shard of its incarnation, whatever that shard's number is now.
    pub fn new(limiter: RateLimiter, shards: usize, agent_steps: u64, shard_counts: &[ShardCount]) -> Self {
        let status = ShardStatus::default();
        let known =
            ShardState { status, has_answered: false, present: false, missed_start: false, excluded: false };
        let counted = |&ShardCount { incarnation, agent_steps }: &ShardCount| IncarnationCount {
            incarnation,
            inserts: None,
            agent_steps,
        };
        let (shards, counted) = (vec![known; shards], shard_counts.iter().map(counted).collect());
        Self { limiter, shards, counted, inserts: 0, agent_steps, samples: 0, since: None }
    }

    /// Changes the ratio or `min_size`. The ratio starts again: nothing is owed for what was before.
    pub fn set_limiter(&mut self, limiter: RateLimiter) {
        self.limiter = limiter;
        self.since = None;
        self.settle();
    }

    /// Sets which shards the run does without. One that is no longer among them is waited for until it answers.
    pub fn set_excluded(&mut self, excluded: &BTreeSet<usize>) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            shard.excluded = excluded.contains(&index);
            shard.present &= !shard.excluded;
        }
        self.settle();
    }

    /// Whether the run does without a shard.
    pub fn is_excluded(&self, shard: usize) -> bool {
        self.shards[shard].excluded
    }

    /// Records a shard's status. An older status of the same incarnation changes nothing. If the incarnation is another
    /// than before, new or returning, it has this number from now on and continues from its own counts.
    pub fn update_status(&mut self, shard: usize, status: ShardStatus) {
        let known = &self.shards[shard];
        let same = known.has_answered && known.status.incarnation == status.incarnation;
        let order = |status: &ShardStatus| (status.inserts_charged(), status.counters.agent_steps);
        if same && order(&status) < order(&known.status) {
            return;
        }
        let before = self.inserts;
        let first = self.count(&status);
        let known = &mut self.shards[shard];
        if let (true, Some((began, _))) = (known.missed_start || first, &mut self.since) {
            // Inserted under an allowance for filling, or under one of an earlier learner: these inserts owe no
            // updates.
            *began += i128::from(self.inserts - before);
        }
        (known.status, known.has_answered, known.present, known.missed_start) = (status, true, true, false);
        self.drop_oldest_former();
        self.settle();
    }

    /// Adds to the totals what an incarnation has counted since its last status. Returns whether this is its first
    /// status.
    fn count(&mut self, status: &ShardStatus) -> bool {
        let at = self.counted.iter().position(|counted| counted.incarnation == status.incarnation);
        let counted = at.map(|at| self.counted.remove(at));
        let inserts = counted.and_then(|counted| counted.inserts);
        let agent_steps = counted.map_or(0, |counted| counted.agent_steps);
        // Saturating, because a faulty shard can report any number.
        let more = |now: u64, before: u64, sum: u64| sum.saturating_add(now.saturating_sub(before));
        self.inserts = more(status.inserts_charged(), inserts.unwrap_or(0), self.inserts);
        self.agent_steps = more(status.counters.agent_steps, agent_steps, self.agent_steps);
        self.counted.push(IncarnationCount {
            incarnation: status.incarnation,
            inserts: inserts.max(Some(status.inserts_charged())),
            agent_steps: agent_steps.max(status.counters.agent_steps),
        });
        inserts.is_none()
    }

    /// If there are too many counts, drops the one that was updated longest ago and is not of a current shard.
    fn drop_oldest_former(&mut self) {
        if self.counted.len() > self.shards.len() + FORMER_INCARNATIONS_MAX {
            let former = |counted: &IncarnationCount| {
                !self.shards.iter().any(|shard| shard.status.incarnation == counted.incarnation)
            };
            let oldest = self.counted.iter().position(former).expect("there are more counts than shards");
            self.counted.remove(oldest);
        }
    }

    /// Records that a shard does not answer.
    pub fn mark_unreachable(&mut self, shard: usize) {
        self.shards[shard].present = false;
        self.settle();
    }

    pub fn sampled(&mut self, count: u64) {
        self.samples += count;
    }

    /// Undoes [`RateController::sampled`] for items that could not be drawn.
    pub fn undo_sampled(&mut self, count: u64) {
        self.samples -= count;
        if let Some((_, began)) = &mut self.since {
            // The ratio may have started in between, from a count that included these samples.
            *began = (*began).min(self.samples);
        }
    }

    /// Whether a batch may be drawn now, or what sampling is blocked on.
    pub fn can_sample(&self) -> Result<(), BlockedOn> {
        let is_awaited = |shard: &usize| !self.shards[*shard].has_answered && !self.shards[*shard].excluded;
        let awaited: Vec<usize> = (0..self.shards.len()).filter(is_awaited).collect();
        if !awaited.is_empty() {
            return Err(BlockedOn::Shards(awaited));
        }
        let Some((inserts, samples)) = self.effective() else {
            return Err(BlockedOn::Filling { items: self.items(), min_size: self.limiter.min_size() });
        };
        if self.limiter.can_sample(inserts, samples) {
            return Ok(());
        }
        Err(BlockedOn::Inserts { missing: self.limiter.inserts_wanted(inserts, samples) })
    }

    /// The total number of inserts that a shard may accept. `None` before it has answered.
    pub fn allowance(&self, shard: usize) -> Option<Allowance> {
        let known = &self.shards[shard];
        let room = self.room();
        let each = (room / self.present_count().max(1)).max(room.min(FEW_INSERTS));
        known.has_answered.then(|| Allowance {
            incarnation: known.status.incarnation,
            inserts: known.status.inserts_charged().saturating_add(each),
        })
    }

    /// The number of inserts at which a poll of a shard should be answered: its part of what sampling is blocked on.
    pub fn until_inserts(&self, shard: usize) -> u64 {
        let missing = match self.can_sample() {
            Err(BlockedOn::Inserts { missing }) => missing,
            Err(BlockedOn::Filling { items, min_size }) => min_size.saturating_sub(items),
            _ => 1,
        };
        let known = self.shards[shard].status.inserts_charged();
        known.saturating_add((missing / self.present_count().max(1)).max(1))
    }

    /// Each shard's mass; 0 if it is unreachable.
    pub fn masses(&self) -> ShardMasses {
        let mass = |shard: &ShardState| if shard.present { shard.status.first_table().mass } else { 0.0 };
        ShardMasses::new(self.shards.iter().map(mass))
    }

    /// Items of all reachable shards.
    pub fn items(&self) -> u64 {
        self.present().fold(0, |items, shard| items.saturating_add(shard.first_table().items))
    }

    /// The last status of a shard. `None` if it has not answered since this control was created.
    pub fn last_status(&self, shard: usize) -> Option<&ShardStatus> {
        Some(&self.shards[shard]).filter(|known| known.has_answered).map(|known| &known.status)
    }

    /// The last status of every reachable shard.
    pub fn present(&self) -> impl Iterator<Item = &ShardStatus> {
        self.shards.iter().filter(|shard| shard.present).map(|shard| &shard.status)
    }

    /// The combined status of all reachable shards.
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
            reachable: (0..self.shards.len()).filter(|&shard| self.shards[shard].present).collect(),
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

    /// Samples drawn and inserts counted since this control was created.
    pub fn totals(&self) -> (u64, u64) {
        (self.samples, self.inserts)
    }

    /// Samples per insert since the ratio last started. `None` while it does not apply.
    pub fn ratio(&self) -> Option<f64> {
        let (inserts, samples) = self.effective()?;
        let inserts = inserts.checked_sub(self.limiter.min_size()).filter(|&inserts| inserts > 0)?;
        Some(samples as f64 / inserts as f64)
    }

    /// The counts of every incarnation, including former ones, which may return.
    pub fn shard_counts(&self) -> Vec<ShardCount> {
        let count = |counted: &IncarnationCount| ShardCount {
            incarnation: counted.incarnation,
            agent_steps: counted.agent_steps,
        };
        self.counted.iter().map(count).collect()
    }

    fn present_count(&self) -> u64 {
        self.present().count() as u64
    }

    /// Starts the ratio when the replay holds enough items, and stops it when it does not.
    fn settle(&mut self) {
        let known = self.shards.iter().all(|shard| shard.has_answered || shard.excluded);
        let enough = self.items() >= self.limiter.min_size() && known;
        self.since = match self.since {
            Some(since) if enough => Some(since),
            None if enough => {
                self.shards.iter_mut().for_each(|shard| shard.missed_start = !shard.present);
                Some((i128::from(self.inserts) - i128::from(self.limiter.min_size()), self.samples))
            }
            _ => None,
        };
    }

    /// Inserts and samples since the ratio started, as the limiter counts them.
    fn effective(&self) -> Option<(u64, u64)> {
        let (inserts, samples) = self.since?;
        let inserts = u64::try_from(i128::from(self.inserts) - inserts).unwrap_or(u64::MAX);
        Some((inserts, self.samples - samples))
    }

    /// Inserts that all shards together may still accept.
    fn room(&self) -> u64 {
        match self.effective() {
            Some((inserts, samples)) => self.limiter.inserts_allowed(samples).saturating_sub(inserts),
            // A little more than is missing, so that actors are not blocked at the moment when the ratio starts.
            None => self.limiter.inserts_allowed(0).saturating_sub(self.items()),
        }
    }
}
