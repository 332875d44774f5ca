//! The reliability of an item's target, by which ReaPER weights |TD|: 1 minus the share of its episode's error that
//! lies after the item.
//!
//! A target is only as good as the values it is bootstrapped from. While later transitions of an episode have large
//! errors, the target of an earlier one cannot be trusted. ReaPER (Pleiss et al., 2025) replays a transition more often
//! the smaller the share of the episode's error after it. This needs no extra state: the items of an episode are in the
//! ring in the order of its steps, so their errors are read from their priorities on request.

use std::ops::Range;

use crate::LaneKey;
use crate::key::ItemKey;
use crate::store::Store;
use crate::store::table::Origin;

/// The most steps scanned before and after an item. The longest Atari game has 27,000. Of a longer episode only the
/// part around the item counts.
const STEPS_MAX: u64 = 32_768;

/// The errors of one episode's items at the time of the scan.
#[derive(Clone, Debug, PartialEq)]
pub struct EpisodeErrors {
    lane: LaneKey,
    steps: Range<u64>,
    /// For each item, in order: its first step, and the sum of its error and all later ones.
    errors: Vec<(u64, f64)>,
}

impl EpisodeErrors {
    /// Whether the episode contains an item of this lane that starts at this step.
    pub fn holds(&self, lane: LaneKey, first: u64) -> bool {
        self.lane == lane && self.steps.contains(&first)
    }

    /// 1 minus the share of the episode's error after the items that start at this step. 1 if the total error is 0.
    pub fn reliability(&self, first: u64) -> f64 {
        let after = self.errors.partition_point(|(begin, _)| *begin <= first);
        let sum = |at: usize| self.errors.get(at).map_or(0.0, |(_, sum)| *sum);
        if sum(0) > 0.0 { (1.0 - sum(after) / sum(0)).clamp(0.0, 1.0) } else { 1.0 }
    }
}

impl Store {
    /// The errors of the episode in which an item starts, as far as it is stored. `None` if the item is no longer
    /// stored.
    ///
    /// The errors are the current priorities of the stored items of the same table that start in the episode. Scans
    /// every step and item of the episode.
    pub fn episode(&self, table: usize, key: ItemKey) -> Option<EpisodeErrors> {
        let items = &self.tables[table];
        let slot = items.find(self.incarnation, key)?;
        let Origin { chunk, at, .. } = items.origin(slot);
        let record = self.log.record(chunk)?;
        let (first, lane) = (record.items()[at as usize].first, record.lane());
        let (start, mut chunk) = self.episode_start(self.log.chunk_of(chunk, first)?, first);
        let (mut errors, mut end) = (Vec::new(), first.saturating_add(STEPS_MAX));
        while let Some(record) = self.log.record(chunk) {
            let begins = record.header().first_step;
            // An item has at most 255 steps, so later chunks contain no items that start in this episode.
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
        Some(EpisodeErrors { lane, steps: start..end, errors })
    }

    /// The first stored step of the episode of a step in this chunk, and the chunk that contains it.
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
