//! Broken and hostile clients: each is refused with the right status and counted, and no other client notices.

mod common;

use std::future::poll_fn;

use common::raw_codec::send_raw;
use common::raw_http2::Raw;
use common::*;
use proto::v1::insert_request::Message;
use proto::v1::replay_client::ReplayClient;
use proto::{limits, v1};
use rpc::channel::{Channel, Credentials};
use rpc::shard_entry::ShardEntry;
use rpc::writer::{ChunkWriter, WriterState};
use tokio::io::AsyncWriteExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{Service, http};
use tonic::{Code, Request, Status};

type Spoil<T> = fn(&mut T);

/// A shard with some contents, a good writer in the middle of its work, and how it all stood before.
struct Victim {
    running: Running,
    client: ReplayClient<Channel>,
    writing: Writing,
    before: v1::InfoReply,
}

impl Victim {
    async fn new() -> Self {
        let (running, mut client) = Running::granted(1000).await;
        let writing = write(&mut client, 0..1).await;
        let before = state(&mut client).await;
        Self { running, client, writing, before }
    }

    /// A chunk that would be taken if nothing were wrong with it.
    fn chunk() -> v1::Chunk {
        chunk(1, 1, 0, 0)
    }

    /// Sends one chunk on a stream of its own, which is refused.
    async fn refuses(&mut self, chunk: v1::Chunk) -> Status {
        let writing = Writing::open(&mut self.client, hello(1, 1)).await;
        writing.send(chunk).await;
        writing.refusal().await
    }

    async fn refuses_spoilt(&mut self, code: Code, part: &str, spoil: impl FnOnce(&mut v1::Chunk)) {
        let mut chunk = Self::chunk();
        spoil(&mut chunk);
        let status = self.refuses(chunk).await;
        assert_status(&status, code, part);
    }

