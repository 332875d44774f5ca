//! Messages to domain types and back; every rejection is here.
//!
//! What depends on what is stored (order, references, incarnations) is the table's business. Here it is shapes, ranges
//! and counts.

use bytes::Bytes;
use replay::codec::Codec;
use replay::{
    Chunk, Counters, InitialPriority, ItemKey, LaneKey, NewItem, Sampler, Step, TableOptions, Taken,
    WeightsVersion,
};
use value::priority::Priority;

use crate::limits::{CHUNK_ITEMS_MAX, CHUNK_STEPS_MAX};
use crate::v1;

/// What a message has that it must not have, or lacks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A part that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number outside its range.
    #[error("{what} is {value}, must be {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        range: String,
    },
    /// A frame does not have the checksum that it came with.
    #[error("frame of step {step} is damaged: its checksum differs")]
    Checksum {
        /// Number of the step in its lane.
        step: u64,
    },
    /// A packing that this build does not know.
    #[error("{0}")]
    Codec(String),
}

impl Invalid {
    /// A number outside its range.
    pub fn range(what: &'static str, value: impl std::fmt::Display, range: impl Into<String>) -> Self {
        Invalid::Range { what, value: format!("{value}"), range: range.into() }
    }
}

/// What a shard holds, as the learner says it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The table; its incarnation is the shard's own business and 0 here.
    pub options: TableOptions,
    /// How frames are packed.
    pub codec: Codec,
    /// Number of actions.
    pub actions: u16,
}

/// Checks that a caller speaks this protocol; the run is the server's to compare.
pub fn caller(caller: Option<v1::Caller>) -> Result<v1::Caller, Invalid> {
    caller.ok_or(Invalid::Missing("caller"))
}

/// What a shard shall hold. Whether the table accepts these options is for the table to say.
pub fn table(table: &v1::Table) -> Result<TableSpec, Invalid> {
    let actions = u16::try_from(table.actions).ok().filter(|&actions| actions > 0);
    let options = TableOptions {
        capacity: usize::try_from(table.capacity).unwrap_or(usize::MAX),
        bytes_max: usize::try_from(table.bytes_max).unwrap_or(usize::MAX),
        stack: table.stack as usize,
        priority_exponent: table.priority_exponent,
        priority_constant: table.priority_constant,
        sampler: if table.uniform { Sampler::Uniform } else { Sampler::Proportional },
        incarnation: 0,
        first_priority: table.first_priority,
        frame_bytes: table.frame_bytes as usize,
    };
    let codec = table
        .codec
        .parse()
        .map_err(|unknown: replay::codec::UnknownCodec| Invalid::Codec(unknown.to_string()))?;
    let actions = actions.ok_or_else(|| Invalid::range("actions", table.actions, "1 to 65535"))?;
    Ok(TableSpec { options, codec, actions })
}

/// [`table`] back.
pub fn table_message(spec: &TableSpec) -> v1::Table {
    let TableSpec { options, codec, actions } = spec;
    v1::Table {
        capacity: options.capacity as u64,
        bytes_max: options.bytes_max as u64,
        stack: options.stack as u32,
        frame_bytes: options.frame_bytes as u32,
        codec: codec.name().into(),
        actions: (*actions).into(),
        uniform: options.sampler == Sampler::Uniform,
        priority_exponent: options.priority_exponent,
        priority_constant: options.priority_constant,
        first_priority: options.first_priority,
    }
}

/// A chunk, with counts, ranges and checksums checked.
pub fn chunk(chunk: v1::Chunk, actions: u16) -> Result<Chunk, Invalid> {
    within("steps", chunk.steps.len(), 1, CHUNK_STEPS_MAX)?;
    within("items", chunk.items.len(), 0, CHUNK_ITEMS_MAX)?;
    let lane = lane(chunk.lane.ok_or(Invalid::Missing("lane"))?);
    let numbers = chunk.first_step..;
    let steps = numbers.zip(chunk.steps).map(|(number, new)| step(number, &new, actions));
    let steps = steps.collect::<Result<_, _>>()?;
    let items = chunk.items.into_iter().map(new_item).collect::<Result<_, _>>()?;
    Ok(Chunk { lane, sequence: chunk.sequence, first_step: chunk.first_step, steps, items })
}

