use replay::codec::Codec;
use replay::testing::{LaneBuilder, NOOP, one_step, table};
use replay::{LaneKey, StoreOptions, TableOptions};
use value::priority::Priority;

use super::*;

fn spec() -> StoreSpec {
    let options = StoreOptions {
        bytes_max: 10_000,
        stack: 2,
        frame_bytes: 8,
        max_length: 3,
        tables: vec![table("replay")],
    };
    StoreSpec { options, codec: Codec::None, actions: 2 }
}

fn learner(incarnation: u32) -> LearnerIdentity {
    LearnerIdentity { run: "run".into(), incarnation }
}

fn key() -> TicketKey {
    TicketKey::from_bytes(&[7; 32]).unwrap()
}

fn writer() -> WriterIdentity {
    let run = "run".into();
    WriterIdentity {
        run,
        actor: 0,
        incarnation: 1,
        codec: Codec::None,
        frame_bytes: 8,
        stack: 2,
        shard: String::new(),
        ticket: actor_identity("run", 0, 1).ticket(&key()).into(),
    }
}

/// The memory limit of these tests. Lanes alone may take 16 MiB.
const LIMIT: u64 = 32 << 20;

fn shard() -> Shard {
    Shard::open(StoreBackend::in_memory("a".into()), LIMIT).unwrap()
}

/// A configured shard with this allowance.
fn granted(spec: StoreSpec, inserts: u64) -> Shard {
    let mut shard = shard();
    let allowance = allow(&shard, inserts);
    shard.grant(&learner(1), Some(spec), allowance, false).unwrap();
    shard
}

fn allow(shard: &Shard, inserts: u64) -> Option<Allowance> {
    Some(Allowance { incarnation: shard.status().incarnation, inserts })
}

/// One step and the item that it completes.
fn chunk(sequence: u64, priority: f64) -> Chunk {
    chunk_of(&[sequence as u8; 8], sequence, priority)
}

/// The same, with this frame.
fn chunk_of(frame: &[u8], sequence: u64, priority: f64) -> Chunk {
    let mut lane = LaneBuilder::new(LaneKey { actor: 0, incarnation: 1, lane: 0 }).at(sequence, sequence);
    lane.push(frame, Some(NOOP));
    lane.chunk(lane.completed().map(|first| one_step(first, priority)))
}

fn stored(decision: Result<InsertDecision, Refusal>) -> bool {
    match decision.unwrap() {
        InsertDecision::Stored(inserted) => !inserted.duplicate,
        InsertDecision::Blocked { .. } | InsertDecision::Finished => false,
    }
}

fn draw(shard: &mut Shard, points: &[f64]) -> Result<proto::v1::Batch, Refusal> {
    shard.sample(&learner(1), 0, points, None, None).map(|(batch, _)| batch.finish())
}

#[test]
fn a_chunk_is_handed_back_until_there_is_allowance() {
    let mut shard = shard();
    assert_eq!(
        shard.insert(chunk(0, 1.0)),
        Ok(InsertDecision::Blocked { chunk: chunk(0, 1.0), allowance: 0 })
    );
    shard.grant(&learner(1), Some(spec()), allow(&shard, 2), false).unwrap();
    assert!((0..3).all(|sequence| stored(shard.insert(chunk(sequence, 1.0)))));
    assert!(!shard.status().accepts_inserts());
    assert_eq!(
        shard.insert(chunk(3, 1.0)),
        Ok(InsertDecision::Blocked { chunk: chunk(3, 1.0), allowance: 2 })
    );
    // A sample request raises it, and can lower it again.
    shard.sample(&learner(1), 0, &[], allow(&shard, 3), None).unwrap();
    assert!(shard.status().accepts_inserts());
    shard.sample(&learner(1), 0, &[], allow(&shard, 1), None).unwrap();
    assert!(!stored(shard.insert(chunk(3, 1.0))));
    // An allowance for another incarnation is ignored.
    let other = Allowance { incarnation: shard.status().incarnation ^ 1, inserts: 100 };
    shard.grant(&learner(1), None, Some(other), false).unwrap();
    assert_eq!(shard.status().allowance, 1);
    shard.grant(&learner(1), None, allow(&shard, 100), true).unwrap();
    assert_eq!(shard.insert(chunk(3, 1.0)), Ok(InsertDecision::Finished));
}

