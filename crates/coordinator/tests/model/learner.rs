//! The learner's part: draws ahead, asks again for what did not come, listens, and grants.

use std::collections::BTreeMap;

use coordinator::control::{BlockedOn, RateController};
use rand::RngExt;

use super::book::Book;
use super::{Config, Message, Part, World};
use crate::shard_counts::ShardCounts;

/// Requests to one shard in flight that ask for the status only.
const POLLS_MAX: u64 = 3;

#[derive(Debug)]
pub struct Learner {
    pub incarnation: u32,
    pub control: RateController,
    pub book: Book,
    /// Items still to come, by batch.
    batches: BTreeMap<u64, u64>,
    next_batch: u64,
    /// Parts of batches that a shard failed to give.
    owed: Vec<(u64, u64)>,
    /// Batches to train on.
    pub ready: u64,
    polls: Vec<u64>,
}

impl Learner {
    pub fn new(incarnation: u32, shards: usize, control: RateController, book: Book) -> Self {
        let polls = vec![0; shards];
        let (batches, owed) = (BTreeMap::new(), Vec::new());
        Self { incarnation, control, book, batches, next_batch: 0, owed, ready: 0, polls }
    }

    pub fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    pub fn reply(
        &mut self,
        shard: usize,
        counts: Option<ShardCounts>,
        part: Part,
        drawn: bool,
        min_size: u64,
    ) {
        match counts {
            Some(counts) => {
                self.control.update_status(shard, counts.status());
                self.book.reported(shard, counts, min_size);
            }
            None => {
                self.control.mark_unreachable(shard);
                self.book.lost(shard, min_size);
            }
        }
        // Each step counted once, over all incarnations of shards and learners.
        assert_eq!(self.control.agent_steps(), self.book.agent_steps());
        assert_eq!(self.control.items(), self.book.items());
        match part {
            None => self.polls[shard] -= 1,
            Some((batch, count)) if drawn && counts.is_some() => {
                let missing = self.batches.get_mut(&batch).expect("it is in flight");
                *missing -= count;
                if *missing == 0 {
                    self.batches.remove(&batch);
                    self.ready += 1;
                }
            }
            Some(part) => self.owed.push(part),
        }
    }

    /// The answer to whether a batch may be drawn is right, and names what is missing.
    fn check_wait(&self, config: &Config) {
        let (control, book, limiter) = (&self.control, &self.book, config.limiter());
        self.check_allowances(config);
        match control.can_sample() {
            Err(BlockedOn::Shards(shards)) => {
                assert!(!shards.is_empty());
                assert_eq!(shards, book.strangers());
            }
            Err(BlockedOn::Filling { items, min_size }) => {
                assert!(book.strangers().is_empty());
                assert_eq!((items, min_size), (book.items(), config.min_size));
                assert!(items < min_size);
                self.check_that_news_can_come();
            }
            Err(BlockedOn::Inserts { missing }) => {
                assert!(book.began.is_some() && config.ratio.is_some());
                assert!(!self.may_draw_after(missing - 1), "{missing} are said to be missing, fewer do");
                assert!(self.may_draw_after(missing), "{missing} are said to be missing, but more are");
                self.check_that_news_can_come();
            }
            Ok(()) => {
                // Nothing below min_size, and no update is owed for what came before the ratio began.
                assert!(book.strangers().is_empty() && book.items() >= config.min_size);
                let (inserts, samples) = book.began.expect("there is enough");
                let samples = (book.samples - samples + config.batch) as f64;
                let inserts = (book.inserts() - inserts) as f64;
                let allowed = config.ratio.map_or(f64::INFINITY, |ratio| ratio * inserts + limiter.slack());
                assert!(samples <= allowed * (1.0 + 1e-9), "{samples} samples, {allowed} allowed");
            }
        }
    }

