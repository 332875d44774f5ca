//! Samples items, and undoes draws that were not delivered.

use rand::Rng;

use crate::key::ItemKey;
use crate::outcome::{Draw, SampleError};
use crate::points::random_points;
use crate::store::Store;
use crate::store::item::ItemView;
use crate::store::table::Origin;

impl Store {
    /// Samples `count` items of a table with replacement, by its sampler, at random `points`. Deterministic in the
    /// store and the state of `rng`.
    pub fn sample(
        &mut self,
        table: usize,
        count: usize,
        stratified: bool,
        rng: &mut impl Rng,
    ) -> Result<Vec<Draw>, SampleError> {
        let points: Vec<f64> = random_points(count, stratified, rng).collect();
        let mut draws = Vec::with_capacity(count);
        self.sample_at(table, &points, |draw, _| draws.push(draw))?;
        Ok(draws)
    }

    /// Samples the items of a table at these points, which are fractions of its mass from 0 to 1, and passes each to
    /// `visit`. Afterwards removes an item that has reached `max_times_sampled`. If no items are left, gives fewer
    /// draws than points.
    pub fn sample_at(
        &mut self,
        table: usize,
        points: &[f64],
        mut visit: impl FnMut(Draw, ItemView<'_>),
    ) -> Result<(), SampleError> {
        self.sample_while(table, points, |draw, item| {
            visit(draw, item);
            true
        })
        .map(drop)
    }

    /// Like [`Self::sample_at`], but stops when `take` returns false. Its item and all following ones do not count as
    /// sampled. Returns whether all were taken.
    pub fn sample_while(
        &mut self,
        table: usize,
        points: &[f64],
        mut take: impl FnMut(Draw, ItemView<'_>) -> bool,
    ) -> Result<bool, SampleError> {
        if self.tables[table].is_empty() {
            return Err(SampleError::Empty);
        }
        if !points.is_empty() && self.tables[table].draw(0.0).is_none() {
            return Err(SampleError::NoMass);
        }
        let together = self.tables[table].draw_together(points);
        let mut taken = true;
        for (index, &point) in points.iter().enumerate() {
            let drawn = match &together {
                Some(drawn) => Some(drawn[index]),
                None => self.tables[table].draw(point),
            };
            // Earlier draws may have removed the last item with mass.
            let Some((slot, probability)) = drawn else { break };
            self.prefetch(table, together.as_deref().unwrap_or_default(), index);
            let times_sampled = self.tables[table].times_sampled(slot).saturating_add(1);
            let view = self.view(table, slot);
            let draw = Draw { key: view.key, probability, times_sampled, age_inserts: view.age_inserts };
            taken = take(draw, view);
            if !taken {
                break;
            }
            self.tables[table].count_sampled(slot, times_sampled);
            let most = self.tables[table].options().max_times_sampled;
            self.tables[table].counters.samples += 1;
            if most > 0 && times_sampled >= most {
                self.remove_item(table, slot);
                self.tables[table].counters.used_up += 1;
                self.tables[table].apply_changes();
            }
        }
        self.commit();
        Ok(taken)
    }

    /// Undoes the sample counts of draws that were never delivered, one for each occurrence of a key. Skips items that
    /// are no longer stored: an item removed after `max_times_sampled` stays removed.
    pub fn undo_draws(&mut self, table: usize, keys: impl IntoIterator<Item = ItemKey>) {
        let incarnation = self.incarnation;
        let table = &mut self.tables[table];
        for key in keys {
            let Some(slot) = table.find(incarnation, key) else { continue };
            table.count_sampled(slot, table.times_sampled(slot).saturating_sub(1));
            table.counters.samples = table.counters.samples.saturating_sub(1);
        }
        self.commit();
    }

    /// Prefetches for later draws: first the slot of an item, some draws later its record.
    fn prefetch(&self, table: usize, drawn: &[(u32, f64)], index: usize) {
        let table = &self.tables[table];
        if let Some(&(slot, _)) = drawn.get(index + 16) {
            table.prefetch(slot);
        }
        if let Some(&(slot, _)) = drawn.get(index + 8) {
            let Origin { chunk, at, .. } = table.origin(slot);
            self.log.prefetch(chunk, at);
        }
    }
}
