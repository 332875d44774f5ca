//! How much of an episode's error is resolved behind an item: by this ReaPER weighs |TD|.
//!
//! A target is as good as the values behind it. While the later transitions of an episode still have large errors, what
//! an earlier one is told to become is not worth much; ReaPER (Pleiss et al., 2025) replays it the more, the smaller the
//! share of the episode's error that lies after it. Nothing is kept for that: the items of an episode lie in the ring in
//! the order of its steps, so their errors are read off their priorities when someone asks.

use std::ops::Range;

use crate::LaneKey;
use crate::key::ItemKey;
use crate::store::Store;
use crate::store::table::Origin;

/// Steps looked at before and after an item: the longest Atari game has 27,000. Of a longer episode the part around the
/// item counts.
const STEPS_MAX: u64 = 32_768;

/// The errors of one episode's items, as they were when it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    lane: LaneKey,
    steps: Range<u64>,
    /// First step of each item, in order, with the sum of its error and all later ones.
    errors: Vec<(u64, f64)>,
}

impl Episode {
    /// Whether an item of this lane that begins at this step is one of the episode.
    pub fn holds(&self, lane: LaneKey, first: u64) -> bool {
        self.lane == lane && self.steps.contains(&first)
    }

    /// 1 less the share of the episode's error that lies after the items that begin at a step, from 0 to 1. 1 if there is
    /// no error at all.
    pub fn reliability(&self, first: u64) -> f64 {
        let after = self.errors.partition_point(|(begin, _)| *begin <= first);
        let sum = |at: usize| self.errors.get(at).map_or(0.0, |(_, sum)| *sum);
        if sum(0) > 0.0 { (1.0 - sum(after) / sum(0)).clamp(0.0, 1.0) } else { 1.0 }
    }
}

impl Store {
    /// The episode in which an item began, as far as it is stored. `None` for an item that has left.
    ///
    /// Its errors are the priorities, as they are now, of those items of the same table that began in it and are still
    /// there. Costs a look at every step and item of the episode.
    pub fn episode(&self, table: usize, key: ItemKey) -> Option<Episode> {
        let items = &self.tables[table];
        let slot = items.find(self.incarnation, key)?;
        let Origin { chunk, at } = items.origin(slot);
        let record = self.log.record(chunk)?;
        let (first, lane) = (record.items()[at as usize].first, record.lane());
        let (start, mut chunk) = self.episode_start(self.log.chunk_of(chunk, first)?, first);
        let (mut errors, mut end) = (Vec::new(), first.saturating_add(STEPS_MAX));
        while let Some(record) = self.log.record(chunk) {
            let begins = record.header().first_step;
            // Whatever began in this episode is complete, and so recorded, at most 255 steps after its end.
            if begins > end.saturating_add(u8::MAX.into()) {
                break;
            }
            let steps = (begins..).zip(record.steps());
            let mut later = steps.filter(|(number, step)| *number > first && step.since_start == 0);
            end = end.min(later.next().map_or(u64::MAX, |(number, _)| number));
            for item in record.items() {
                let own = usize::from(item.table) == table && item.first >= start;
                if own && items.holds(item.slot, item.number) {
                    errors.push((item.first, items.priority(item.slot).get()));
                }
            }
            chunk = self.log.entry(chunk).map_or(0, |entry| entry.next);
        }
        errors.retain(|(first, _)| *first < end);
        errors.sort_by_key(|(first, _)| *first);
        let mut sum = 0.0;
        for (_, error) in errors.iter_mut().rev() {
            sum += *error;
            *error = sum;
        }
        Some(Episode { lane, steps: start..end, errors })
    }

    /// Where the episode of a step of this chunk began, as far as it is stored, and in which chunk.
    fn episode_start(&self, chunk: u64, step: u64) -> (u64, u64) {
        let (mut chunk, mut start) = (chunk, step);
        while let Some(record) = self.log.record(chunk) {
            let begins = record.header().first_step;
            let before = record.steps().iter().take((step + 1).saturating_sub(begins) as usize);
            start = begins;
            if let Some(back) = before.rev().position(|step| step.since_start == 0) {
                start = (begins + record.steps().len() as u64).min(step + 1) - 1 - back as u64;
                break;
            }
            match self.log.entry(chunk).map_or(0, |entry| entry.previous) {
                0 => break,
                _ if step - start >= STEPS_MAX => break,
                previous => chunk = previous,
            }
        }
        (start, chunk)
    }
}