#[test]
fn chunks_without_items_use_up_the_allowance() {
    let mut shard = shard();
    shard.grant(&learner(1), Some(spec()), allow(&shard, 1), false).unwrap();
    let bare = |sequence| Chunk { items: vec![], ..chunk(sequence, 1.0) };
    let taken = (0..).take_while(|&sequence| stored(shard.insert(bare(sequence)))).count();
    // Four steps are an insert, and those of 256 items are free.
    assert_eq!(taken, 4 * 257);
    let status = shard.status();
    assert_eq!((status.inserts(), status.inserts_charged(), status.accepts_inserts()), (0, 1, false));
    // The learner grants more from there.
    shard.grant(&learner(1), None, allow(&shard, 2), false).unwrap();
    assert!(stored(shard.insert(bare(taken as u64))));
}

#[test]
fn an_unconfigured_shard_records_no_learner() {
    let mut shard = shard();
    let stranger = LearnerIdentity { run: "other".into(), incarnation: 100 };
    let nothing = Ok((BatchBuilder::default(), Updated::default()));
    assert_eq!(shard.sample(&stranger, 0, &[0.5], allow(&shard, 10), None), nothing);
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    let refused = Refusal::WrongRun { ours: "run".into(), theirs: "other".into() };
    assert_eq!(shard.sample(&stranger, 0, &[0.5], None, None), Err(refused));
    assert_eq!(shard.status().allowance, 0);
    shard.sample(&learner(2), 0, &[], None, None).unwrap();
    let refused = Refusal::LearnerReplaced { given: 1, newest: 2 };
    assert_eq!(shard.grant(&learner(1), None, None, true), Err(refused));
    assert!(!shard.status().finished);
}

#[test]
fn a_writer_is_admitted_by_run_and_shape() {
    let mut shard = shard();
    assert_eq!(shard.admit(&WriterIdentity { run: "other".into(), ..writer() }), Ok(None));
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    assert_eq!(shard.admit(&writer()), Ok(None), "without a key, writers wait");
    shard.set_ticket_key(Some(key())).unwrap();
    assert_eq!(shard.admit(&writer()).unwrap().as_deref(), Some(&spec()));
    let refused = |writer: WriterIdentity| shard.admit(&writer).unwrap_err().to_string();
    assert!(refused(WriterIdentity { run: "other".into(), ..writer() }).contains("run"));
    assert!(
        refused(WriterIdentity { codec: Codec::Zstd, ..writer() })
            .contains("codec is zstd, the store's is none")
    );
    assert!(refused(WriterIdentity { frame_bytes: 9, ..writer() }).contains("frame_bytes is 9"));
    assert!(refused(WriterIdentity { stack: 4, ..writer() }).contains("stack is 4"));
}

#[test]
fn items_without_weight_are_not_sampled_and_cause_no_error() {
    let mut shard = granted(spec(), 10);
    assert!((0..2).all(|sequence| stored(shard.insert(chunk(sequence, 0.0)))));
    let status = shard.status().tables[0];
    assert_eq!((status.items, status.mass), (1, 0.0));
    assert!(draw(&mut shard, &[0.5]).unwrap().slots.is_empty());
}

#[test]
fn sampled_frames_are_contiguous() {
    let mut shard = granted(spec(), 10);
    assert!((0..3).all(|sequence| stored(shard.insert(chunk(sequence, 1.0)))));
    let batch = draw(&mut shard, &[0.0, 0.9]).unwrap();
    // The first item is at the episode's start; the second has a frame more before it.
    assert_eq!(batch.frame_counts, [2, 3]);
    assert_eq!(batch.frame_bytes, [8; 5]);
    assert_eq!(batch.frames, [0, 1, 0, 1, 2].map(|step| [step; 8]).concat());
}

#[test]
fn a_store_larger_than_the_limit_is_refused_before_memory_is_taken() {
    let mut shard = shard();
    let mut large = spec();
    large.options.tables[0].capacity = 1 << 30;
    let too_much = |refused: Result<(), Refusal>| match refused {
        Err(Refusal::TooMuchMemory { bytes, limit }) => assert!(bytes > 1 << 36 && limit == LIMIT),
        other => panic!("{other:?}"),
    };
    too_much(shard.grant(&learner(1), Some(large.clone()), None, false));
    assert_eq!(shard.configuration(), None);
    // It cannot grow so large later either.
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    too_much(shard.grant(&learner(1), Some(large), None, false));
    too_much(shard.configure(&Change { capacity: Some(1 << 30), ..Change::default() }));
    assert_eq!(shard.configuration(), Some(("run", &spec())));
}

