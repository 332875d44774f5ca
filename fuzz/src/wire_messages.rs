//! Every message that a server or a client decodes: decoding, encoding again, and our own conversions.
//!
//! Input: which message (1 byte), the message.

mod sample;

use std::sync::Arc;

use prost::Message;
use proto::limits::{EPISODES_MAX, PLAYERS_MAX, SEGMENT_BYTES, UPDATES_MAX};
use proto::v1::insert_request::Message as Request;
use proto::v1::watch_weights_reply::Update;
use proto::{PackedBatch, Report, Segments, WeightsAssembly, convert, play, v1};
use rpc::address::Address;
use settings::Resolved;

use crate::small;

/// A message that was decoded can be encoded, and decoded to the same.
fn decoded<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let encoded = message.encode_to_vec();
    assert_eq!(encoded.len(), message.encoded_len());
    let again = M::decode(encoded.as_slice()).expect("what was encoded can be decoded");
    // Numbers that are none are not equal to themselves, so bytes are compared.
    assert_eq!(again.encode_to_vec(), encoded);
    Some(message)
}

macro_rules! messages {
    ($($type:ident { $($fields:tt)* }, $check:expr;)*) => {
        /// How each is looked at, by the number in the input.
        const CHECKS: &[fn(&[u8])] = &[$(|bytes| if let Some(message) = decoded::<v1::$type>(bytes) {
            let check: fn(v1::$type) = $check;
            check(message);
        },)*];

        /// One of each, to begin with, as a server or a client of ours would make it.
        fn samples() -> Vec<Vec<u8>> {
            vec![$(v1::$type { $($fields)* }.encode_to_vec(),)*]
        }
    };
}

messages! {
    InsertRequest { message: sample::chunk() }, |request| if let Some(Request::Chunk(message)) = request.message {
        let _ = convert::chunk(message, 4);
    };
    SampleRequest { ..sample::sample_request() }, |request| updates(request.updates);
    UpdatePrioritiesRequest { caller: sample::caller(), learner_incarnation: 1, updates: sample::updates() },
        |request| updates(request.updates);
    GrantRequest { caller: sample::caller(), learner_incarnation: 1, store: sample::store(), ..Default::default() },
        |request| store(request.store);
    GetItemRequest { table: "main".into(), key: sample::key() }, |request| key(request.key);
    ConfigureRequest { table: "main".into(), capacity: Some(9), priority_exponent: Some(0.5) }, drop;
    InspectRequest { table: "other".into(), top: 5 }, drop;
    IssueTicketRequest { caller: sample::caller(), actor: 3, incarnation: 4 }, drop;
    IssueTicketReply { ticket: vec![1; 32].into() }, drop;
    InfoRequest {}, drop;
    SnapshotRequest {}, drop;
    InsertReply { reply: sample::stored() }, drop;
    SampleReply { batch: sample::batch(), shard: sample::shard(), applied: 1, stale: 2 }, |reply| batch(reply.batch);
    UpdatePrioritiesReply { applied: 1, stale: 2, removed: 3, shard: sample::shard() }, drop;
    GrantReply { shard: sample::shard() }, drop;
    ConfigureReply { store: sample::store() }, |reply| store(reply.store);
    InfoReply { ..sample::info_reply() }, |reply| store(reply.store);
    InspectReply { ..sample::inspect_reply() }, |reply| batch(reply.top);
    GetItemReply { batch: sample::batch(), store: sample::store() }, |reply| {
        batch(reply.batch);
        store(reply.store);
    };
    SnapshotReply { piece: b"piece".as_slice().into() }, drop;
    JoinRequest { protocol: proto::PROTOCOL, run: "run".into(), role: 1, index: Some(3), incarnation: 4,
        ticket: vec![1; 32].into(), renew: true }, drop;
    JoinReply { ..sample::join_reply() }, joined;
    WatchWeightsRequest { caller: sample::caller(), role: 2, index: 0, incarnation: 1, ticket: vec![1; 32].into() }, drop;
    WatchWeightsReply { ..sample::watch_weights_reply() },
        |reply| if let Some(Update::Segment(segment)) = reply.update {
            weights(segment);
        };
    ReportRequest { ..sample::report_request() }, reports;
    ReportReply {}, drop;
    AdjustReply { config: "{}".into() }, drop;
}

