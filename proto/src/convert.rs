//! Converts messages to domain types and back, and checks shapes, ranges and counts.
//!
//! [`crate::batch`] checks batches, [`crate::play`] checks reports. The store checks what depends on its contents:
//! order, references, incarnations.

use bytes::{BufMut, BytesMut};
use replay::codec::Codec;
use replay::{
    Chunk, InitialPriority, ItemKey, LaneKey, NewItem, Step, StoreOptions, TABLES_MAX, TableOptions,
    WeightsVersion,
};
use value::priority::Priority;
use value::registry::UnknownName;

use crate::limits::{CHUNK_ITEMS_MAX, CHUNK_STEPS_MAX, FRAME_BYTES_MAX, PRIORITY_MAX, UPDATES_MAX};
use crate::{steps, v1};

/// Why a message is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A required field is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number outside its range.
    #[error("{what} is {value}, must be {range}")]
    Range {
        what: &'static str,
        value: String,
        /// Describes the valid range.
        range: String,
    },
    /// Columns that belong together differ in length.
    #[error("{what} has {got} entries, but the other columns have {expected}")]
    Columns { what: &'static str, got: usize, expected: usize },
    /// The frames do not match their checksum.
    #[error("the frames are damaged: their checksum does not match; send the chunk again")]
    Checksum,
    /// This build does not know the codec, sampler or remover.
    #[error(transparent)]
    Name(#[from] UnknownName),
}

impl Invalid {
    /// A [`Invalid::Range`].
    pub fn range(what: &'static str, value: impl std::fmt::Display, range: impl Into<String>) -> Self {
        Invalid::Range { what, value: format!("{value}"), range: range.into() }
    }
}

/// What a shard holds, as configured by the learner.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSpec {
    pub options: StoreOptions,
    pub codec: Codec,
    /// Size of the action set.
    pub actions: u16,
}

/// Checks that a message has a caller. The server compares its protocol and run.
pub fn caller(caller: Option<v1::Caller>) -> Result<v1::Caller, Invalid> {
    caller.ok_or(Invalid::Missing("caller"))
}

/// Converts what a shard holds. The store validates the options themselves.
pub fn store(store: v1::Store) -> Result<StoreSpec, Invalid> {
    let actions = u16::try_from(store.actions).ok().filter(|&actions| actions > 0);
    within("tables", store.tables.len(), 1, TABLES_MAX)?;
    within("frame_bytes", store.frame_bytes as usize, 0, FRAME_BYTES_MAX)?;
    let max_length = match store.max_length {
        // Not set: any length that a message can have.
        0 => u8::MAX,
        length => u8::try_from(length).map_err(|_| Invalid::range("max_length", length, "1 to 255"))?,
    };
    let options = StoreOptions {
        bytes_max: usize::try_from(store.bytes_max).unwrap_or(usize::MAX),
        stack: store.stack as usize,
        frame_bytes: store.frame_bytes as usize,
        max_length,
        tables: store.tables.into_iter().map(table).collect::<Result<_, _>>()?,
    };
    let codec = store.codec.parse()?;
    let actions = actions.ok_or_else(|| Invalid::range("actions", store.actions, "1 to 65535"))?;
    Ok(StoreSpec { options, codec, actions })
}

fn table(table: v1::Table) -> Result<TableOptions, Invalid> {
    Ok(TableOptions {
        name: table.name,
        capacity: usize::try_from(table.capacity).unwrap_or(usize::MAX),
        sampler: table.sampler.parse()?,
        remover: table.remover.parse()?,
        max_times_sampled: table.max_times_sampled,
        priority_exponent: table.priority_exponent,
        priority_constant: table.priority_constant,
        first_priority: table.first_priority,
    })
}

