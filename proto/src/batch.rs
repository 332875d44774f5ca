//! Sampled items, with their frames still packed.

use bytes::{BufMut, Bytes, BytesMut};
use replay::{Draw, ItemKey, ItemView, KEY_DISTANCE_MAX, LaneKey, Taken};
use value::priority::Priority;

use crate::convert::{Invalid, same, within};
use crate::limits::{POINTS_MAX, SAMPLE_BYTES_MAX};
use crate::{steps, v1};

/// The most bytes that one step or frame takes in a message beside its packed frame, and one item beside its steps.
const STEP_BYTES_MAX: usize = 32;
const ITEM_BYTES_MAX: usize = 96;

/// Builds a batch at the shard. Copies each item once, from the ring into the message.
#[derive(Debug, Default, PartialEq)]
pub struct BatchBuilder {
    batch: v1::Batch,
    steps: v1::Steps,
    flags: BytesMut,
    key_frames: BytesMut,
    frames: BytesMut,
}

impl BatchBuilder {
    /// Reserves memory for `items` items.
    pub fn new(items: usize) -> Self {
        let mut builder = Self::default();
        builder.batch.slots.reserve(items);
        builder.batch.generations.reserve(items);
        builder.batch.probabilities.reserve(items);
        builder.batch.priorities.reserve(items);
        builder.batch.first_steps.reserve(items);
        builder.frames.reserve(items * 2048);
        builder
    }

    /// Whether one more item may exceed the limit of a message.
    pub fn is_full(&self) -> bool {
        let records = ITEM_BYTES_MAX * self.batch.slots.len()
            + STEP_BYTES_MAX * (self.batch.frame_bytes.len() + self.flags.len());
        self.frames.len() + records > SAMPLE_BYTES_MAX - (1 << 20)
    }

    /// Appends an item, with its frames if `frames`.
    pub fn push(&mut self, draw: &Draw, item: &ItemView<'_>, frames: bool) {
        let batch = &mut self.batch;
        let lane = item.lane();
        batch.shard_incarnation = draw.key.incarnation;
        batch.slots.push(draw.key.slot);
        batch.generations.push(draw.key.generation);
        batch.probabilities.push(draw.probability);
        batch.priorities.push(item.priority().get());
        batch.times_sampled.push(draw.times_sampled);
        batch.ages_inserts.push(draw.age_inserts);
        batch.actors.push(lane.actor);
        batch.actor_incarnations.push(lane.incarnation);
        batch.lanes.push(lane.lane);
        batch.first_steps.push(item.first_step());
        batch.lengths.push(item.length() as u32);
        for taken in item.steps() {
            let flags = steps::push(&mut self.steps, Some(taken));
            self.flags.put_u8(flags);
        }
        if !frames {
            batch.frame_counts.push(0);
            batch.leads.push(0);
            return;
        }
        let before = batch.frame_bytes.len();
        for (frame, key) in item.frames() {
            batch.frame_bytes.push(frame.len() as u32);
            self.key_frames.put_u8(key.into());
        }
        batch.frame_counts.push((batch.frame_bytes.len() - before) as u32);
        batch.leads.push(item.lead() as u32);
        item.frame_pieces().for_each(|piece| self.frames.put_slice(piece));
    }

    /// Key, lane and first step of each item.
    pub fn items(&self) -> impl Iterator<Item = (ItemKey, LaneKey, u64)> {
        let v1::Batch { shard_incarnation: incarnation, slots, generations, .. } = &self.batch;
        let keys = slots.iter().zip(generations);
        let keys = keys.map(|(&slot, &generation)| ItemKey { incarnation: *incarnation, slot, generation });
        let v1::Batch { actors, actor_incarnations, lanes, first_steps, .. } = &self.batch;
        let lanes = actors.iter().zip(actor_incarnations).zip(lanes);
        let lanes = lanes.map(|((&actor, &incarnation), &lane)| LaneKey { actor, incarnation, lane });
        keys.zip(lanes).zip(first_steps).map(|((key, lane), &first)| (key, lane, first))
    }

