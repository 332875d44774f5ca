//! The pool of a run's remote shards: polls all of them for their status, and samples over all of them.
//!
//! The pool owns the connections, the state of samples per insert ([`RateController`]), and the [`ShardDirectory`]: once a
//! shard has moved, it is called at its new address. The pool never decides to wait; its caller does.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use proto::{PackedBatch, StoreSpec};
use replay::ShardStatus;
use rpc::shard::{ShardClient, ShardError};
use rpc::shard_entry::ShardEntry;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::control::RateController;
use crate::discovery::AddressWatcher;
use crate::sample_points::{SamplePoint, ShardMasses};
use crate::shard_directory::{IdentifyOutcome, ShardDirectory};

/// The shards of a run.
pub struct ShardPool {
    /// Rate control over the shards' counters.
    pub control: RateController,
    shards: Vec<ShardClient>,
    directory: ShardDirectory,
    /// Publishes the directory to the members.
    published: watch::Sender<Vec<ShardEntry>>,
    /// Whether a shard's address changed after the calls whose answers are being handled: its answer is another
    /// shard's.
    address_changed: Vec<bool>,
    /// Shards that the run does without: they are not called.
    without: BTreeSet<usize>,
    /// Looks up the addresses of missing shards, if they are discovered by id.
    watcher: Option<AddressWatcher>,
    clock: Clock,
}

/// The items that one shard has drawn.
pub struct ShardBatch {
    pub shard: usize,
    pub batch: PackedBatch,
}

impl ShardPool {
    /// A pool of the shards in `directory`, of which the run does without `without`. Members receive the directory
    /// through `published`.
    pub fn new(
        shards: Vec<ShardClient>,
        directory: ShardDirectory,
        published: watch::Sender<Vec<ShardEntry>>,
        control: RateController,
        without: BTreeSet<usize>,
        watcher: Option<AddressWatcher>,
        clock: Clock,
    ) -> Self {
        let address_changed = vec![false; shards.len()];
        let mut pool =
            Self { control, shards, directory, published, address_changed, without, watcher, clock };
        pool.apply_excluded();
        pool
    }

    /// Number of shards, including those that the run does without.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether there are no shards.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Sets what each shard holds, sent with its next grant, and which shards the run does without. A shard that is no
    /// longer among those is called from now on, and rejoins the run when it answers.
    pub fn configure(&mut self, spec: &StoreSpec, without: &BTreeSet<usize>) -> Result<(), String> {
        self.shards.iter_mut().for_each(|shard| shard.set_spec(spec.clone()));
        let excluded = self.without.union(self.directory.returning());
        let returning: BTreeSet<usize> = excluded.copied().filter(|shard| !without.contains(shard)).collect();
        for &shard in &returning {
            let ShardEntry { address, id, .. } = &self.directory.all()[shard];
            info!(shard, id, %address, "shard included again, waiting for its first answer");
        }
        self.without.clone_from(without);
        self.set_returning(returning)
    }

    fn set_returning(&mut self, returning: BTreeSet<usize>) -> Result<(), String> {
        let saved = self.directory.set_returning(returning);
        saved.map_err(|error| format!("can't store which shards rejoin the run: {error:#}; free space in the run directory, then resume"))?;
        self.apply_excluded();
        Ok(())
    }