/// The inverse of [`store`].
pub fn store_message(spec: &StoreSpec) -> v1::Store {
    let StoreSpec { options, codec, actions } = spec;
    let table = |table: &TableOptions| v1::Table {
        name: table.name.clone(),
        capacity: table.capacity as u64,
        sampler: table.sampler.name().into(),
        remover: table.remover.name().into(),
        max_times_sampled: table.max_times_sampled,
        priority_exponent: table.priority_exponent,
        priority_constant: table.priority_constant,
        first_priority: table.first_priority,
    };
    v1::Store {
        bytes_max: options.bytes_max as u64,
        stack: options.stack as u32,
        frame_bytes: options.frame_bytes as u32,
        codec: codec.name().into(),
        actions: (*actions).into(),
        max_length: options.max_length.into(),
        tables: options.tables.iter().map(table).collect(),
    }
}

/// On the wire, requests the largest priority so far.
const LARGEST: f64 = -1.0;

/// Converts a chunk after checking its counts, ranges and checksum.
pub fn chunk(mut chunk: v1::Chunk, actions: u16) -> Result<Chunk, Invalid> {
    let columns = chunk.steps.take().ok_or(Invalid::Missing("steps"))?;
    let count = columns.flags.len();
    within("steps", count, 1, CHUNK_STEPS_MAX)?;
    within("items", chunk.item_firsts.len(), 0, CHUNK_ITEMS_MAX)?;
    same("frame_bytes", chunk.frame_bytes.len(), count)?;
    steps::check(&columns, count)?;
    if crc32c::crc32c(&chunk.frames) != chunk.frames_crc32c {
        return Err(Invalid::Checksum);
    }
    let step = |index: usize| -> Result<Step, Invalid> {
        let flags = columns.flags[index];
        Ok::<_, Invalid>(Step {
            frame_bytes: chunk.frame_bytes[index],
            key_frame: flags & steps::KEY_FRAME != 0,
            starts_episode: flags & steps::STARTS_EPISODE != 0,
            taken: steps::taken(&columns, index, actions)?,
        })
    };
    Ok(Chunk {
        lane: lane(chunk.lane.ok_or(Invalid::Missing("lane"))?),
        sequence: chunk.sequence,
        first_step: chunk.first_step,
        steps: (0..count).map(step).collect::<Result<_, _>>()?,
        items: items(&chunk)?,
        frames: chunk.frames,
    })
}

fn items(chunk: &v1::Chunk) -> Result<Vec<NewItem>, Invalid> {
    let count = chunk.item_firsts.len();
    same("item_lengths", chunk.item_lengths.len(), count)?;
    same("item_priorities", chunk.item_priorities.len(), count)?;
    if !chunk.item_tables.is_empty() {
        same("item_tables", chunk.item_tables.len(), count)?;
    }
    let item = |index: usize| {
        let given = chunk.item_priorities[index];
        let length = chunk.item_lengths[index];
        if length == 0 {
            return Err(Invalid::range("length", length, "1 to 255"));
        }
        Ok(NewItem {
            first: chunk.item_firsts[index],
            length,
            priority: match given {
                LARGEST => InitialPriority::Largest,
                given => InitialPriority::Of(priority(given)?),
            },
            table: chunk.item_tables.get(index).copied().unwrap_or(0),
        })
    };
    (0..count).map(item).collect()
}

/// The inverse of [`chunk`].
pub fn chunk_message(chunk: Chunk) -> v1::Chunk {
    let mut columns = v1::Steps::default();
    let mut flags = BytesMut::with_capacity(chunk.steps.len());
    for step in &chunk.steps {
        let extra = steps::flag(step.key_frame, steps::KEY_FRAME)
            | steps::flag(step.starts_episode, steps::STARTS_EPISODE);
        flags.put_u8(steps::push(&mut columns, step.taken) | extra);
    }
    columns.flags = flags.freeze();
    let priority = |item: &NewItem| match item.priority {
        InitialPriority::Of(priority) => sent(priority),
        InitialPriority::Largest => LARGEST,
    };
    let several = chunk.items.iter().any(|item| item.table > 0);
    v1::Chunk {
        lane: Some(lane_message(chunk.lane)),
        sequence: chunk.sequence,
        first_step: chunk.first_step,
        steps: Some(columns),
        frame_bytes: chunk.steps.iter().map(|step| step.frame_bytes).collect(),
        frames_crc32c: crc32c::crc32c(&chunk.frames),
        frames: chunk.frames,
        item_firsts: chunk.items.iter().map(|item| item.first).collect(),
        item_lengths: chunk.items.iter().map(|item| item.length).collect(),
        item_priorities: chunk.items.iter().map(priority).collect(),
        item_tables: chunk.items.iter().filter(|_| several).map(|item| item.table).collect(),
    }
}