    /// Sets the reliability of each item's target.
    pub fn set_reliabilities(&mut self, reliabilities: Vec<f64>) {
        self.batch.reliabilities = reliabilities;
    }

    pub fn finish(self) -> v1::Batch {
        let flags = self.flags.freeze();
        v1::Batch {
            steps: Some(v1::Steps { flags, ..self.steps }),
            key_frames: self.key_frames.freeze(),
            frames: self.frames.freeze(),
            ..self.batch
        }
    }
}

/// A received batch that was checked, with its frames still packed.
#[derive(Clone, Debug, Default)]
pub struct PackedBatch {
    columns: v1::Batch,
    /// Steps of all items.
    steps: Vec<Taken>,
    /// Where each item begins.
    starts: Vec<Start>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Start {
    step: usize,
    frame: usize,
    byte: usize,
}

/// One item of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchItem<'a> {
    batch: &'a PackedBatch,
    index: usize,
}

impl PackedBatch {
    /// Checks that all columns fit together, that frame counts are possible for `stack` and the item's steps, and that
    /// actions are below `actions`.
    pub fn new(columns: v1::Batch, stack: usize, actions: u16) -> Result<Self, Invalid> {
        let count = columns.slots.len();
        within("items", count, 0, POINTS_MAX)?;
        for (what, got) in [
            ("generations", columns.generations.len()),
            ("probabilities", columns.probabilities.len()),
            ("priorities", columns.priorities.len()),
            ("times_sampled", columns.times_sampled.len()),
            ("ages_inserts", columns.ages_inserts.len()),
            ("actors", columns.actors.len()),
            ("actor_incarnations", columns.actor_incarnations.len()),
            ("lanes", columns.lanes.len()),
            ("first_steps", columns.first_steps.len()),
            ("lengths", columns.lengths.len()),
            ("frame_counts", columns.frame_counts.len()),
            ("leads", columns.leads.len()),
        ] {
            same(what, got, count)?;
        }
        if !columns.reliabilities.is_empty() {
            same("reliabilities", columns.reliabilities.len(), count)?;
        }
        if let Some(outside) = columns.reliabilities.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(Invalid::range("reliability", outside, "from 0 to 1"));
        }
        let mut columns = columns;
        let steps = columns.steps.take().unwrap_or_default();
        let mut starts = Vec::with_capacity(count);
        let mut start = Start::default();
        for index in 0..count {
            starts.push(start);
            start = check(&columns, index, start, stack)?;
        }
        steps::check(&steps, start.step)?;
        same("frame_bytes", columns.frame_bytes.len(), start.frame)?;
        same("key_frames", columns.key_frames.len(), start.frame)?;
        same("frames", columns.frames.len(), start.byte)?;
        let step = |index| steps::taken(&steps, index, actions)?.ok_or(Invalid::Missing("action"));
        let steps = (0..start.step).map(step).collect::<Result<_, _>>()?;
        Ok(Self { columns, steps, starts })
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The items, in the order of the points.
    pub fn items(&self) -> impl ExactSizeIterator<Item = BatchItem<'_>> + Clone {
        (0..self.len()).map(|index| BatchItem { batch: self, index })
    }

    /// The packed frames of all items.
    pub fn frames(&self) -> &Bytes {
        &self.columns.frames
    }
}

