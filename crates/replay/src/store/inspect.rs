//! Statistics of a table for operators: distributions of priorities, ages and times sampled, and the items of largest
//! priority.

use crate::key::ItemKey;
use crate::store::Store;

/// Counts by powers of two: bucket 0 holds zeros, bucket k numbers from 2^(k-1+least) up to 2^(k+least).
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper bound of each bucket, exclusive. The first bucket is for zeros only.
    pub bounds: Vec<f64>,
    /// Items in each bucket.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// A histogram from `2^least` to `2^most`. Values outside are counted in the outermost buckets.
    fn new(values: impl Iterator<Item = f64>, least: i32, most: i32) -> Self {
        let buckets = (most - least) as usize;
        let mut counts = vec![0; buckets + 1];
        for value in values {
            let bucket = match value {
                0.0 => 0,
                value => (value.log2().floor() as i32 - least).clamp(0, buckets as i32 - 1) as usize + 1,
            };
            counts[bucket] += 1;
        }
        let bounds = std::iter::once(0.0).chain((least + 1..=most).map(|power| 2f64.powi(power))).collect();
        Self { bounds, counts }
    }
}

/// Statistics of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInspection {
    /// Priorities, without constant and exponent.
    pub priorities: Histogram,
    /// Items inserted after an item.
    pub ages: Histogram,
    /// How often items were sampled.
    pub times_sampled: Histogram,
    /// The items of largest priority, the largest first.
    pub top: Vec<ItemKey>,
}

impl Store {
    /// Inspects a table, in time proportional to its items.
    pub fn inspect(&self, table: usize, top: usize) -> TableInspection {
        let of = &self.tables()[table];
        let slots: Vec<u32> = of.by_age().collect();
        let newest = of.next_number;
        let priorities = Histogram::new(slots.iter().map(|&slot| of.priority(slot).get()), -20, 12);
        let ages = Histogram::new(slots.iter().map(|&slot| (newest - 1 - of.number(slot)) as f64), 0, 32);
        let times = Histogram::new(slots.iter().map(|&slot| f64::from(of.times_sampled(slot))), 0, 16);
        let mut best = slots;
        let top = top.min(best.len());
        let by_priority =
            |a: &u32, b: &u32| of.priority(*b).get().total_cmp(&of.priority(*a).get()).then(a.cmp(b));
        if top > 0 && top < best.len() {
            best.select_nth_unstable_by(top - 1, by_priority);
        }
        best.truncate(top);
        best.sort_unstable_by(by_priority);
        let key = |slot: u32| ItemKey { incarnation: self.incarnation(), slot, generation: of.number(slot) };
        TableInspection { priorities, ages, times_sampled: times, top: best.into_iter().map(key).collect() }
    }

    /// The newest items of a table, the newest first.
    #[cfg(test)]
    pub(crate) fn newest(&self, table: usize, count: usize) -> Vec<ItemKey> {
        let of = &self.tables()[table];
        let key = |slot: u32| ItemKey { incarnation: self.incarnation(), slot, generation: of.number(slot) };
        of.by_youth().take(count).map(key).collect()
    }
}
