//! Messages and parts of messages, as a server or a client of ours would make them.

use prost::Message;
use proto::v1::insert_request::Message as Request;
use proto::v1::watch_weights_reply::Update;
use proto::v1::*;
use proto::{StoreSpec, convert};

use crate::small::{self, FuzzLane};

pub fn caller() -> Option<Caller> {
    Some(proto::caller("run"))
}

pub fn updates() -> Option<Updates> {
    Some(Updates {
        table: 1,
        shard_incarnation: 7,
        slots: vec![1, 2],
        generations: vec![8, 9],
        priorities: vec![0.5, 2.0],
        largest_priority: 3.0,
        removed_slots: vec![3],
        removed_generations: vec![4],
    })
}

pub fn store() -> Option<Store> {
    let spec = StoreSpec { options: small::options(), codec: replay::codec::Codec::Delta, actions: 4 };
    Some(convert::store_message(&spec))
}

pub fn shard() -> Option<ShardStatus> {
    let counters = Some(Counters { chunks: 3, inserts: 9, ..Counters::default() });
    let tables = vec![TableStatus { items: 9, mass: 4.5, ..TableStatus::default() }];
    Some(ShardStatus { id: "shard".into(), incarnation: 7, counters, tables, ..ShardStatus::default() })
}

pub fn batch() -> Option<Batch> {
    SampleReply::decode(&crate::wire_batch::seeds()[0][4..]).expect("a seed is sound").batch
}

fn histogram() -> Option<Histogram> {
    Some(Histogram { bounds: vec![0.0, 1.0], counts: vec![2, 3] })
}

pub fn chunk() -> Option<Request> {
    Some(Request::Chunk(convert::chunk_message(FuzzLane::new(0, 1, 0).chunk(5))))
}

pub fn sample_request() -> SampleRequest {
    let allowance = Some(Allowance { shard_incarnation: 7, inserts: 100 });
    let points = vec![0.25, 0.75];
    let (caller, updates) = (caller(), updates());
    let (learner_incarnation, table, reliabilities) = (1, 0, true);
    SampleRequest { caller, learner_incarnation, points, allowance, table, updates, reliabilities }
}

pub fn key() -> Option<ItemKey> {
    Some(ItemKey { shard_incarnation: 7, slot: 1, generation: 5 })
}

pub fn stored() -> Option<insert_reply::Reply> {
    Some(insert_reply::Reply::Stored(Stored { lane: 1, sequence: 2, items: 3, ..Stored::default() }))
}

pub fn info_reply() -> InfoReply {
    let blocked_callers =
        vec![BlockedCaller { caller: "learner".into(), blocked_on: "inserts".into(), blocked_seconds: 2.0 }];
    let recovered = Some(Recovered { chunks: 3, items: 4, ..Recovered::default() });
    InfoReply { store: store(), shard: shard(), blocked_callers, recovered, ..InfoReply::default() }
}

pub fn inspect_reply() -> InspectReply {
    InspectReply {
        priorities: histogram(),
        ages_inserts: histogram(),
        times_sampled: histogram(),
        top: batch(),
    }
}

pub fn join_reply() -> JoinReply {
    let resolved = settings::Layers::default().resolve(Some(envs::CARTPOLE)).expect("cartpole has settings");
    let addresses = ["unix:/tmp/shard", "http://host:7777", "[::1]:7777"];
    JoinReply {
        run: "run".into(),
        config: serde_json::to_string(&resolved).expect("settings can be written"),
        shards: addresses.map(shard_address).into(),
        architecture: "{}".into(),
        ..JoinReply::default()
    }
}

fn shard_address(address: &str) -> ShardEntry {
    ShardEntry { address: address.into(), id: "0123abcd".into(), excluded: true }
}

pub fn watch_weights_reply() -> WatchWeightsReply {
    let version = Some(WeightsVersion { incarnation: 1, number: 2 });
    let order = EvaluationRequest { number: 1, frames: 4, updates: 1, episodes: 8, baselines: true };
    let bytes = b"weights".as_slice().into();
    let segment = WeightsSegment { version, offset: 0, bytes_total: 7, bytes, evaluation: Some(order) };
    let update = Update::Segment(segment);
    WatchWeightsReply { agent_steps: 5, update: Some(update), shards: vec![shard_address("host:1")] }
}

pub fn report_request() -> ReportRequest {
    let episodes = vec![Episode { score: 1.5, steps: 7, truncated: true }];
    let players = vec![PlayerScores { player: "agent".into(), scores: vec![1.0, 2.0] }];
    let evaluation = Some(EvaluationReport { number: 5, players });
    ReportRequest { caller: caller(), episodes, evaluation, ..ReportRequest::default() }
}