/// Checks that a priority is not negative and at most [`PRIORITY_MAX`].
pub fn priority(value: f64) -> Result<Priority, Invalid> {
    let range = || Invalid::range("priority", value, format!("from 0 to {PRIORITY_MAX:e}"));
    Priority::try_new(value).ok().filter(|priority| priority.get() <= PRIORITY_MAX).ok_or_else(range)
}

/// A priority as it is sent: one beyond the bound is sent as the bound, because a refused message would lose the others.
fn sent(priority: Priority) -> f64 {
    priority.get().min(PRIORITY_MAX)
}

pub fn version(version: v1::WeightsVersion) -> WeightsVersion {
    WeightsVersion { incarnation: version.incarnation, number: version.number }
}

/// The inverse of [`version`].
pub fn version_message(version: WeightsVersion) -> v1::WeightsVersion {
    v1::WeightsVersion { incarnation: version.incarnation, number: version.number }
}

pub fn lane(lane: v1::LaneKey) -> LaneKey {
    LaneKey { actor: lane.actor, incarnation: lane.incarnation, lane: lane.lane }
}

pub fn lane_message(lane: LaneKey) -> v1::LaneKey {
    v1::LaneKey { actor: lane.actor, incarnation: lane.incarnation, lane: lane.lane }
}

pub fn key(key: v1::ItemKey) -> ItemKey {
    ItemKey { incarnation: key.shard_incarnation, slot: key.slot, generation: key.generation }
}

pub fn key_message(key: ItemKey) -> v1::ItemKey {
    v1::ItemKey { shard_incarnation: key.incarnation, slot: key.slot, generation: key.generation }
}

/// Changes that a learner makes to a table: new priorities, removals, and the largest priority over all shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Updates {
    /// Index of the table.
    pub table: usize,
    pub priorities: Vec<(ItemKey, Priority)>,
    /// Items that the learner could not decode.
    pub removed: Vec<ItemKey>,
    /// The largest priority over all shards, if known.
    pub largest: Option<Priority>,
}

/// Converts all updates, or fails on the first invalid one.
pub fn updates(updates: &v1::Updates) -> Result<Updates, Invalid> {
    let count = updates.priorities.len();
    within("priorities", count, 0, UPDATES_MAX)?;
    within("removed_slots", updates.removed_slots.len(), 0, UPDATES_MAX)?;
    let keys = |slots: &[u32], generations: &[u64]| {
        same("generations", generations.len(), slots.len())?;
        let key = |(&slot, &generation)| ItemKey { incarnation: updates.shard_incarnation, slot, generation };
        Ok::<Vec<ItemKey>, Invalid>(slots.iter().zip(generations).map(key).collect())
    };
    same("slots", updates.slots.len(), count)?;
    let changed = keys(&updates.slots, &updates.generations)?;
    let given = updates.priorities.iter().map(|&value| priority(value));
    let priorities = changed.into_iter().zip(given).map(|(key, priority)| Ok((key, priority?)));
    Ok(Updates {
        table: updates.table as usize,
        priorities: priorities.collect::<Result<_, Invalid>>()?,
        removed: keys(&updates.removed_slots, &updates.removed_generations)?,
        largest: Some(priority(updates.largest_priority)?).filter(|largest| largest.get() > 0.0),
    })
}

