//! One message of each kind, as a server or a client of ours would make it.

use prost::Message;
use proto::v1::insert_request::Message as Request;
use proto::v1::watch_weights_reply::News;
use proto::v1::*;
use proto::{StoreSpec, convert};

use crate::small::{self, Lane};

fn caller() -> Option<Caller> {
    Some(proto::caller("run"))
}

fn updates() -> Option<Updates> {
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

fn store() -> Option<Store> {
    let spec = StoreSpec { options: small::options(), codec: replay::codec::Codec::Delta, actions: 4 };
    Some(convert::store_message(&spec))
}

fn shard() -> Option<ShardStatus> {
    let counters = Some(Counters { chunks: 3, inserts: 9, ..Counters::default() });
    let tables = vec![TableStatus { items: 9, mass: 4.5, ..TableStatus::default() }];
    Some(ShardStatus { id: "shard".into(), incarnation: 7, counters, tables, ..ShardStatus::default() })
}

fn batch() -> Option<Batch> {
    SampleReply::decode(&crate::wire_batch::seeds()[0][4..]).expect("a seed is sound").batch
}

fn histogram() -> Option<Histogram> {
    Some(Histogram { bounds: vec![0.0, 1.0], counts: vec![2, 3] })
}

pub fn insert_request() -> InsertRequest {
    let chunk = convert::chunk_message(Lane::new(0, 1, 0).chunk(5));
    InsertRequest { message: Some(Request::Chunk(chunk)) }
}

pub fn sample_request() -> SampleRequest {
    let allowance = Some(Allowance { shard_incarnation: 7, inserts: 100 });
    let points = vec![0.25, 0.75];
    let (caller, updates) = (caller(), updates());
    let (learner_incarnation, table, reliabilities) = (1, 0, true);
    SampleRequest { caller, learner_incarnation, points, allowance, table, updates, reliabilities }
}

pub fn update_priorities_request() -> UpdatePrioritiesRequest {
    UpdatePrioritiesRequest { caller: caller(), learner_incarnation: 1, updates: updates() }
}

pub fn grant_request() -> GrantRequest {
    GrantRequest { caller: caller(), learner_incarnation: 1, store: store(), ..GrantRequest::default() }
}

pub fn look_request() -> LookRequest {
    let key = Some(ItemKey { shard_incarnation: 7, slot: 1, generation: 5 });
    LookRequest { table: "main".into(), key }
}

pub fn configure_request() -> ConfigureRequest {
    ConfigureRequest { table: "main".into(), capacity: Some(9), priority_exponent: Some(0.5) }
}

pub fn inspect_request() -> InspectRequest {
    InspectRequest { table: "other".into(), top: 5 }
}

pub fn info_request() -> InfoRequest {
    InfoRequest {}
}

pub fn snapshot_request() -> SnapshotRequest {
    SnapshotRequest {}
}

pub fn insert_reply() -> InsertReply {
    let stored = Stored { lane: 1, sequence: 2, items: 3, ..Stored::default() };
    InsertReply { reply: Some(insert_reply::Reply::Stored(stored)) }
}

pub fn sample_reply() -> SampleReply {
    SampleReply { batch: batch(), shard: shard(), applied: 1, stale: 2 }
}

pub fn update_priorities_reply() -> UpdatePrioritiesReply {
    UpdatePrioritiesReply { applied: 1, stale: 2, removed: 3, shard: shard() }
}

pub fn grant_reply() -> GrantReply {
    GrantReply { shard: shard() }
}

pub fn configure_reply() -> ConfigureReply {
    ConfigureReply { store: store() }
}

pub fn info_reply() -> InfoReply {
    let waiters = vec![Waiter { who: "learner".into(), what: "inserts".into(), seconds: 2.0 }];
    let recovered = Some(Recovered { chunks: 3, items: 4, ..Recovered::default() });
    InfoReply { store: store(), shard: shard(), waiters, recovered, ..InfoReply::default() }
}

pub fn inspect_reply() -> InspectReply {
    InspectReply {
        priorities: histogram(),
        ages_inserts: histogram(),
        times_sampled: histogram(),
        top: batch(),
    }
}

pub fn look_reply() -> LookReply {
    LookReply { batch: batch(), store: store() }
}

pub fn snapshot_reply() -> SnapshotReply {
    SnapshotReply { piece: b"piece".as_slice().into() }
}

pub fn join_request() -> JoinRequest {
    JoinRequest { protocol: 2, run: "run".into(), role: 1, index: Some(3), incarnation: 4 }
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

fn shard_address(address: &str) -> ShardAddress {
    ShardAddress { address: address.into(), id: "0123abcd".into(), absent: true }
}

pub fn watch_weights_request() -> WatchWeightsRequest {
    WatchWeightsRequest { caller: caller(), role: 2, index: 0, incarnation: 1 }
}

pub fn watch_weights_reply() -> WatchWeightsReply {
    let version = Some(WeightsVersion { incarnation: 1, number: 2 });
    let order = EvaluationOrder { number: 1, frames: 4, updates: 1, episodes: 8, baselines: true };
    let safetensors = b"weights".as_slice().into();
    let news = News::Weights(Weights { version, safetensors, evaluation: Some(order) });
    WatchWeightsReply { agent_steps: 5, news: Some(news), shards: vec![shard_address("host:1")] }
}

pub fn report_request() -> ReportRequest {
    let episodes = vec![Episode { score: 1.5, steps: 7, truncated: true }];
    let players = vec![PlayerScores { player: "agent".into(), scores: vec![1.0, 2.0] }];
    let evaluation = Some(EvaluationReport { number: 5, players });
    ReportRequest { caller: caller(), episodes, evaluation, ..ReportRequest::default() }
}

pub fn report_reply() -> ReportReply {
    ReportReply {}
}

pub fn adjust_reply() -> AdjustReply {
    AdjustReply { config: "{}".into() }
}