/// [`chunk`] back.
pub fn chunk_message(chunk: Chunk) -> v1::Chunk {
    let step = |step: Step| v1::Step {
        frame_crc32c: crc32c::crc32c(&step.frame),
        frame: Bytes::from(step.frame),
        starts_episode: step.starts_episode,
        taken: step.taken.map(taken_message),
    };
    let item = |item: NewItem| v1::NewItem {
        first: item.first,
        length: item.length.into(),
        priority: Some(match item.priority {
            InitialPriority::Of(priority) => v1::new_item::Priority::Of(priority.get()),
            InitialPriority::Largest => v1::new_item::Priority::Largest(true),
        }),
    };
    v1::Chunk {
        lane: Some(lane_message(chunk.lane)),
        sequence: chunk.sequence,
        first_step: chunk.first_step,
        steps: chunk.steps.into_iter().map(step).collect(),
        items: chunk.items.into_iter().map(item).collect(),
    }
}

fn step(number: u64, step: &v1::Step, actions: u16) -> Result<Step, Invalid> {
    if crc32c::crc32c(&step.frame) != step.frame_crc32c {
        return Err(Invalid::Checksum { step: number });
    }
    let taken = step.taken.map(|message| taken(message, actions)).transpose()?;
    Ok(Step { frame: Box::from(&step.frame[..]), starts_episode: step.starts_episode, taken })
}

/// What was done at a step, by one of `actions` actions.
pub fn taken(taken: v1::Taken, actions: u16) -> Result<Taken, Invalid> {
    let action = u16::try_from(taken.action).ok().filter(|&action| action < actions);
    Ok(Taken {
        action: action.ok_or_else(|| Invalid::range("action", taken.action, format!("below {actions}")))?,
        reward: finite("reward", taken.reward)?,
        terminated: taken.terminated,
        truncated: taken.truncated,
        life_lost: taken.life_lost,
        log_probability: finite("log_probability", taken.log_probability)?,
        weights: version(taken.weights.ok_or(Invalid::Missing("weights"))?),
    })
}

/// [`taken`] back.
pub fn taken_message(taken: Taken) -> v1::Taken {
    v1::Taken {
        action: taken.action.into(),
        reward: taken.reward,
        terminated: taken.terminated,
        truncated: taken.truncated,
        life_lost: taken.life_lost,
        log_probability: taken.log_probability,
        weights: Some(version_message(taken.weights)),
    }
}

fn new_item(item: v1::NewItem) -> Result<NewItem, Invalid> {
    let length = u8::try_from(item.length).ok().filter(|&length| length > 0);
    Ok(NewItem {
        first: item.first,
        length: length.ok_or_else(|| Invalid::range("length", item.length, "1 to 255"))?,
        priority: match item.priority.ok_or(Invalid::Missing("priority"))? {
            v1::new_item::Priority::Of(value) => InitialPriority::Of(priority(value)?),
            v1::new_item::Priority::Largest(true) => InitialPriority::Largest,
            v1::new_item::Priority::Largest(false) => {
                return Err(Invalid::range("largest", false, "true, or of is given"));
            }
        },
    })
}

/// A priority: finite, and not negative.
pub fn priority(value: f64) -> Result<Priority, Invalid> {
    Priority::try_new(value).map_err(|_| Invalid::range("priority", value, "finite and at least 0"))
}

/// Which weights.
pub fn version(version: v1::WeightsVersion) -> WeightsVersion {
    WeightsVersion { incarnation: version.incarnation, number: version.number }
}