/// The inverse of [`updates`], for one incarnation of the shard. Keys of other incarnations are invalid and left out.
pub fn updates_message(updates: &Updates, shard_incarnation: u32) -> v1::Updates {
    let own = |key: &&ItemKey| key.incarnation == shard_incarnation;
    let changed = || updates.priorities.iter().filter(|(key, _)| key.incarnation == shard_incarnation);
    v1::Updates {
        table: updates.table as u32,
        shard_incarnation,
        slots: changed().map(|(key, _)| key.slot).collect(),
        generations: changed().map(|(key, _)| key.generation).collect(),
        priorities: changed().map(|(_, priority)| sent(*priority)).collect(),
        largest_priority: updates.largest.map_or(0.0, sent),
        removed_slots: updates.removed.iter().filter(own).map(|key| key.slot).collect(),
        removed_generations: updates.removed.iter().filter(own).map(|key| key.generation).collect(),
    }
}

pub(crate) fn same(what: &'static str, got: usize, expected: usize) -> Result<(), Invalid> {
    if got == expected { Ok(()) } else { Err(Invalid::Columns { what, got, expected }) }
}

pub(crate) fn within(what: &'static str, count: usize, least: usize, most: usize) -> Result<(), Invalid> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(Invalid::range(what, count, format!("{least} to {most}")))
}