#[test]
fn a_refused_call_of_a_newer_learner_does_not_replace_the_one_that_trains() {
    let mut shard = granted(spec(), 10);
    shard.grant(&learner(1), None, None, true).unwrap();
    let before = shard.status();
    let mut other_shape = spec();
    other_shape.options.stack = 1;
    let mut too_large = spec();
    too_large.options.tables[0].capacity = 1 << 30;
    for refused in [other_shape, too_large] {
        assert!(shard.grant(&learner(2), Some(refused), allow(&shard, 99), false).is_err());
        assert_eq!(shard.status(), before, "the run stays finished, and its allowance the same");
    }
    assert!(shard.sample(&learner(2), 1, &[], None, None).is_err());
    let unknown_table = Updates { table: 1, ..Updates::default() };
    assert!(shard.update(&learner(2), &unknown_table).is_err());
    assert_eq!(shard.status(), before);
    shard.grant(&learner(1), Some(spec()), None, false).expect("no newer learner was accepted");
}

#[test]
fn a_refused_change_of_several_tables_changes_none_of_them() {
    let table_of = |name, capacity| TableOptions { capacity, ..table(name) };
    let two = |capacities: [usize; 2]| {
        let tables = vec![table_of("t0", capacities[0]), table_of("t1", capacities[1])];
        StoreSpec { options: StoreOptions { tables, ..spec().options }, ..spec() }
    };
    let mut shard = granted(two([100, 100]), 10);
    let refused = shard.grant(&learner(1), Some(two([200, 4_000_000_000])), allow(&shard, 99), false);
    assert!(matches!(refused, Err(Refusal::TooMuchMemory { .. })), "{refused:?}");
    let capacities =
        |shard: &Shard| shard.status().tables.iter().map(|table| table.capacity).collect::<Vec<_>>();
    assert_eq!(capacities(&shard), [100, 100]);
    assert_eq!(shard.configuration(), Some(("run", &two([100, 100]))));
    shard.grant(&learner(1), Some(two([200, 50])), None, false).unwrap();
    assert_eq!(capacities(&shard), [200, 50]);
    assert_eq!(shard.configuration(), Some(("run", &two([200, 50]))));
}

#[test]
fn a_request_for_an_unknown_table_changes_nothing() {
    let mut shard = granted(spec(), 10);
    assert!((0..2).all(|sequence| stored(shard.insert(chunk(sequence, 1.0)))));
    let drawn = draw(&mut shard, &[0.5]).unwrap();
    let before = shard.status();
    let key =
        ItemKey { incarnation: before.incarnation, slot: drawn.slots[0], generation: drawn.generations[0] };
    let priorities = vec![(key, Priority::try_new(7.0).unwrap())];
    let good = Updates { priorities, ..Updates::default() };
    let bad = Updates { table: 1, ..good.clone() };
    for (table, updates) in [(1, &good), (0, &bad)] {
        let refused = shard.sample(&learner(1), table, &[0.5], allow(&shard, 99), Some(updates));
        assert_eq!(refused, Err(Refusal::NoSuchTable("number 1".into())));
    }
    assert_eq!(shard.update(&learner(1), &bad), Err(Refusal::NoSuchTable("number 1".into())));
    assert_eq!(shard.status(), before);
}

/// A batch of this many items of large frames is more than a reply may be.
const LARGE: usize = 100;

/// A shard with one item of two frames of 2 MiB each.
fn large(max_times_sampled: u32) -> Shard {
    const FRAME_BYTES: usize = 2 << 20;
    let tables = vec![TableOptions { max_times_sampled, ..table("replay") }];
    let options =
        StoreOptions { bytes_max: 8 << 20, stack: 1, frame_bytes: FRAME_BYTES, max_length: 255, tables };
    let mut shard = granted(StoreSpec { options, ..spec() }, 100);
    for sequence in 0..2 {
        assert!(stored(shard.insert(chunk_of(&vec![0; FRAME_BYTES], sequence, 1.0))));
    }
    shard
}

#[test]
fn a_reply_that_is_too_large_counts_no_draws() {
    let mut shard = large(0);
    assert!(matches!(draw(&mut shard, &[0.5; LARGE]), Err(Refusal::LargeReply { .. })));
    assert_eq!(shard.status().tables[0].counters.samples, 0);
    assert_eq!(draw(&mut shard, &[0.5]).unwrap().times_sampled, [1]);
    assert_eq!(shard.status().tables[0].counters.samples, 1);
}