/// [`version`] back.
pub fn version_message(version: WeightsVersion) -> v1::WeightsVersion {
    v1::WeightsVersion { incarnation: version.incarnation, number: version.number }
}

/// Which lane.
pub fn lane(lane: v1::LaneKey) -> LaneKey {
    LaneKey { actor: lane.actor, incarnation: lane.incarnation, lane: lane.lane }
}

/// [`lane`] back.
pub fn lane_message(lane: LaneKey) -> v1::LaneKey {
    v1::LaneKey { actor: lane.actor, incarnation: lane.incarnation, lane: lane.lane }
}

/// Which item.
pub fn key(key: v1::ItemKey) -> ItemKey {
    ItemKey { incarnation: key.shard_incarnation, slot: key.slot, generation: key.generation }
}

/// [`key`] back.
pub fn key_message(key: ItemKey) -> v1::ItemKey {
    v1::ItemKey { shard_incarnation: key.incarnation, slot: key.slot, generation: key.generation }
}

/// New priorities: all of them, or the first thing wrong.
pub fn updates(updates: Vec<v1::PriorityUpdate>) -> Result<Vec<(ItemKey, Priority)>, Invalid> {
    let update = |update: v1::PriorityUpdate| {
        Ok((key(update.key.ok_or(Invalid::Missing("key"))?), priority(update.priority)?))
    };
    updates.into_iter().map(update).collect()
}

/// [`updates`] back.
pub fn updates_message(updates: &[(ItemKey, Priority)]) -> Vec<v1::PriorityUpdate> {
    let message = |&(key, priority): &(ItemKey, Priority)| v1::PriorityUpdate {
        key: Some(key_message(key)),
        priority: priority.get(),
    };
    updates.iter().map(message).collect()
}

/// Totals.
pub fn counters_message(counters: Counters) -> v1::Counters {
    v1::Counters {
        chunks: counters.chunks,
        duplicate_chunks: counters.duplicate_chunks,
        lost_chunks: counters.lost_chunks,
        steps: counters.steps,
        actions: counters.actions,
        inserts: counters.inserts,
        items_without_frames: counters.items_without_frames,
        evicted: counters.evicted,
        reclaimed_items: counters.reclaimed_items,
        samples: counters.samples,
        updates: counters.updates,
        stale_updates: counters.stale_updates,
        removed_items: counters.removed_items,
    }
}

/// A transition that a shard drew, its frames still packed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its name.
    pub key: ItemKey,
    /// The exact probability of one draw from its shard.
    pub probability: f64,
    /// As it was last given.
    pub priority: Priority,
    /// How often it was drawn, this time included.
    pub times_sampled: u32,
    /// Items inserted after it.
    pub age_inserts: u64,
    /// Where it came from.
    pub lane: LaneKey,
    /// Number in its lane of its first step.
    pub first_step: u64,
    /// What was done.
    pub steps: Vec<Taken>,
    /// Distinct frames, oldest first: at least one before each step's successor.
    pub frames: Vec<Bytes>,
}

/// A drawn transition, checked: as many frames as `stack` and its steps can need, by one of `actions` actions.
pub fn sampled(item: v1::Item, stack: usize, actions: u16) -> Result<Sampled, Invalid> {
    within("steps of an item", item.steps.len(), 1, usize::from(u8::MAX))?;
    within("frames of an item", item.frames.len(), item.steps.len() + 1, item.steps.len() + stack)?;
    let probability = Some(item.probability).filter(|&p| p > 0.0 && p <= 1.0 + 1e-9);
    Ok(Sampled {
        key: key(item.key.ok_or(Invalid::Missing("key"))?),
        probability: probability
            .ok_or_else(|| Invalid::range("probability", item.probability, "above 0, up to 1"))?,
        priority: priority(item.priority)?,
        times_sampled: item.times_sampled,
        age_inserts: item.age_inserts,
        lane: lane(item.lane.ok_or(Invalid::Missing("lane"))?),
        first_step: item.first_step,
        steps: item.steps.into_iter().map(|step| taken(step, actions)).collect::<Result<_, _>>()?,
        frames: item.frames,
    })
}