pub(crate) fn finite(what: &'static str, number: f32) -> Result<f32, Invalid> {
    if number.is_finite() { Ok(number) } else { Err(Invalid::range(what, number, "finite")) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use replay::{Remover, Sampler, Taken};

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
        let step = |taken, starts| Step { frame_bytes: 3, key_frame: starts, starts_episode: starts, taken };
        let item = |first, priority, table| NewItem { first, length: 1, priority, table };
        Chunk {
            lane: LaneKey { actor: 1, incarnation: 7, lane: 2 },
            sequence: 5,
            first_step: 40,
            steps: vec![step(Some(taken), true), step(None, false)],
            frames: Bytes::from_static(&[1, 2, 3, 4, 5, 6]),
            items: vec![
                item(40, InitialPriority::Of(priority(0.5).unwrap()), 0),
                item(40, InitialPriority::Largest, 1),
            ],
        }
    }

    #[test]
    fn a_chunk_survives_the_round_trip() {
        assert_eq!(chunk(chunk_message(example()), 4), Ok(example()));
    }

    #[test]
    fn an_invalid_chunk_is_refused_with_the_wrong_field() {
        let refused = |spoil: fn(&mut v1::Chunk)| {
            let mut message = chunk_message(example());
            spoil(&mut message);
            chunk(message, 4).unwrap_err().to_string()
        };
        assert_eq!(refused(|chunk| chunk.lane = None), "lane is missing");
        assert_eq!(refused(|chunk| chunk.steps = None), "steps is missing");
        let none = |chunk: &mut v1::Chunk| chunk.steps = Some(v1::Steps::default());
        assert_eq!(refused(none), "steps is 0, must be 1 to 1024");
        assert_eq!(
            refused(|chunk| chunk.frames_crc32c ^= 1),
            "the frames are damaged: their checksum does not match; send the chunk again"
        );
        let short = |chunk: &mut v1::Chunk| chunk.steps.as_mut().unwrap().rewards.truncate(1);
        assert_eq!(refused(short), "rewards has 1 entries, but the other columns have 2");
        let action = |chunk: &mut v1::Chunk| chunk.steps.as_mut().unwrap().actions[0] = 4;
        assert_eq!(refused(action), "action is 4, must be below 4");
        let reward = |chunk: &mut v1::Chunk| chunk.steps.as_mut().unwrap().rewards[0] = f32::NAN;
        assert_eq!(refused(reward), "reward is NaN, must be finite");
        let length = |chunk: &mut v1::Chunk| chunk.item_lengths = Bytes::from_static(&[0, 1]);
        assert_eq!(refused(length), "length is 0, must be 1 to 255");
        let negative = |chunk: &mut v1::Chunk| chunk.item_priorities[0] = -2.0;
        assert_eq!(refused(negative), "priority is -2, must be from 0 to 1e18");
        assert!(refused(|chunk| chunk.item_firsts = vec![0; 1025]).contains("1025"));
        let tables = |chunk: &mut v1::Chunk| chunk.item_tables = Bytes::from_static(&[0]);
        assert_eq!(refused(tables), "item_tables has 1 entries, but the other columns have 2");
    }

    #[test]
    fn a_priority_beyond_the_bound_is_refused_and_never_sent() {
        let huge = InitialPriority::Of(Priority::try_new(1.7e308).unwrap());
        let mut given = example();
        given.items[0].priority = huge;
        let mut message = chunk_message(given);
        assert_eq!(message.item_priorities[0], PRIORITY_MAX);
        assert!(chunk(message.clone(), 4).is_ok());
        message.item_priorities[0] = 1.7e308;
        assert!(chunk(message, 4).unwrap_err().to_string().contains("must be from 0 to 1e18"));
    }

    #[test]
    fn a_store_survives_the_round_trip() {
        let table = TableOptions {
            name: "main".into(),
            capacity: 1000,
            sampler: Sampler::Proportional,
            remover: Remover::LowestPriority,
            max_times_sampled: 3,
            priority_exponent: 0.6,
            priority_constant: 0.01,
            first_priority: 1.0,
        };
        let options = StoreOptions {
            bytes_max: 1 << 20,
            stack: 4,
            frame_bytes: 7056,
            max_length: 3,
            tables: vec![table],
        };
        let spec = StoreSpec { options, codec: Codec::Zstd, actions: 18 };
        assert_eq!(store(store_message(&spec)), Ok(spec.clone()));
        let unknown = v1::Store { codec: "gzip".into(), ..store_message(&spec) };
        assert!(store(unknown).unwrap_err().to_string().contains("zstd"));
        let none = v1::Store { actions: 0, ..store_message(&spec) };
        assert_eq!(store(none).unwrap_err().to_string(), "actions is 0, must be 1 to 65535");
        let unset = v1::Store { max_length: 0, ..store_message(&spec) };
        assert_eq!(store(unset).unwrap().options.max_length, 255);
        let wrong = v1::Store { max_length: 256, ..store_message(&spec) };
        assert_eq!(store(wrong).unwrap_err().to_string(), "max_length is 256, must be 1 to 255");
        let many = v1::Store { tables: vec![v1::Table::default(); 5], ..store_message(&spec) };
        assert_eq!(store(many).unwrap_err().to_string(), "tables is 5, must be 1 to 4");
    }

    #[test]
    fn updates_survive_the_round_trip_without_those_of_another_incarnation() {
        let key = |incarnation, slot| ItemKey { incarnation, slot, generation: 70 + u64::from(slot) };
        let given = |value| priority(value).unwrap();
        let sent = Updates {
            table: 1,
            priorities: vec![(key(3, 0), given(0.5)), (key(2, 1), given(1.5)), (key(3, 2), given(2.5))],
            removed: vec![key(2, 4), key(3, 5)],
            largest: Some(given(9.0)),
        };
        let got = updates(&updates_message(&sent, 3)).unwrap();
        assert_eq!(got.priorities, [(key(3, 0), given(0.5)), (key(3, 2), given(2.5))]);
        assert_eq!((got.table, got.removed, got.largest), (1, vec![key(3, 5)], Some(given(9.0))));
        let mut bad = updates_message(&sent, 3);
        for beyond in [f64::INFINITY, 1.7e308, PRIORITY_MAX * 1.001] {
            bad.priorities[1] = beyond;
            assert!(updates(&bad).is_err(), "{beyond}");
            let largest = v1::Updates { largest_priority: beyond, ..updates_message(&sent, 3) };
            assert!(updates(&largest).is_err(), "{beyond}");
        }
        bad.priorities.pop();
        assert_eq!(
            updates(&bad).unwrap_err().to_string(),
            "slots has 2 entries, but the other columns have 1"
        );
    }
}
