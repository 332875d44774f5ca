use proto::convert::TableSpec;
use replay::codec::Codec;
use replay::{InitialPriority, LaneKey, NewItem, Sampler, Step, Taken, WeightsVersion};

use super::*;

fn spec() -> TableSpec {
    let options = TableOptions {
        capacity: 100,
        bytes_max: 10_000,
        stack: 2,
        priority_exponent: 1.0,
        priority_constant: 0.0,
        sampler: Sampler::Proportional,
        incarnation: 0,
        first_priority: 1.0,
        frame_bytes: 8,
    };
    TableSpec { options, codec: Codec::None, actions: 2 }
}

fn learner(incarnation: u32) -> Learner {
    Learner { run: "run".into(), incarnation }
}

fn writer() -> Writer {
    let run = "run".into();
    Writer { run, actor: 0, incarnation: 1, codec: Codec::None, frame_bytes: 8, stack: 2 }
}

fn allow(shard_incarnation: u32, inserts: u64) -> Option<Allowance> {
    Some(Allowance { shard_incarnation, inserts })
}

fn shard() -> Shard {
    Shard::new(Identity { id: "a".into(), incarnation: 5 }, 1 << 20)
}

/// One step and the item that it completes.
fn chunk(sequence: u64, priority: f64) -> Chunk {
    let taken = Taken {
        action: 0,
        reward: 0.0,
        terminated: false,
        truncated: false,
        life_lost: false,
        log_probability: 0.0,
        weights: WeightsVersion::default(),
    };
    let step =
        Step { frame: Box::from([sequence as u8; 8]), starts_episode: sequence == 0, taken: Some(taken) };
    let priority = InitialPriority::Of(Priority::try_new(priority).unwrap());
    let item = sequence.checked_sub(1).map(|first| NewItem { first, length: 1, priority });
    let lane = LaneKey { actor: 0, incarnation: 1, lane: 0 };
    Chunk { lane, sequence, first_step: sequence, steps: vec![step], items: item.into_iter().collect() }
}

fn stored(fate: Result<Fate, Refusal>) -> bool {
    match fate.unwrap() {
        Fate::Stored(inserted) => !inserted.duplicate,
        Fate::Held { .. } | Fate::Finished => false,
    }
}

#[test]
fn a_chunk_is_handed_back_until_there_is_allowance() {
    let mut shard = shard();
    assert_eq!(shard.insert(chunk(0, 1.0)), Ok(Fate::Held { chunk: chunk(0, 1.0), allowance: 0 }));
    shard.grant(&learner(1), Some(spec()), allow(5, 2), false).unwrap();
    assert!((0..3).all(|sequence| stored(shard.insert(chunk(sequence, 1.0)))));
    assert!(!shard.standing().has_room());
    assert_eq!(shard.insert(chunk(3, 1.0)), Ok(Fate::Held { chunk: chunk(3, 1.0), allowance: 2 }));
    // A sample request raises it, and can lower it again.
    shard.sample(&learner(1), &[], allow(5, 3)).unwrap();
    assert!(shard.standing().has_room());
    shard.sample(&learner(1), &[], allow(5, 1)).unwrap();
    assert!(!stored(shard.insert(chunk(3, 1.0))));
    // For another life of the shard it means nothing.
    shard.grant(&learner(1), None, allow(4, 100), false).unwrap();
    assert_eq!(shard.standing().inserts_allowed, 1);
    shard.grant(&learner(1), None, allow(5, 100), true).unwrap();
    assert_eq!(shard.insert(chunk(3, 1.0)), Ok(Fate::Finished));
}

#[test]
fn a_shard_that_was_told_nothing_remembers_no_learner() {
    let mut shard = shard();
    let stranger = Learner { run: "other".into(), incarnation: 100 };
    assert_eq!(shard.sample(&stranger, &[0.5], allow(5, 10)), Ok(vec![]));
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    let refused = Refusal::Run { ours: "run".into(), theirs: "other".into() };
    assert_eq!(shard.sample(&stranger, &[0.5], None), Err(refused));
    assert_eq!(shard.standing().inserts_allowed, 0);
    shard.sample(&learner(2), &[], None).unwrap();
    let refused = Refusal::Learner { given: 1, newest: 2 };
    assert_eq!(shard.grant(&learner(1), None, None, true), Err(refused));
    assert!(!shard.standing().finished);
}

#[test]
fn a_writer_is_admitted_by_run_and_shape() {
    let mut shard = shard();
    assert_eq!(shard.admit(&Writer { run: "other".into(), ..writer() }), Ok(None));
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    assert_eq!(shard.admit(&writer()).unwrap().as_deref(), Some(&spec()));
    let refused = |writer: Writer| shard.admit(&writer).unwrap_err().to_string();
    assert!(refused(Writer { run: "other".into(), ..writer() }).contains("run"));
    assert!(refused(Writer { codec: Codec::Lz4, ..writer() }).contains("codec is lz4, the table's none"));
    assert!(refused(Writer { frame_bytes: 9, ..writer() }).contains("frame_bytes is 9"));
    assert!(refused(Writer { stack: 4, ..writer() }).contains("stack is 4"));
}

#[test]
fn items_without_weight_are_not_drawn_and_that_is_no_error() {
    let mut shard = shard();
    shard.grant(&learner(1), Some(spec()), allow(5, 10), false).unwrap();
    assert!((0..2).all(|sequence| stored(shard.insert(chunk(sequence, 0.0)))));
    assert_eq!((shard.standing().items, shard.standing().mass), (1, 0.0));
    assert_eq!(shard.sample(&learner(1), &[0.5], None), Ok(vec![]));
}

#[test]
fn drawn_frames_share_one_piece_of_memory() {
    let mut shard = shard();
    shard.grant(&learner(1), Some(spec()), allow(5, 10), false).unwrap();
    assert!((0..3).all(|sequence| stored(shard.insert(chunk(sequence, 1.0)))));
    let items = shard.sample(&learner(1), &[0.0, 0.9], None).unwrap();
    let frames: Vec<_> = items.iter().flat_map(|item| &item.frames).collect();
    // The first item is at the episode's start; the second has a frame more before it.
    assert_eq!(frames, [&[0u8; 8][..], &[1; 8], &[0; 8], &[1; 8], &[2; 8]]);
    assert!(frames.is_sorted_by(|one, next| one.as_ptr().wrapping_add(8) == next.as_ptr()));
}

#[test]
fn a_table_larger_than_the_limit_is_refused_before_memory_is_taken() {
    let mut shard = shard();
    let mut large = spec();
    large.options.capacity = usize::MAX;
    let bytes = u64::MAX;
    let refused = Refusal::TooMuchMemory { bytes, limit: 1 << 20 };
    assert_eq!(shard.grant(&learner(1), Some(large), None, false), Err(refused));
    assert_eq!(shard.told(), None);
}
