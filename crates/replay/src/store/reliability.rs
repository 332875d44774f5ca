//! How much of an episode's error is resolved behind an item: by this ReaPER weighs |TD|.
//!
//! A target is as good as the values behind it. While the later transitions of an episode still have large errors, what
//! an earlier one is told to become is not worth much; ReaPER (Pleiss et al., 2025) replays it the more, the smaller the
//! share of the episode's error that lies after it. Nothing is kept for that: the items of an episode lie in the ring in
//! the order of its steps, so the share is read off their priorities when it is asked for.

use crate::key::ItemKey;
use crate::store::Store;
use crate::store::table::Origin;

/// Chunks looked at before and after an item; at 8 steps each they hold the longest Atari game. Of a longer episode the
/// part around the item counts.
const CHUNKS_MAX: usize = 4_096;

impl Store {
    /// 1 less the share of its episode's error that lies after an item, from 0 to 1.
    ///
    /// The error is the sum of the priorities, as they are now, of those items of the same table that began in the same
    /// episode and are still there. 1 if there is none. `None` for an item that has left. Costs a look at every step and
    /// item of the episode.
    pub fn reliability(&self, table: usize, key: ItemKey) -> Option<f64> {
        let items = &self.tables[table];
        let slot = items.find(self.incarnation, key)?;
        let Origin { chunk, at } = items.origin(slot);
        let first = self.log.record(chunk)?.items()[at as usize].first;
        let (start, mut chunk) = self.episode_start(self.log.chunk_of(chunk, first)?, first);
        let (mut later, mut total, mut end) = (0.0, 0.0, u64::MAX);
        for _ in 0..2 * CHUNKS_MAX {
            let Some(record) = self.log.record(chunk) else { break };
            let begins = record.header().first_step;
            // Whatever began in this episode is complete, and so recorded, at most 255 steps after its end.
            if begins > end.saturating_add(u8::MAX.into()) {
                break;
            }
            let steps = (begins..).zip(record.steps());
            let next = steps
                .filter(|(number, step)| *number > first && step.since_start == 0)
                .map(|(at, _)| at)
                .next();
            end = end.min(next.unwrap_or(u64::MAX));
            for item in record.items() {
                let own = usize::from(item.table) == table && (start..end).contains(&item.first);
                if own && items.holds(item.slot, item.number) {
                    let error = items.priority(item.slot).get();
                    total += error;
                    later += if item.first > first { error } else { 0.0 };
                }
            }
            chunk = self.log.entry(chunk).map_or(0, |entry| entry.next);
        }
        Some(if total > 0.0 { (1.0 - later / total).clamp(0.0, 1.0) } else { 1.0 })
    }

    /// Where the episode of a step of this chunk began, as far as it is stored, and in which chunk.
    fn episode_start(&self, chunk: u64, step: u64) -> (u64, u64) {
        let (mut chunk, mut start) = (chunk, step);
        for _ in 0..CHUNKS_MAX {
            let Some(record) = self.log.record(chunk) else { break };
            let begins = record.header().first_step;
            let before = record.steps().iter().take((step + 1).saturating_sub(begins) as usize);
            start = begins;
            if let Some(back) = before.rev().position(|step| step.since_start == 0) {
                start = (begins + record.steps().len() as u64).min(step + 1) - 1 - back as u64;
                break;
            }
            match self.log.entry(chunk).map_or(0, |entry| entry.previous) {
                0 => break,
                previous => chunk = previous,
            }
        }
        (start, chunk)
    }
}