    /// Passes on which shards are part of the run: to rate control, the directory and the members.
    fn apply_excluded(&mut self) {
        let excluded = self.without.union(self.directory.returning()).copied().collect();
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.hurry(self.directory.returning().contains(&number));
        }
        self.control.set_excluded(&excluded);
        self.directory.set_excluded(&excluded);
        self.publish_directory();
    }

    /// Descriptions of the shards that are waited for and do not answer.
    pub fn unreachable(&self) -> Vec<String> {
        let is_unreachable =
            |shard: &usize| !self.control.is_present(*shard) && !self.control.is_excluded(*shard);
        let describe = |shard: usize| {
            let ShardEntry { address, id, .. } = &self.directory.all()[shard];
            format!("shard {shard} ({id}), last at {address}: {}", self.shards[shard].last_error())
        };
        (0..self.len()).filter(is_unreachable).map(describe).collect()
    }

    /// Whether all shards that are waited for answer, and every one that has items has evicted some.
    pub fn is_full(&self) -> bool {
        let tables = self.control.present().map(ShardStatus::first_table);
        let mut holding = tables.filter(|table| table.items > 0).peekable();
        self.unreachable().is_empty()
            && holding.peek().is_some()
            && holding.all(|table| table.evicted_total() > 0)
    }

    /// The largest priority that any answering shard has seen.
    pub fn largest_priority(&self) -> f64 {
        let seen = self.control.present().map(|status| status.first_table().largest_priority);
        seen.filter(|priority| priority.is_finite()).fold(0.0, f64::max)
    }

    /// Polls all shards. Each answers when it has more items, or after `wait`. Returns whether any answered.
    pub async fn poll_shards(&mut self, wait: Duration) -> Result<bool, String> {
        self.follow_moved_shards();
        let control = &self.control;
        let asked = active(&mut self.shards, &self.without).map(|(index, shard)| async move {
            let until = if wait.is_zero() { 0 } else { control.until_inserts(index) };
            (index, shard.grant(control.allowance(index), until, wait, false).await)
        });
        let mut answers = join_all(asked).await;
        answers.sort_by_key(|(_, answer)| self.is_unknown(answer.as_ref().ok()));
        self.address_changed.fill(false);
        let mut any_answered = false;
        for (shard, answer) in answers {
            any_answered |= self.handle_answer(shard, answer)?;
        }
        Ok(any_answered)
    }

    /// Draws from each shard the items at its part of the points. A shard that returns fewer is excluded from `masses`.
    pub async fn draw(
        &mut self,
        points: &[SamplePoint],
        masses: &mut ShardMasses,
    ) -> Result<Vec<ShardBatch>, String> {
        self.follow_moved_shards();
        let control = &self.control;
        let asked = active(&mut self.shards, &self.without).map(|(index, shard)| async move {
            let own = points.iter().filter(|point| point.shard == index);
            let own = own.map(|point| point.within).collect();
            (index, shard.sample(own, control.allowance(index)).await)
        });
        let mut answers = join_all(asked).await;
        answers.sort_by_key(|(_, answer)| self.is_unknown(answer.as_ref().ok().map(|(_, status)| status)));
        self.address_changed.fill(false);
        let mut drawn = Vec::with_capacity(self.len());
        for (shard, answer) in answers {
            let (batch, answer) = match answer {
                Ok((batch, status)) => (batch, Ok(status)),
                Err(error) => (PackedBatch::default(), Err(error)),
            };
            // If a shard returns only some of the items, their probabilities are unknown; more is an invalid answer.
            let wanted = points.iter().filter(|point| point.shard == shard).count();
            if self.handle_answer(shard, answer)? && batch.len() == wanted {
                drawn.push(ShardBatch { shard, batch });
            } else if wanted > 0 {
                masses.exclude(shard);
            }
        }
        Ok(drawn)
    }

    /// Redirects missing shards to the addresses at which they were discovered.
    fn follow_moved_shards(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let is_missing = |shard: &usize| !self.control.is_present(*shard) && !self.without.contains(shard);
        let missing: Vec<usize> = (0..self.shards.len()).filter(is_missing).collect();
        let Some(found) = watcher.poll(!missing.is_empty()) else { return };
        let mut found_any = false;
        for (id, address) in &found {
            let number = self.directory.all().iter().position(|shard| shard.id == *id);
            match number {
                None => watcher.warn_unused(id, address),
                Some(number) if missing.contains(&number) && self.shards[number].address() != address => {
                    info!(shard = number, id, %address, "shard found at a new address");
                    self.directory.set_address(number, address.clone());
                    self.shards[number].move_to(address.clone());
                    found_any = true;
                }
                Some(_) => {}
            }
        }
        if found_any {
            self.publish_directory();
        }
    }

    /// Tells all shards that the run has finished.
    pub async fn finish(&mut self) {
        let shards = active(&mut self.shards, &self.without);
        join_all(shards.map(|(_, shard)| shard.grant(None, 0, Duration::ZERO, true))).await;
    }

    /// Whether the answer is from a shard that is not in the directory. Answers of known shards are handled first, so
    /// that an unknown shard gets only a number whose shard did not answer in the same round.
    fn is_unknown(&self, status: Option<&ShardStatus>) -> bool {
        status.is_some_and(|status| !self.directory.all().iter().any(|shard| shard.id == status.id))
    }

    /// Handles a shard's status, or its failure to answer. Returns whether the shard itself answered.
    fn handle_answer(
        &mut self,
        shard: usize,
        answer: Result<ShardStatus, ShardError>,
    ) -> Result<bool, String> {
        match answer {
            _ if self.address_changed[shard] => Ok(false),
            Ok(status) => {
                if !self.check_identity(shard, &status)? {
                    return Ok(false);
                }
                let last = self.control.last_status(shard);
                if last.is_none_or(|last| last.incarnation != status.incarnation) {
                    let (address, items) = (self.shards[shard].address(), status.first_table().items);
                    info!(shard, %address, id = status.id, incarnation = status.incarnation, items, "shard connected");
                } else if !self.control.is_present(shard) {
                    info!(shard, address = %self.shards[shard].address(), id = status.id, "shard reachable again");
                }
                let id = status.id.clone();
                self.control.update_status(shard, status);
                if self.directory.returning().contains(&shard) {
                    let others = self.directory.returning().iter().copied().filter(|&other| other != shard);
                    match self.set_returning(others.collect()) {
                        Ok(()) => info!(shard, id, "shard rejoined the run"),
                        // Its next answer tries again.
                        Err(error) => warn!(shard, id, error, "shard does not rejoin the run yet"),
                    }
                }
                Ok(true)
            }
            Err(ShardError::Unreachable(reason)) => {
                if self.control.is_present(shard) {
                    let ShardEntry { address, id, .. } = &self.directory.all()[shard];
                    let (reachable, shards) = (self.control.present().count() - 1, self.len());
                    warn!(shard, id, %address, error = reason, reachable, shards, "shard unreachable");
                }
                self.control.mark_unreachable(shard);
                self.directory.unreachable(shard);
                Ok(false)
            }
            Err(ShardError::Refused(reason)) => Err(reason),
        }
    }

    /// Whether an answer is from the expected shard. If not, the shard is searched for at another address.
    fn check_identity(&mut self, shard: usize, status: &ShardStatus) -> Result<bool, String> {
        let address = self.shards[shard].address().clone();
        let identity = self.directory.identify(shard, &status.id, self.clock.now());
        let identity = match identity {
            Ok(identity) => identity,
            Err(error) => {
                // Its next answer tries again. A full disk must not end the run.
                let error = format!("{error:#}");
                warn!(shard, id = status.id, error, "shard id not stored, free space in the run directory");
                self.control.mark_unreachable(shard);
                return Ok(false);
            }
        };
        match identity {
            IdentifyOutcome::Expected => Ok(true),
            IdentifyOutcome::FirstAnswer => {
                self.publish_directory();
                Ok(true)
            }
            IdentifyOutcome::New { replaces } => {
                if let Some(former) = replaces {
                    warn!(shard, %address, id = status.id, replaced_id = former, "shard replaced by one with a new id");
                }
                self.publish_directory();
                Ok(true)
            }
            IdentifyOutcome::Foreign => {
                let expected_id = &self.directory.all()[shard].id;
                warn!(shard, %address, id = status.id, expected_id, "unknown shard at a known address, ignored");
                self.shards[shard].move_to(self.directory.all()[shard].address.clone());
                self.control.mark_unreachable(shard);
                Ok(false)
            }
            IdentifyOutcome::Swapped { other, tries } => {
                if tries <= self.len() {
                    warn!(shard, other, %address, id = status.id, "shard addresses swapped, reconnecting both");
                }
                for number in [shard, other] {
                    self.shards[number].move_to(self.directory.all()[number].address.clone());
                    self.address_changed[number] = true;
                    self.control.mark_unreachable(number);
                }
                self.publish_directory();
                Ok(false)
            }
            IdentifyOutcome::Duplicate => Err(format!(
                "{address} leads to shard {}, as another address does: remove the duplicate --shard",
                status.id
            )),
        }
    }

    fn publish_directory(&self) {
        self.published.send_replace(self.directory.confirmed());
    }
}

/// The shards that the run does not do without, with their numbers.
fn active<'a>(
    shards: &'a mut [ShardClient],
    without: &'a BTreeSet<usize>,
) -> impl Iterator<Item = (usize, &'a mut ShardClient)> {
    shards.iter_mut().enumerate().filter(|(index, _)| !without.contains(index))
}