fn within(what: &'static str, count: usize, least: usize, most: usize) -> Result<(), Invalid> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(Invalid::range(what, count, format!("{least} to {most}")))
}

fn finite(what: &'static str, number: f32) -> Result<f32, Invalid> {
    if number.is_finite() { Ok(number) } else { Err(Invalid::range(what, number, "finite")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Chunk {
        let weights = WeightsVersion { incarnation: 2, number: 9 };
        let taken = Taken {
            action: 3,
            reward: -1.5,
            terminated: true,
            truncated: false,
            life_lost: true,
            log_probability: -0.25,
            weights,
        };
        let step = |taken, starts_episode| Step { frame: Box::from([1u8, 2, 3]), starts_episode, taken };
        let item = |first, priority| NewItem { first, length: 1, priority };
        Chunk {
            lane: LaneKey { actor: 1, incarnation: 7, lane: 2 },
            sequence: 5,
            first_step: 40,
            steps: vec![step(Some(taken), true), step(None, false)],
            items: vec![
                item(40, InitialPriority::Of(priority(0.5).unwrap())),
                item(40, InitialPriority::Largest),
            ],
        }
    }

    #[test]
    fn a_chunk_comes_back_as_it_went() {
        assert_eq!(chunk(chunk_message(example()), 4), Ok(example()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |spoil: fn(&mut v1::Chunk)| {
            let mut message = chunk_message(example());
            spoil(&mut message);
            chunk(message, 4).unwrap_err().to_string()
        };
        assert_eq!(refused(|chunk| chunk.lane = None), "lane is missing");
        assert_eq!(refused(|chunk| chunk.steps.clear()), "steps is 0, must be 1 to 1024");
        assert_eq!(
            refused(|chunk| chunk.steps[1].frame_crc32c ^= 1),
            "frame of step 41 is damaged: its checksum differs"
        );
        assert_eq!(
            refused(|chunk| chunk.steps[0].taken.as_mut().unwrap().action = 4),
            "action is 4, must be below 4"
        );
        assert_eq!(
            refused(|chunk| chunk.steps[0].taken.as_mut().unwrap().reward = f32::NAN),
            "reward is NaN, must be finite"
        );
        assert_eq!(refused(|chunk| chunk.items[0].length = 0), "length is 0, must be 1 to 255");
        assert_eq!(refused(|chunk| chunk.items[0].priority = None), "priority is missing");
        let negative = Some(v1::new_item::Priority::Of(-1.0));
        let mut message = chunk_message(example());
        message.items[0].priority = negative;
        assert_eq!(
            chunk(message, 4).unwrap_err().to_string(),
            "priority is -1, must be finite and at least 0"
        );
        assert!(refused(|chunk| chunk.items = vec![v1::NewItem::default(); 1025]).contains("1025"));
    }

    #[test]
    fn a_table_comes_back_as_it_went() {
        let spec = TableSpec {
            options: TableOptions {
                capacity: 1000,
                bytes_max: 1 << 20,
                stack: 4,
                priority_exponent: 0.6,
                priority_constant: 0.01,
                sampler: Sampler::Proportional,
                incarnation: 0,
                first_priority: 1.0,
                frame_bytes: 7056,
            },
            codec: Codec::Zstd,
            actions: 18,
        };
        assert_eq!(table(&table_message(&spec)), Ok(spec.clone()));
        let unknown = v1::Table { codec: "gzip".into(), ..table_message(&spec) };
        assert!(table(&unknown).unwrap_err().to_string().contains("zstd"));
        let none = v1::Table { actions: 0, ..table_message(&spec) };
        assert_eq!(table(&none).unwrap_err().to_string(), "actions is 0, must be 1 to 65535");
    }
}