/// Checks one item and returns the start of the next one.
fn check(columns: &v1::Batch, index: usize, start: Start, stack: usize) -> Result<Start, Invalid> {
    let length = columns.lengths[index] as usize;
    within("steps of an item", length, 1, usize::from(u8::MAX))?;
    let probability = columns.probabilities[index];
    if !(probability > 0.0 && probability <= 1.0 + 1e-9) {
        return Err(Invalid::range("probability", probability, "above 0, up to 1"));
    }
    let priority = columns.priorities[index];
    Priority::try_new(priority).map_err(|_| Invalid::range("priority", priority, "finite and at least 0"))?;
    let (frames, lead) = (columns.frame_counts[index] as usize, columns.leads[index] as usize);
    if frames > 0 {
        within("leads of an item", lead, 0, KEY_DISTANCE_MAX.into())?;
        within("frames of an item", frames, lead + length + 1, lead + length + stack)?;
    }
    let sizes = columns.frame_bytes.get(start.frame..start.frame + frames);
    let sizes = sizes.ok_or(Invalid::Missing("frame_bytes"))?;
    let bytes: usize = sizes.iter().map(|&size| size as usize).sum();
    Ok(Start { step: start.step + length, frame: start.frame + frames, byte: start.byte + bytes })
}

impl<'a> BatchItem<'a> {
    pub fn draw(&self) -> Draw {
        Draw {
            key: self.key(),
            probability: self.probability(),
            times_sampled: self.times_sampled(),
            age_inserts: self.age_inserts(),
        }
    }

    pub fn key(&self) -> ItemKey {
        let PackedBatch { columns, .. } = self.batch;
        ItemKey {
            incarnation: columns.shard_incarnation,
            slot: columns.slots[self.index],
            generation: columns.generations[self.index],
        }
    }

    /// The exact probability of one draw from its shard.
    pub fn probability(&self) -> f64 {
        self.batch.columns.probabilities[self.index]
    }

    /// The priority last assigned.
    pub fn priority(&self) -> Priority {
        Priority::try_new(self.batch.columns.priorities[self.index]).expect("checked with the batch")
    }

    /// How often the item was sampled, this time included.
    pub fn times_sampled(&self) -> u32 {
        self.batch.columns.times_sampled[self.index]
    }

    /// The reliability of the item's target, if it was requested.
    pub fn reliability(&self) -> Option<f64> {
        self.batch.columns.reliabilities.get(self.index).copied()
    }

    /// Items inserted after this one.
    pub fn age_inserts(&self) -> u64 {
        self.batch.columns.ages_inserts[self.index]
    }

    pub fn lane(&self) -> LaneKey {
        let PackedBatch { columns, .. } = self.batch;
        LaneKey {
            actor: columns.actors[self.index],
            incarnation: columns.actor_incarnations[self.index],
            lane: columns.lanes[self.index],
        }
    }

    /// Number in the lane of the item's first step.
    pub fn first_step(&self) -> u64 {
        self.batch.columns.first_steps[self.index]
    }

    pub fn length(&self) -> usize {
        self.batch.columns.lengths[self.index] as usize
    }

    pub fn steps(&self) -> impl ExactSizeIterator<Item = Taken> + Clone + use<'a> {
        let start = self.batch.starts[self.index].step;
        self.batch.steps[start..start + self.length()].iter().copied()
    }

    /// How many of the first frames serve only to decode the others.
    pub fn lead(&self) -> usize {
        self.batch.columns.leads[self.index] as usize
    }

    /// The packed frames, oldest first, and whether each is a key frame.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = (&'a [u8], bool)> + Clone + use<'a> {
        let (columns, start) = (&self.batch.columns, self.batch.starts[self.index]);
        let numbers = start.frame..start.frame + columns.frame_counts[self.index] as usize;
        Frames { columns, numbers, byte: start.byte }
    }
}

#[derive(Clone)]
struct Frames<'a> {
    columns: &'a v1::Batch,
    numbers: std::ops::Range<usize>,
    byte: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = (&'a [u8], bool);

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.numbers.next()?;
        let end = self.byte + self.columns.frame_bytes[number] as usize;
        let frame = &self.columns.frames[self.byte..end];
        self.byte = end;
        Some((frame, self.columns.key_frames[number] != 0))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl ExactSizeIterator for Frames<'_> {}
