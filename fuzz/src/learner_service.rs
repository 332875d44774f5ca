//! The learner's service: calls come in as bytes, go through framing, decoding and every check, and reach the hub. After
//! any input the learner still admits a member, sends it weights and takes its report, the training thread's queues hold
//! only valid reports, and the run's settings can be read again by the next learner.
//!
//! Input: calls: which and how often (1 byte), the message as a piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use coordinator::hub::HubInputs;
use coordinator::reports::Reports;
use coordinator::service::LearnerService;
use coordinator::{Clock, Hub, RunInfo, adjust};
use http_body_util::{BodyExt, Full};
use prost::Message;
use proto::limits::{EPISODES_MAX, PLAYERS_MAX, SCORE_MAX};
use proto::v1::learner_server::LearnerServer;
use proto::{Weights, v1};
use replay::{ReplayStatus, TicketKey, WeightsVersion};
use rpc::role::Roles;
use rpc::shard_entry::ShardEntry;
use rpc::ticket::{Identity, TicketRole};
use run::adjusted;
use settings::{Layers, Resolved};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use crate::input::{Input, piece};
use crate::service::{framed, status};

const RUN: &str = "run";

const METHODS: [&str; 4] = ["Join", "WatchWeights", "Report", "Adjust"];
const JOIN: u8 = 0;
const WATCH: u8 = 1;
const REPORT: u8 = 2;
const ADJUST: u8 = 3;
const CALLS_MAX: usize = 64;
/// The incarnation of the first member that joins a learner of incarnation 1.
const FIRST_MEMBER: u64 = 1 << 32 | 1;
/// No call waits, and a stream of weights begins at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Episodes that a turn may take: so many, and one more report.
const TURN_EPISODES_MAX: usize = 2 * EPISODES_MAX;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// A learner without networks and shards.
struct Learner {
    server: LearnerServer<LearnerService>,
    reports: Reports,
    resolved: Resolved,
    directory: TempDir,
    _shards: watch::Sender<Vec<ShardEntry>>,
}

impl Learner {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory for a run");
        let resolved = Layers::default().resolve(Some(envs::CARTPOLE)).expect("the game has settings");
        let text = String::new;
        let run_info = RunInfo {
            run: RUN.into(),
            incarnation: 1,
            start: 1,
            resumed: false,
            ticket_key: ticket_key(),
            config: text(),
            architecture: text(),
        };
        let address = "shard:1".parse().expect("an address");
        let (shards, entries) = watch::channel(vec![ShardEntry::unnamed(address)]);
        let inputs = HubInputs { shards: entries, replay: watch::channel(ReplayStatus::default()).1 };
        let path = directory.path().to_owned();
        let (hub, reports) = Hub::new(run_info, resolved.clone(), path, inputs, Clock::system());
        let version = WeightsVersion { incarnation: 1, number: 1 };
        hub.publish(Arc::new(Weights { version, safetensors: vec![1; 99].into(), evaluation: None }));
        let options = prometheus::Opts::new("refused", "Calls refused");
        let refused = prometheus::IntCounterVec::new(options, &["reason"]).expect("a metric");
        let server = LearnerServer::new(LearnerService::new(hub, refused))
            .max_decoding_message_size(proto::limits::OTHER_BYTES_MAX);
        Self { server, reports, resolved, directory, _shards: shards }
    }

    /// Makes one call: its status, unless it is a stream that has begun, and the first reply.
    async fn call(&mut self, method: u8, message: &[u8]) -> (Code, Bytes) {
        let method = METHODS[usize::from(method)];
        let request = http::Request::post(format!("/quiver.v1.Learner/{method}"))
            .header("content-type", "application/grpc")
            .extension(Roles::all())
            .body(Body::new(Full::<Bytes>::from(framed(message))))
            .expect("a request");
        let answer = async {
            let (head, mut body) = self.server.call(request).await.expect("a status at worst").into_parts();
            if let Some(code) = status(&head.headers) {
                return (code, Bytes::new());
            }
            let first = body.frame().await.expect("a frame").expect("nothing breaks in memory");
            match first.into_data() {
                Ok(mut bytes) => {
                    bytes.advance(5);
                    (Code::Ok, bytes)
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().expect("data or trailers");
                    (status(&trailers).expect("an answer has a status"), Bytes::new())
                }
            }
        };
        timeout(PATIENCE, answer).await.expect("no call waits")
    }

    /// What the training thread takes of the queues is valid, and bounded in each turn.
    fn take_reports(&mut self) {
        loop {
            let (episodes, evaluations) = (self.reports.take_episodes(), self.reports.take_evaluations());
            if episodes.is_empty() && evaluations.is_empty() {
                return;
            }
            assert!(episodes.len() < TURN_EPISODES_MAX);
            assert!(episodes.iter().all(|game| game.steps > 0 && game.score.abs() <= SCORE_MAX));
            for (_, players) in evaluations {
                assert!((1..=PLAYERS_MAX).contains(&players.len()) && players[0].name == run::record::AGENT);
                let policy = settings::choices::EvaluationPolicy::Greedy;
                for player in players {
                    let evaluation = run::record::Evaluation::new(player.name, policy, player.scores);
                    let line = serde_json::to_string(&evaluation).expect("a line of the record");
                    assert_eq!(
                        serde_json::from_str::<run::record::Evaluation>(&line).expect("its own"),
                        evaluation
                    );
                }
            }
        }
    }

    /// An honest member is served, and the next learner can read what the calls changed.
    async fn inspect(&mut self) {
        self.take_reports();
        let join = v1::JoinRequest { protocol: proto::PROTOCOL, role: 1, ..v1::JoinRequest::default() };
        let (code, reply) = self.call(JOIN, &join.encode_to_vec()).await;
        assert_eq!(code, Code::Ok, "so few calls cannot take all places");
        let v1::JoinReply { index, incarnation, .. } = v1::JoinReply::decode(reply).expect("its own");
        let (code, reply) = self.call(WATCH, &watch_request(index, incarnation).encode_to_vec()).await;
        assert_eq!(code, Code::Ok);
        assert!(v1::WatchWeightsReply::decode(reply).expect("its own").update.is_some());
        let (code, _) = self.call(REPORT, &report_request(index, incarnation).encode_to_vec()).await;
        assert_eq!(code, Code::Ok);
        assert_eq!(self.reports.take_episodes().len(), 2);
        let changes = adjusted::load(self.directory.path()).expect("the changes can be read");
        let again = adjust::changed(&self.resolved, &changes, 1, &ReplayStatus::default());
        again.expect("what was accepted is valid at the next start");
    }
}