#[test]
fn a_sample_whose_reply_is_too_large_applies_its_updates_and_can_be_retried_with_them() {
    let mut shard = large(0);
    let drawn = draw(&mut shard, &[0.5]).unwrap();
    let incarnation = shard.status().incarnation;
    let key = ItemKey { incarnation, slot: drawn.slots[0], generation: drawn.generations[0] };
    let priorities = vec![(key, Priority::try_new(7.0).unwrap())];
    let updates = Updates { priorities, ..Updates::default() };
    let allowance = allow(&shard, 50);
    let refused = shard.sample(&learner(1), 0, &[0.5; LARGE], allowance, Some(&updates));
    assert!(matches!(refused, Err(Refusal::LargeReply { .. })));
    let after = shard.status();
    assert_eq!((after.allowance, after.tables[0].mass, after.tables[0].counters.samples), (50, 7.0, 1));
    let (batch, updated) = shard.sample(&learner(1), 0, &[0.5], allowance, Some(&updates)).unwrap();
    assert_eq!((batch.finish().priorities, updated), (vec![7.0], Updated { applied: 1, stale: 0 }));
    assert_eq!((shard.status().allowance, shard.status().tables[0].mass), (50, 7.0));
}

#[test]
fn a_table_that_removes_sampled_items_returns_as_many_as_fit() {
    let mut shard = large(LARGE as u32);
    let first = draw(&mut shard, &[0.5; LARGE]).unwrap().slots.len();
    assert!((1..LARGE).contains(&first), "{first}");
    let second = draw(&mut shard, &[0.5; LARGE]).unwrap().slots.len();
    assert_eq!(first + second, LARGE, "none is lost");
    let status = &shard.status().tables[0];
    assert_eq!((status.counters.samples, status.items), (LARGE as u64, 0));
}

/// A shard with files, and where its manifest is written. A directory in that place fails every write, as a full disk does.
fn durable(folder: &std::path::Path) -> (Shard, std::path::PathBuf) {
    let shard = Shard::open(StoreBackend::lock_directory(folder).unwrap(), u64::MAX).unwrap();
    (shard, folder.join("slot-0/shard.json.new"))
}

#[test]
fn a_grant_that_cannot_be_persisted_changes_nothing_however_often_it_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let (mut shard, manifest) = durable(folder.path());
    shard.grant(&learner(1), Some(spec()), allow(&shard, 10), false).unwrap();
    let capacity = |shard: &Shard| shard.status().tables[0].capacity;
    let before = shard.status();
    let mut changed = spec();
    changed.options.tables[0].capacity *= 2;
    changed.options.tables[0].priority_exponent = 0.25;
    std::fs::create_dir(&manifest).unwrap();
    for _ in 0..3 {
        let refused = shard.grant(&learner(2), Some(changed.clone()), allow(&shard, 99), true).unwrap_err();
        assert_eq!(refused.status().code(), tonic::Code::Unavailable, "the learner retries");
        assert!(matches!(refused, Refusal::NotPersisted { .. }), "{refused}");
        // A newer learner that only samples is refused as well.
        assert!(shard.sample(&learner(2), 0, &[], allow(&shard, 99), None).is_err());
        // An operator's change too.
        let change = Change { capacity: Some(before.tables[0].capacity as usize * 2), ..Change::default() };
        assert!(shard.configure(&change).is_err());
        assert_eq!(shard.status(), before);
        assert_eq!(shard.configuration(), Some(("run", &spec())));
        // The older learner is still the newest.
        shard.sample(&learner(1), 0, &[], None, None).unwrap();
    }
    drop(shard);
    // Nor did it after a restart.
    std::fs::remove_dir(&manifest).unwrap();
    let (mut shard, _) = durable(folder.path());
    assert_eq!(capacity(&shard), before.tables[0].capacity);
    shard.grant(&learner(1), Some(spec()), None, false).unwrap();
    // There is space again: all of it takes effect, and stays.
    shard.grant(&learner(2), Some(changed.clone()), None, true).unwrap();
    drop(shard);
    let (mut shard, _) = durable(folder.path());
    assert!(shard.status().finished);
    assert_eq!(shard.configuration(), Some(("run", &changed)));
    let replaced = Refusal::LearnerReplaced { given: 1, newest: 2 };
    assert_eq!(shard.sample(&learner(1), 0, &[], None, None), Err(replaced));
}