/// Its map is encoded in any order, so it is not one of the others.
const ADJUST: usize = CHECKS.len();

pub fn run(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match usize::from(kind) % (ADJUST + 1) {
        ADJUST => {
            let Ok(message) = v1::AdjustRequest::decode(bytes) else { return };
            assert_eq!(v1::AdjustRequest::decode(message.encode_to_vec().as_slice()), Ok(message));
        }
        kind => CHECKS[kind](bytes),
    }
}

fn store(message: Option<v1::Store>) {
    let Some(Ok(spec)) = message.map(convert::store) else { return };
    if spec.options.check().is_ok() {
        assert_eq!(convert::store(convert::store_message(&spec)), Ok(spec));
    }
}

fn updates(message: Option<v1::Updates>) {
    let Some(message) = message else { return };
    let Ok(updates) = convert::updates(&message) else { return };
    assert!(updates.priorities.len() <= UPDATES_MAX && updates.removed.len() <= UPDATES_MAX);
    let again = convert::updates_message(&updates, message.shard_incarnation);
    assert_eq!(convert::updates(&again), Ok(updates));
}

fn key(message: Option<v1::ItemKey>) {
    let Some(message) = message else { return };
    assert_eq!(convert::key_message(convert::key(message)), message);
}

fn batch(message: Option<v1::Batch>) {
    let Ok(batch) = PackedBatch::new(message.unwrap_or_default(), small::STACK, 4) else { return };
    batch.items().for_each(|item| assert_eq!(item.steps().count(), item.length()));
}

/// A first segment that is the whole version is sent as the same message; a sender's next one continues it.
fn weights(segment: v1::WeightsSegment) {
    let mut assembly = WeightsAssembly::default();
    let Ok(complete) = assembly.add(&segment) else {
        assert!(!assembly.is_incomplete());
        return;
    };
    assert_eq!(segment.offset, 0, "nothing has begun before it");
    match complete {
        Some(weights) => {
            assert_eq!(Segments::new(Arc::new(weights)).collect::<Vec<_>>(), [segment]);
        }
        None => {
            assert_eq!(segment.bytes.len(), SEGMENT_BYTES);
            // The same segment again begins the version anew; as a later one it is of the wrong size or continues it.
            assert_eq!(assembly.add(&segment), Ok(None));
            let next = v1::WeightsSegment { offset: SEGMENT_BYTES as u64, ..segment };
            let added = assembly.add(&next);
            assert_eq!(assembly.is_incomplete(), matches!(added, Ok(None)));
        }
    }
}

fn reports(message: v1::ReportRequest) {
    let Ok(reports) = play::reports(message.episodes, message.evaluation) else { return };
    for report in &reports {
        match report {
            Report::Episodes(episodes) => assert!((1..=EPISODES_MAX).contains(&episodes.len())),
            Report::Evaluation { players, .. } => assert!(players.len() <= PLAYERS_MAX),
        }
    }
    let member = v1::ReportRequest::default();
    let again = reports.iter().fold(member, |message, report| play::report_message(report.clone(), message));
    assert_eq!(play::reports(again.episodes, again.evaluation), Ok(reports));
}

/// What an actor does with the answer to its first question.
fn joined(reply: v1::JoinReply) {
    for shard in reply.shards {
        if let Ok(address) = shard.address.parse::<Address>() {
            assert_eq!(address.to_string().parse(), Ok(address.clone()));
            let _ = address.is_local();
        }
    }
    let Ok(resolved) = serde_json::from_str::<Resolved>(&reply.config) else { return };
    let text = serde_json::to_string(&resolved).expect("settings can be written");
    assert_eq!(serde_json::from_str::<Resolved>(&text).expect("and read"), resolved);
    let _ = resolved.settings.validate(&resolved.game);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut adjust = v1::AdjustRequest::default();
    adjust.settings.insert("capacity".into(), "2M".into());
    let all = samples().into_iter().chain([adjust.encode_to_vec()]);
    (0..).zip(all).map(|(kind, message)| [&[kind][..], &message].concat()).collect()
}