pub fn run(data: &[u8]) {
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut learner = Learner::new();
            let mut input = Input::new(data);
            let mut calls = 0;
            while !input.is_empty() && calls < CALLS_MAX {
                calls += 1;
                let what = input.byte();
                let message = input.piece();
                for _ in 0..=(what >> 2) % 4 {
                    let (code, _) = learner.call(what % METHODS.len() as u8, message).await;
                    assert!(
                        !matches!(code, Code::Unknown | Code::DataLoss | Code::ResourceExhausted),
                        "{code:?}"
                    );
                }
            }
            learner.inspect().await;
        });
    });
}

fn ticket_key() -> TicketKey {
    TicketKey::from_bytes(&[7; 32]).expect("the length of a key")
}

fn ticket(role: TicketRole, index: u32, incarnation: u64) -> Bytes {
    Identity { run: RUN, role, index, incarnation }.ticket(&ticket_key()).into()
}

fn watch_request(index: u32, incarnation: u64) -> v1::WatchWeightsRequest {
    let ticket = ticket(TicketRole::Actor, index, incarnation);
    v1::WatchWeightsRequest { caller: Some(proto::caller(RUN)), role: 1, index, incarnation, ticket }
}

fn report_request(index: u32, incarnation: u64) -> v1::ReportRequest {
    let episodes = vec![v1::Episode { score: 1.5, steps: 7, truncated: true }; 2];
    v1::ReportRequest {
        caller: Some(proto::caller(RUN)),
        role: 1,
        index,
        incarnation,
        episodes,
        evaluation: None,
        ticket: ticket(TicketRole::Actor, index, incarnation),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let call = |method: u8, times: u8, message: Vec<u8>| {
        [&[method | (times - 1) << 2][..], &piece(&message)].concat()
    };
    let join = |role: i32| {
        let join = v1::JoinRequest { protocol: proto::PROTOCOL, role, ..v1::JoinRequest::default() };
        call(JOIN, 1, join.encode_to_vec())
    };
    let watch = call(WATCH, 3, watch_request(0, FIRST_MEMBER).encode_to_vec());
    let report = call(REPORT, 3, report_request(0, FIRST_MEMBER).encode_to_vec());
    let players = vec![v1::PlayerScores { player: "agent".into(), scores: vec![1.0, -2.5] }];
    let evaluation = Some(v1::EvaluationReport { number: 1, players });
    let evaluated = v1::ReportRequest {
        role: 2,
        episodes: Vec::new(),
        evaluation,
        ticket: ticket(TicketRole::Evaluator, 0, FIRST_MEMBER),
        ..report_request(0, FIRST_MEMBER)
    };
    let again = v1::JoinRequest {
        protocol: proto::PROTOCOL,
        run: RUN.into(),
        role: 1,
        index: Some(0),
        incarnation: FIRST_MEMBER,
        ticket: ticket(TicketRole::Actor, 0, FIRST_MEMBER),
        renew: false,
    };
    let adjust = |key: &str, value: &str| {
        let settings = [(key.to_owned(), value.to_owned())].into();
        call(ADJUST, 1, v1::AdjustRequest { settings }.encode_to_vec())
    };
    let adjusted = [
        adjust("samples_per_insert", "4"),
        adjust("min_size", "100"),
        adjust("capacity", "2000"),
        adjust("priority_exponent", "0.5"),
        adjust("without_shards", "0"),
    ];
    vec![
        [join(1), watch.clone(), report.clone()].concat(),
        [join(1), call(JOIN, 2, again.encode_to_vec()), watch, report].concat(),
        [join(2), call(REPORT, 1, evaluated.encode_to_vec())].concat(),
        adjusted.concat(),
    ]
}