    /// While the replay fills, no shard is granted more than what is missing and the slack. When the ratio holds, the learner
    /// is at most the slack ahead and the actors may get as far ahead of it: nothing that came before is owed.
    fn check_allowances(&self, config: &Config) {
        let (book, limiter) = (&self.book, config.limiter());
        let Some(ratio) = config.ratio else { return };
        let most = match book.began {
            Some(_) => (2.0 * limiter.slack() / ratio) as u64,
            None => (config.min_size + (limiter.slack() / ratio) as u64).saturating_sub(book.items()),
        };
        for shard in (0..config.shards).filter(|shard| !book.strangers().contains(shard)) {
            let granted =
                self.control.allowance(shard).expect("it was reported").inserts - book.newest(shard).inserts;
            assert!(granted <= most, "{granted} granted at once, {most} are right");
        }
    }

    fn may_draw_after(&self, inserts: u64) -> bool {
        let shard = self.book.reachable().next().expect("some shard holds something");
        let newest = self.book.newest(shard);
        let mut control = self.control.clone();
        control.update_status(shard, ShardCounts { inserts: newest.inserts + inserts, ..newest }.status());
        control.can_sample().is_ok()
    }

    /// A caller that waits for a shard's status has granted it as many inserts.
    fn check_that_news_can_come(&self) {
        for shard in self.book.reachable() {
            let (until, newest) = (self.control.until_inserts(shard), self.book.newest(shard));
            let allowance = self.control.allowance(shard).expect("it was reported");
            assert_eq!(allowance.incarnation, newest.incarnation);
            assert!(newest.inserts < until && until <= allowance.inserts, "{until} {allowance:?} {newest:?}");
        }
    }
}

impl World {
    pub(super) fn learner_turn(&mut self) {
        let Some(learner) = &mut self.learner else { return };
        learner.check_wait(&self.config);
        match self.rng.random_range(0..20) {
            0..6 if learner.ready > 0 => {
                learner.ready -= 1;
                self.updates += 1;
            }
            0..13 => self.draw(),
            13 => self.save_checkpoint(),
            _ => {
                let shard = self.rng.random_range(0..self.config.shards);
                self.poll(shard);
            }
        }
    }

    /// Draws a batch if that is allowed, or asks others for what is owed.
    pub(super) fn draw(&mut self) {
        let Some(learner) = &mut self.learner else { return };
        let masses = learner.control.masses();
        let (batch, count) = match learner.owed.last() {
            Some(_) if masses.is_empty() => return,
            Some(&owed) => {
                learner.owed.pop();
                owed
            }
            None => {
                let in_flight = learner.batches.len() + learner.ready as usize;
                if in_flight >= self.config.prefetch || learner.control.can_sample().is_err() {
                    return;
                }
                assert!(!masses.is_empty(), "there are items, so there is something to draw");
                let (batch, count) = (learner.next_batch, self.config.batch);
                learner.next_batch += 1;
                learner.batches.insert(batch, count);
                learner.control.sampled(count);
                learner.book.samples += count;
                self.samples += count;
                (batch, count)
            }
        };
        let points = masses.draw(count as usize, true, &mut self.rng);
        for shard in 0..self.config.shards {
            let count = points.iter().filter(|point| point.shard == shard).count() as u64;
            if count > 0 {
                self.request(shard, Some((batch, count)));
            }
        }
    }

    /// Requests a shard's counts and grants its allowance.
    pub(super) fn poll(&mut self, shard: usize) {
        let Some(learner) = &mut self.learner else { return };
        if learner.polls[shard] < POLLS_MAX {
            learner.polls[shard] += 1;
            self.request(shard, None);
        }
    }

    fn request(&mut self, shard: usize, part: Part) {
        let learner = self.learner.as_ref().expect("it asks");
        let (allowance, learner) = (learner.control.allowance(shard), learner.incarnation);
        self.wire.push(Message::Request { learner, shard, allowance, part, orphan: false });
    }
}