    /// Nothing has changed, and the good writer and a learner continue.
    async fn still_serves_its_callers(mut self) {
        assert_eq!(state(&mut self.client).await, self.before);
        assert_eq!(self.writing.write(chunk(0, 1, 0, 1)).await.items, 4);
        let mut sampling = Sampling::open(&mut self.client).await;
        assert_eq!(sampling.draw(0, vec![0.5; 8]).await.len(), 8);
        assert_eq!(self.running.metric("quiver_replay_writers_blocked"), 0.0);
        self.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused() {
    let mut victim = Victim::new().await;
    let large = |chunk: &mut v1::Chunk| chunk.frames = vec![1; limits::INSERT_BYTES_MAX].into();
    victim.refuses_spoilt(Code::ResourceExhausted, "exceeds the size limit of this server", large).await;
    let run = "x".repeat(8 << 10);
    let caller = Some(v1::Caller { run, ..proto::caller(RUN) });
    let request = v1::GrantRequest { caller, ..grant(1, None) };
    refused(
        victim.client.grant(request).await,
        Code::ResourceExhausted,
        "exceeds the size limit of this server",
    );
    let sampled = Sampling::once(&mut victim.client, sample(1, vec![0.5; 400_000])).await;
    refused(sampled, Code::ResourceExhausted, "exceeds the size limit of this server");
    assert_eq!(victim.running.messages_refused("too_large"), 3.0);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_another_shape_are_refused() {
    let mut victim = Victim::new().await;
    let hellos: [(Spoil<v1::InsertHello>, &str); 4] = [
        (|hello| hello.codec = "zstd".into(), "writer's codec is zstd, the store's is none"),
        (|hello| hello.codec = "gzip".into(), "unknown codec \"gzip\""),
        (|hello| hello.frame_bytes = 7056, "writer's frame_bytes is 7056, the store's is 64"),
        (|hello| hello.stack = 1, "writer's stack is 1, the store's is 4"),
    ];
    for (spoil, part) in hellos {
        let mut hello = hello(1, 1);
        spoil(&mut hello);
        let writing = Writing::open(&mut victim.client, hello).await;
        assert_status(&writing.refusal().await, Code::InvalidArgument, part);
    }
    let resized = |bytes: usize| {
        move |chunk: &mut v1::Chunk| set_frames(chunk, &[64, bytes, 64, 64].map(|bytes| vec![7; bytes]))
    };
    let part = "frame of step 1 has 200 bytes";
    victim.refuses_spoilt(Code::InvalidArgument, part, resized(200)).await;
    victim.refuses_spoilt(Code::InvalidArgument, "frame of step 1 has 0 bytes", resized(0)).await;
    assert_eq!(victim.running.refused("invalid"), 6.0);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_means_another_shard_is_sent_on() {
    let mut victim = Victim::new().await;
    let long = "x".repeat(129);
    for (shard, code, part) in [
        ("another", Code::NotFound, "the caller wants \"another\""),
        (long.as_str(), Code::InvalidArgument, "length of shard is 129"),
    ] {
        let meant = v1::InsertHello { shard: shard.into(), ..hello(1, 1) };
        let writing = Writing::open(&mut victim.client, meant).await;
        assert_status(&writing.refusal().await, code, part);
    }
    assert_eq!((victim.running.refused("run"), victim.running.refused("invalid")), (1.0, 1.0));
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_items_that_cannot_be_are_refused() {
    let mut victim = Victim::new().await;
    let spoils: [(&str, Spoil<v1::Chunk>); 25] = [
        ("action is 4, must be below 4", |chunk| steps(chunk).actions[0] = 4),
        ("action is 4294967295", |chunk| steps(chunk).actions[0] = u32::MAX),
        ("reward is NaN", |chunk| steps(chunk).rewards[0] = f32::NAN),
        ("log_probability is inf", |chunk| steps(chunk).log_probabilities[0] = f32::INFINITY),
        ("flags is 64, must be below 64", |chunk| set_flags(chunk, 1, 64)),
        ("flags is 255, must be below 64", |chunk| set_flags(chunk, 3, 255)),
        ("cannot follow", |chunk| set_flags(chunk, 1, KEY_FRAME | STARTS_EPISODE)),
        ("step 0 must be a key frame", |chunk| set_flags(chunk, 0, STARTS_EPISODE)),
        ("lane is missing", |chunk| chunk.lane = None),
        ("chunk of actor 0 incarnation 1", |chunk| chunk.lane.as_mut().unwrap().actor = 0),
        ("chunk of actor 1 incarnation 2", |chunk| chunk.lane.as_mut().unwrap().incarnation = 2),
        ("frames are damaged", |chunk| chunk.frames_crc32c ^= 1),
        ("steps is missing", |chunk| chunk.steps = None),
        ("steps is 0", |chunk| *chunk = with_steps(0)),
        ("steps is 1025", |chunk| *chunk = with_steps(1025)),
        ("items is 1025", |chunk| chunk.item_firsts = vec![0; 1025]),
        ("is out of range", |chunk| chunk.sequence = u64::MAX),
        ("is out of range", |chunk| (chunk.sequence, chunk.first_step) = (1, u64::MAX)),
        ("must have number 0", |chunk| chunk.first_step = 1),
        ("length is 0", |chunk| chunk.item_lengths = vec![1, 0, 1].into()),
        ("end before step 4", |chunk| chunk.item_lengths = vec![1, 255, 1].into()),
        ("end before step 4", |chunk| chunk.item_firsts[2] = u64::MAX),
        ("send items in order", |chunk| chunk.item_firsts[2] = 0),
        ("an item is for table 1, but the replay has 1", |chunk| chunk.item_tables = vec![0, 0, 1].into()),
        ("an item is for table 255, but the replay has 1", |chunk| {
            chunk.item_tables = vec![255, 0, 0].into();
        }),
    ];
    for (part, spoil) in spoils {
        victim.refuses_spoilt(Code::InvalidArgument, part, spoil).await;
    }
    for priority in [f64::NAN, f64::INFINITY, 1.7e308, -1.5] {
        let spoil = |chunk: &mut v1::Chunk| chunk.item_priorities[2] = priority;
        victim.refuses_spoilt(Code::InvalidArgument, "must be from 0 to 1e18", spoil).await;
    }
    let refused = spoils.len() as f64 + 4.0;
    assert_eq!(victim.running.refused("invalid"), refused);
    assert_eq!(victim.running.metric("quiver_replay_chunks_total{result=\"refused\"}"), refused);
    victim.still_serves_its_callers().await;
}

fn steps(chunk: &mut v1::Chunk) -> &mut v1::Steps {
    chunk.steps.as_mut().unwrap()
}

fn set_flags(chunk: &mut v1::Chunk, step: usize, flags: u8) {
    let mut all = steps(chunk).flags.to_vec();
    all[step] = flags;
    steps(chunk).flags = all.into();
}

/// A chunk of so many steps, without items.
fn with_steps(count: usize) -> v1::Chunk {
    let first = if count == 0 { vec![] } else { vec![KEY_FRAME | STARTS_EPISODE] };
    let flags = [first, vec![KEY_FRAME; count.saturating_sub(1)]].concat();
    let columns = v1::Steps {
        actions: vec![1; count],
        rewards: vec![0.5; count],
        log_probabilities: vec![-0.5; count],
        flags: flags.into(),
        weights_incarnations: vec![1; count],
        weights_numbers: vec![1; count],
    };
    let lane = Victim::chunk().lane;
    let mut chunk = v1::Chunk { lane, steps: Some(columns), ..v1::Chunk::default() };
    set_frames(&mut chunk, &vec![vec![9; FRAME_BYTES]; count]);
    chunk
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_an_earlier_chunk_or_of_too_many_steps_is_refused() {
    let store = v1::Store { max_length: 3, ..store() };
    let (running, mut client) = Running::granted_store(store, 1000).await;
    write(&mut client, 0..2).await;
    let with_item = |first: u64, length: u8| v1::Chunk {
        item_firsts: vec![first],
        item_lengths: vec![length].into(),
        item_priorities: vec![1.0],
        ..chunk(0, 1, 0, 2)
    };
    for (first, length, part) in [
        (6, 1, "item at step 6 of length 1 ends before its chunk, which begins at step 8"),
        (6, 4, "item at step 6 has 4 steps, but the replay allows 3"),
        (6, 255, "item at step 6 has 255 steps, but the replay allows 3"),
    ] {
        let writing = Writing::open(&mut client, hello(0, 1)).await;
        writing.send(with_item(first, length)).await;
        assert_status(&writing.refusal().await, Code::InvalidArgument, part);
    }
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    assert_eq!(writing.write(with_item(7, 3)).await.items, 1);
    let other = v1::Store { max_length: 4, ..self::store() };
    let changed = client.grant(grant_with(other, None)).await;
    refused(changed, Code::FailedPrecondition, "created with max_length 3, not 4");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_without_items_use_up_the_allowance() {
    let store = v1::Store { max_length: 1, ..store() };
    let (running, mut client) = Running::granted_store(store, 1).await;
    let mut writing = Writing::open(&mut client, hello(1, 1)).await;
    // Two steps are an insert, and those of 256 items are free.
    let mut first = with_steps(514);
    first.frames_crc32c = crc32c(&first.frames);
    writing.write(first).await;
    let mut more = with_steps(1);
    set_flags(&mut more, 0, KEY_FRAME);
    writing.send(v1::Chunk { sequence: 1, first_step: 514, ..more }).await;
    until(async || running.metric("quiver_replay_writers_blocked") == 1.0).await;
    assert_eq!(running.metric("quiver_replay_surcharge_total"), 1.0);
    grant_store(&mut client, v1::Store { max_length: 1, ..self::store() }, 2).await;
    assert_eq!(writing.stored().await.sequence, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_beyond_the_bound_is_refused() {
    let mut victim = Victim::new().await;
    let far = |sequence: u64| move |chunk: &mut v1::Chunk| chunk.sequence = sequence;
    for sequence in [(1 << 32) + 1, (1 << 62) - 1] {
        victim
            .refuses_spoilt(Code::InvalidArgument, "at most 4294967296 may be missing", far(sequence))
            .await;
    }
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_different_lengths_are_refused() {
    let mut victim = Victim::new().await;
    let spoils: [(&str, Spoil<v1::Chunk>); 12] = [
        ("actions has 3 entries, but the other columns have 4", |chunk| steps(chunk).actions.truncate(3)),
        ("actions has 0 entries, but the other columns have 4", |chunk| steps(chunk).actions.clear()),
        ("rewards has 5 entries", |chunk| steps(chunk).rewards.push(0.0)),
        ("log_probabilities has 3 entries", |chunk| steps(chunk).log_probabilities.truncate(3)),
        ("weights_incarnations has 3 entries", |chunk| steps(chunk).weights_incarnations.truncate(3)),
        ("weights_numbers has 5 entries", |chunk| steps(chunk).weights_numbers.push(1)),
        ("has 4 entries, but the other columns have 3", |chunk| steps(chunk).flags.truncate(3)),
        ("frame_bytes has 3 entries", |chunk| chunk.frame_bytes.truncate(3)),
        ("item_lengths has 2 entries, but the other columns have 3", |chunk| chunk.item_lengths.truncate(2)),
        ("item_priorities has 4 entries", |chunk| chunk.item_priorities.push(1.0)),
        ("item_tables has 1 entries", |chunk| chunk.item_tables = vec![0].into()),
        ("the steps declare 192 bytes of frames, but the chunk has 256", |chunk| {
            chunk.frame_bytes = vec![48; 4];
        }),
    ];
    for (part, spoil) in spoils {
        victim.refuses_spoilt(Code::InvalidArgument, part, spoil).await;
    }
    // Sizes that overflow when they are added up.
    let huge = |chunk: &mut v1::Chunk| chunk.frame_bytes = vec![u32::MAX; 4];
    victim.refuses_spoilt(Code::InvalidArgument, "frame of step 0 has 4294967295 bytes", huge).await;
    assert_eq!(victim.running.refused("invalid"), 13.0);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_without_a_key_frame_near_enough_is_refused() {
    let mut victim = Victim::new().await;
    let deltas = |count: usize, first: u8| {
        let mut chunk = with_steps(count + 1);
        steps(&mut chunk).flags = [vec![first], vec![0; count]].concat().into();
        chunk
    };
    let part = "frame of step 32 must be a key frame";
    let status = victim.refuses(deltas(32, KEY_FRAME | STARTS_EPISODE)).await;
    assert_status(&status, Code::InvalidArgument, part);
    // 31 are fine, and the next chunk continues the count.
    let mut writing = Writing::open(&mut victim.client, hello(1, 1)).await;
    assert_eq!(writing.write(deltas(31, KEY_FRAME | STARTS_EPISODE)).await.items, 0);
    victim.before = state(&mut victim.client).await;
    writing.send(v1::Chunk { sequence: 1, first_step: 32, ..deltas(0, 0) }).await;
    assert_status(&writing.refusal().await, Code::InvalidArgument, part);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_larger_than_the_ring_is_refused() {
    let (_running, mut client) = Running::granted_store(v1::Store { bytes_max: 4096, ..store() }, 1000).await;
    let mut writing = Writing::open(&mut client, hello(1, 1)).await;
    writing.write(with_steps(4)).await;
    let mut large = with_steps(42);
    set_flags(&mut large, 0, KEY_FRAME);
    writing.send(v1::Chunk { sequence: 1, first_step: 4, ..large }).await;
    let part = "the chunk takes 4160 bytes, but the whole replay has 4096";
    assert_status(&writing.refusal().await, Code::InvalidArgument, part);
    let mut writing = Writing::open(&mut client, hello(1, 1)).await;
    let mut largest = with_steps(41);
    set_flags(&mut largest, 0, KEY_FRAME);
    writing.write(v1::Chunk { sequence: 1, first_step: 4, ..largest }).await;
    let shard = state(&mut client).await.shard.unwrap();
    assert_eq!((shard.counters.unwrap().chunks, shard.bytes_used), (2, 4032));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_one_hello_and_it_comes_first() {
    let mut victim = Victim::new().await;
    let message = |message| v1::InsertRequest { message };
    let first_messages = [
        vec![message(Some(Message::Chunk(Victim::chunk())))],
        vec![message(None)],
        vec![message(Some(Message::Hello(hello(1, 1)))), message(Some(Message::Hello(hello(1, 1))))],
    ];
    let open = async |client: &mut ReplayClient<Channel>, messages| {
        let (requests, stream) = tokio::sync::mpsc::channel(2);
        for message in messages {
            requests.send(message).await.unwrap();
        }
        let replies = client.insert(ReceiverStream::new(stream)).await.unwrap().into_inner();
        Writing { requests, replies }
    };
    // Nothing is ever said on these.
    let silent = open(&mut victim.client, vec![]).await;
    let mut silent_sampling = Sampling::open(&mut victim.client).await;
    for messages in first_messages {
        let writing = open(&mut victim.client, messages).await;
        assert_status(&writing.refusal().await, Code::InvalidArgument, "first message must be the hello");
    }
    assert_status(&silent.refusal().await, Code::DeadlineExceeded, "no first message within 10s");
    let ended = patiently(silent_sampling.replies.message()).await;
    refused(ended, Code::DeadlineExceeded, "no first message within 10s");
    assert_eq!((victim.running.refused("invalid"), victim.running.refused("limit")), (3.0, 2.0));
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_priority_refuses_the_whole_update() {
    let mut victim = Victim::new().await;
    let mut sampling = Sampling::open(&mut victim.client).await;
    let drawn = sampling.draw(0, vec![0.1, 0.5]).await;
    let keys: Vec<_> = drawn.items().map(|item| item.key()).collect();
    victim.before = state(&mut victim.client).await;
    let good = || {
        let mut good = updates(&[(keys[0], 50.0), (keys[1], 1.0)]);
        (good.removed_slots, good.removed_generations) = (vec![keys[1].slot], vec![keys[1].generation]);
        good
    };
    let mut spoilt = Vec::new();
    for priority in [f64::NAN, f64::INFINITY, 1.7e308, -0.1] {
        let priorities = vec![50.0, priority];
        spoilt.push((v1::Updates { priorities, ..good() }, "must be from 0 to 1e18"));
        spoilt.push((v1::Updates { largest_priority: priority, ..good() }, "must be from 0 to 1e18"));
    }
    spoilt.push((v1::Updates { slots: vec![0], ..good() }, "slots has 1 entries"));
    spoilt.push((v1::Updates { generations: vec![0; 3], ..good() }, "generations has 3 entries"));
    spoilt.push((v1::Updates { removed_generations: vec![], ..good() }, "generations has 0 entries"));
    spoilt.push((v1::Updates { table: 1, ..good() }, "no table number 1"));
    spoilt.push((v1::Updates { table: u32::MAX, ..good() }, "no table number 4294967295"));
    let count = spoilt.len() as f64;
    for (updates, part) in spoilt {
        let request = update(1, updates.clone());
        refused(victim.client.update_priorities(request).await, Code::InvalidArgument, part);
        // The same with a request for samples, which draws nothing then.
        let request = v1::SampleRequest { updates: Some(updates), ..sample(1, vec![0.5]) };
        refused(Sampling::once(&mut victim.client, request).await, Code::InvalidArgument, part);
    }
    let none = v1::UpdatePrioritiesRequest { updates: None, ..update(1, good()) };
    refused(victim.client.update_priorities(none).await, Code::InvalidArgument, "updates is missing");
    assert_eq!(victim.running.refused("invalid"), 2.0 * count + 1.0);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_counts_and_points_are_refused() {
    let mut victim = Victim::new().await;
    let points = [
        (vec![0.5; limits::POINTS_MAX + 1], "points is 16385"),
        (vec![0.5, 1.0], "point is 1"),
        (vec![-0.1], "point is -0.1"),
        (vec![f64::NAN], "point is NaN"),
        (vec![f64::INFINITY], "point is inf"),
    ];
    for (points, part) in points {
        refused(Sampling::once(&mut victim.client, sample(1, points)).await, Code::InvalidArgument, part);
    }
    let other = v1::SampleRequest { table: 1, ..sample(1, vec![0.5]) };
    refused(Sampling::once(&mut victim.client, other).await, Code::InvalidArgument, "no table number 1");
    let count = limits::UPDATES_MAX + 1;
    let priorities = vec![1.0; count];
    let many = update(1, v1::Updates { priorities, ..v1::Updates::default() });
    refused(victim.client.update_priorities(many).await, Code::InvalidArgument, "priorities is 65537");
    let (removed_slots, removed_generations) = (vec![1; count], vec![1; count]);
    let many = update(1, v1::Updates { removed_slots, removed_generations, ..v1::Updates::default() });
    refused(victim.client.update_priorities(many).await, Code::InvalidArgument, "removed_slots is 65537");
    let long = v1::GrantRequest { wait_milliseconds: 10_001, ..grant(1, None) };
    refused(victim.client.grant(long).await, Code::InvalidArgument, "wait_milliseconds is 10001");
    assert_eq!(victim.running.refused("invalid"), 9.0);
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_beyond_all_bounds_is_refused_and_a_sound_one_is_taken_after_it() {
    let running = Running::start().await;
    let mut client = running.client();
    let before = state(&mut client).await;
    let stores: [(Spoil<v1::Store>, Code, &str); 20] = [
        (
            |store| store.tables[0].capacity = u64::MAX,
            Code::ResourceExhausted,
            "raise the shard's --memory-limit",
        ),
        (|store| store.bytes_max = u64::MAX, Code::ResourceExhausted, "raise the shard's --memory-limit"),
        (|store| store.bytes_max = 1 << 31, Code::ResourceExhausted, "this shard is limited to 1073741824"),
        (
            |store| store.tables[0].capacity = 16 << 20,
            Code::ResourceExhausted,
            "raise the shard's --memory-limit",
        ),
        (|store| store.tables[0].capacity = 0, Code::InvalidArgument, "capacity"),
        (|store| store.bytes_max = 0, Code::InvalidArgument, "bytes_max"),
        (|store| store.stack = u32::MAX, Code::InvalidArgument, "stack"),
        (|store| store.frame_bytes = 0, Code::InvalidArgument, "frame_bytes"),
        (|store| store.frame_bytes = u32::MAX, Code::InvalidArgument, "frame_bytes"),
        (|store| store.actions = 70_000, Code::InvalidArgument, "actions is 70000"),
        (|store| store.tables[0].priority_exponent = f64::NAN, Code::InvalidArgument, "priority_exponent"),
        (|store| store.tables[0].priority_constant = -1.0, Code::InvalidArgument, "priority_constant"),
        (|store| store.tables[0].first_priority = f64::INFINITY, Code::InvalidArgument, "first_priority"),
        (|store| store.codec = "\n".into(), Code::InvalidArgument, "unknown codec"),
        (|store| store.tables.clear(), Code::InvalidArgument, "tables is 0"),
        (
            |store| store.tables = ["a", "b", "c", "d", "e"].map(table).into(),
            Code::InvalidArgument,
            "tables is 5",
        ),
        (|store| store.tables.push(table("replay")), Code::InvalidArgument, "must be unique"),
        (|store| store.tables[0].name = "../x".into(), Code::InvalidArgument, "table name"),
        (|store| store.tables[0].sampler = "best".into(), Code::InvalidArgument, "unknown sampler"),
        (|store| store.tables[0].remover = "worst".into(), Code::InvalidArgument, "unknown remover"),
    ];
    for (spoil, code, part) in stores {
        let mut store = store();
        spoil(&mut store);
        let request = grant_with(store, running.allowance(10));
        refused(client.grant(request).await, code, part);
    }
    let none = v1::GrantRequest { store: None, ..grant(1, running.allowance(10)) };
    refused(client.grant(none).await, Code::InvalidArgument, "store is missing");
    assert_eq!(state(&mut client).await, before);
    assert_eq!((running.refused("limit"), running.refused("invalid")), (4.0, 17.0));
    client.grant(grant(1, None)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_and_another_run_are_refused_everywhere() {
    let mut victim = Victim::new().await;
    let callers = [
        (
            Some(v1::Caller { protocol: 1, run: RUN.into() }),
            Code::FailedPrecondition,
            "the caller 1; run the same version",
        ),
        (
            Some(proto::caller("run-2")),
            Code::FailedPrecondition,
            "belongs to run \"run-1\", the caller to run \"run-2\"",
        ),
        (Some(proto::caller("")), Code::InvalidArgument, "run is missing"),
        (Some(proto::caller(&"x".repeat(300))), Code::InvalidArgument, "length of run is 300"),
        (None, Code::InvalidArgument, "caller is missing"),
    ];
    for (caller, code, part) in callers {
        let caller = || caller.clone();
        let hello = v1::InsertHello { caller: caller(), ..hello(1, 1) };
        let writing = Writing::open(&mut victim.client, hello).await;
        assert_status(&writing.refusal().await, code, part);
        let request = v1::SampleRequest { caller: caller(), ..sample(9, vec![0.5]) };
        refused(Sampling::once(&mut victim.client, request).await, code, part);
        let request = v1::UpdatePrioritiesRequest { caller: caller(), ..update(9, updates(&[])) };
        refused(victim.client.update_priorities(request).await, code, part);
        let request =
            v1::GrantRequest { caller: caller(), finished: true, ..grant(9, victim.running.allowance(0)) };
        refused(victim.client.grant(request).await, code, part);
    }
    for (reason, count) in [("protocol", 4.0), ("run", 4.0), ("invalid", 12.0)] {
        assert_eq!(victim.running.refused(reason), count, "{reason}");
    }
    // Nor is a stranger's incarnation remembered.
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_instead_of_messages_is_refused() {
    let victim = Victim::new().await;
    let address = victim.running.address.clone();
    for (method, streams) in [
        ("Insert", true),
        ("Sample", true),
        ("UpdatePriorities", false),
        ("Grant", false),
        ("GetItem", false),
    ] {
        // A length beyond the end, a varint without end, a wrong type for field 1, a group, no UTF-8.
        for garbage in
            [&b"\x0a\xff\xff"[..], &[0xff; 40], b"\x08\x01\x09", b"\x0b\x0c\x0a", b"\x0a\x04\x12\x02\xff\xfe"]
        {
            let status = send_raw(&address, method, streams, garbage).await;
            assert_status(&status, Code::InvalidArgument, "");
        }
    }
    let counted = victim.running.messages_refused("malformed") + victim.running.refused("invalid");
    assert_eq!(counted, 25.0);
    assert_status(&send_raw(&address, "Explode", false, b"").await, Code::Unimplemented, "no such method");
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_messages_are_refused_unread() {
    let mut victim = Victim::new().await;
    // Said in the headers, as clients do.
    let mut request = Request::new(v1::InfoRequest {});
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    refused(victim.client.info(request).await, Code::Unimplemented, "compressed messages are not supported");
    // Only in the message's flag.
    let body = tonic::body::Body::new("\u{1}\0\0\0\u{2}xx".to_owned());
    let path = "http://shard/quiver.v1.Replay/Info";
    let request = http::Request::post(path).header("content-type", "application/grpc").body(body).unwrap();
    let mut channel = rpc::channel::channel(&victim.running.address);
    poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let response = channel.call(request).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_status(&status, Code::Unimplemented, "compressed messages are not supported");
    // In a stream.
    let mut raw = Raw::connect(&victim.running.address).await;
    raw.greet().await;
    raw.call(1, "/quiver.v1.Replay/Insert").await;
    raw.data(1, b"\x01\x00\x00\x00\x02xx").await;
    until(async || victim.running.messages_refused("compressed") == 3.0).await;
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_http2_are_disconnected() {
    let victim = Victim::new().await;
    let cut_off = "quiver_rpc_connections_refused_total{reason=\"not_http2\"}";
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 5000], b"PRI * HTTP/2.0\r\n\r\nXX", &[0x16, 3, 1]] {
        let mut raw = Raw::connect(&victim.running.address).await;
        raw.stream.write_all(garbage).await.unwrap();
        patiently(raw.closed()).await;
    }
    assert_eq!(victim.running.metric(cut_off), 4.0);
    // The right beginning and nonsense after it.
    let mut raw = Raw::connect(&victim.running.address).await;
    raw.greet().await;
    raw.stream.write_all(&[0x77; 3000]).await.unwrap();
    patiently(raw.closed()).await;
    until(async || victim.running.metric("quiver_rpc_connections") == 1.0).await;
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_vanishes_while_its_chunk_waits_leaves_nothing_behind() {
    let mut victim = Victim::new().await;
    victim.client.grant(grant(1, victim.running.allowance(3))).await.unwrap();
    let mut others = Vec::new();
    for actor in 1..=10 {
        let mut client = victim.running.client();
        let writing = Writing::open(&mut client, hello(actor, 1)).await;
        writing.send(chunk(actor, 1, 0, 0)).await;
        others.push((client, writing));
    }
    until(async || victim.running.metric("quiver_replay_writers_blocked") == 10.0).await;
    drop(others);
    until(async || victim.running.metric("quiver_replay_writers_connected") == 1.0).await;
    assert_eq!(victim.running.metric("quiver_replay_writers_blocked"), 0.0);
    victim.client.grant(grant(1, victim.running.allowance(1000))).await.unwrap();
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stops_half_way_leaves_nothing_behind() {
    let victim = Victim::new().await;
    let connected = async |count: f64| {
        until(async || victim.running.metric("quiver_replay_writers_connected") == count).await;
    };
    let half = b"\x00\x00\x00\x10\x00half of a message";
    // Taken back, and cut off with its connection.
    for reset in [true, false] {
        let mut raw = Raw::connect(&victim.running.address).await;
        raw.greet().await;
        raw.call(1, "/quiver.v1.Replay/Insert").await;
        raw.data(1, half).await;
        connected(2.0).await;
        if reset {
            raw.reset(1).await;
            connected(1.0).await;
        }
        drop(raw);
        connected(1.0).await;
    }
    // Half a request that is no stream.
    let mut raw = Raw::connect(&victim.running.address).await;
    raw.greet().await;
    raw.call(1, "/quiver.v1.Replay/Grant").await;
    raw.data(1, &half[..7]).await;
    drop(raw);
    until(async || victim.running.metric("quiver_rpc_connections") == 1.0).await;
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_actor_cannot_keep_the_others_out_with_streams() {
    let victim = Victim::new().await;
    let mut client = victim.running.client();
    let mut held = Vec::new();
    for number in 0..300 {
        if number % 32 == 0 {
            client = victim.running.client();
        }
        held.push(Writing::open(&mut client, hello(1, 1)).await);
    }
    // Streams beyond the bound get UNAVAILABLE, and the others stay.
    until(async || victim.running.metric("quiver_replay_writers_connected") == 257.0).await;
    let excess = Writing::open(&mut client, hello(1, 1)).await.refusal().await;
    assert_status(&excess, Code::Unavailable, "actor 1 already has 256 insert streams");
    // Neither can streams that say nothing.
    let (mut silent, mut senders) = (Vec::new(), Vec::new());
    for number in 0..1100 {
        if number % 32 == 0 {
            client = victim.running.client();
        }
        let (requests, stream) = tokio::sync::mpsc::channel(1);
        silent.push(client.insert(ReceiverStream::new(stream)).await.unwrap());
        senders.push(requests);
    }
    let mut other = Writing::open(&mut client, hello(2, 1)).await;
    other.write(chunk(2, 1, 0, 0)).await;
    drop((held, silent, senders, other));
    until(async || victim.running.metric("quiver_replay_writers_connected") == 1.0).await;
    let mut victim = victim;
    victim.before = state(&mut victim.client).await;
    victim.still_serves_its_callers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_there_are_places_are_refused_until_some_are_free() {
    let mut victim = Victim::new().await;
    let (mut others, mut client) = (Vec::new(), victim.running.client());
    // The good writer has a place too. Each actor has 256 at most.
    for number in 1..1024 {
        if number % 32 == 1 {
            client = victim.running.client();
        }
        let actor = 1 + number / 256;
        let mut writing = Writing::open(&mut client, hello(actor, 1)).await;
        // A chunk that is stored proves that the stream is admitted.
        let lane = Some(v1::LaneKey { actor, incarnation: 1, lane: number });
        writing.write(v1::Chunk { lane, ..with_steps(1) }).await;
        others.push(writing);
    }
    let excess = Writing::open(&mut client, hello(9, 1)).await.refusal().await;
    assert_eq!(excess.code(), Code::Unavailable);
    assert!(excess.message().contains("serves 1024 insert streams"), "{excess:?}");
    assert_eq!(victim.running.refused("limit"), 1.0);
    // A shortage does not end a writer: it retries until a stream is free.
    let entry = ShardEntry::fixed(victim.running.address.clone());
    let writer = ChunkWriter::spawn(0, entry, Credentials::none(), hello(7, 1), 1, 1);
    until(
        async || matches!(writer.state(), WriterState::Waiting(why) if why.contains("1024 insert streams")),
    )
    .await;
    drop(others);
    until(async || writer.state() == WriterState::Open).await;
    drop(writer);
    until(async || victim.running.metric("quiver_replay_writers_connected") == 1.0).await;
    victim.before = state(&mut victim.client).await;
    victim.still_serves_its_callers().await;
}
