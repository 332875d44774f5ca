//! A whole shard behind its router: calls come in as bytes, go through framing, counting, decoding and every check, and
//! reach the store. After any input the shard still answers, and its snapshot is a valid store.
//!
//! Input: whether the shard is configured (1 byte), then calls: which and how (1), messages (1), each a piece.

use std::cell::RefCell;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use prometheus::Registry;
use prost::Message;
use proto::v1;
use proto::v1::insert_request::Message as Request;
use replay::store::Storage;
use replay::store::directory::SlotDirectory;
use replay::{Store, TicketKey};
use replay_server::config::Fsync;
use replay_server::{Config, ReplayRouter, Server};
use rpc::ticket::{Identity, TicketRole};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use crate::input::{Input, piece};
use crate::small::{self, FuzzLane};

/// In the byte of a call: chunks get the right checksum, so that what lies behind it is reached.
const SEALED: u8 = 0x40;
/// The messages are sent as they are, without their frames.
const RAW: u8 = 0x80;

const METHODS: [&str; 10] = [
    "Insert",
    "Sample",
    "UpdatePriorities",
    "Grant",
    "Configure",
    "Info",
    "Inspect",
    "GetItem",
    "Snapshot",
    "IssueTicket",
];
const INSERT: usize = 0;
const CALLS_MAX: usize = 16;
const MESSAGES_MAX: usize = 32;
/// Room for all lanes and little more.
const BYTES_LIMIT: u64 = 20 << 20;
/// Placeholder in a seed for the incarnation of the shard, which is a random number.
const OWN_INCARNATION: u32 = 1;
/// How long a call may wait for a learner that will not come, and how long one that never waits may take.
const WAIT: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    static RUNTIME: RefCell<(Runtime, TempDir)> = RefCell::new((
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        TempDir::new().expect("a directory for a socket"),
    ));
}

pub fn run(data: &[u8]) {
    RUNTIME.with_borrow(|(runtime, directory)| {
        let socket = format!("unix:{}/socket", directory.path().display());
        let config = Config {
            secrets: None,
            listen: socket.parse().expect("a short path"),
            id: "shard".into(),
            data_dir: None,
            fsync: Fsync::Never,
            restore: None,
            memory_limit: BYTES_LIMIT,
            exit_with_run: false,
        };
        runtime.block_on(async {
            let server = Server::bind(&config, &Registry::new()).await.expect("a shard in memory");
            serve(&mut server.router(), data).await;
        });
    });
}

async fn serve(router: &mut ReplayRouter, data: &[u8]) {
    let mut input = Input::new(data);
    let is_configured = input.byte() & 1 == 1;
    let incarnation = info(router).await.shard.map_or(0, |shard| shard.incarnation);
    if is_configured {
        let allowance = Some(v1::Allowance { shard_incarnation: incarnation, inserts: u64::MAX });
        let grant = v1::GrantRequest { allowance, ..grant() };
        let (code, _) = call(router, "Grant", framed(&grant.encode_to_vec()), PATIENCE).await;
        assert_eq!(code, Some(Code::Ok));
    }
    let mut calls = 0;
    while !input.is_empty() && calls < CALLS_MAX {
        calls += 1;
        let what = input.byte();
        let method = usize::from(what & !(SEALED | RAW)) % METHODS.len();
        let mut body = Vec::new();
        for _ in 0..usize::from(input.byte()) % MESSAGES_MAX {
            let message = own(method, input.piece(), incarnation, what & SEALED != 0);
            body.extend(if what & RAW != 0 { message } else { framed(&message) });
        }
        let (code, _) = call(router, METHODS[method], body, WAIT).await;
        assert!(!matches!(code, Some(Code::Unknown | Code::DataLoss)), "{code:?}");
    }
    inspect(router).await;
}

/// The shard still answers, and what it holds can be restored elsewhere.
async fn inspect(router: &mut ReplayRouter) {
    let info = info(router).await;
    let mut answer = call(router, "Snapshot", framed(&[]), PATIENCE).await;
    while info.store.is_some() && answer.0 == Some(Code::Unavailable) {
        // Another one was given up and its place is about to be free.
        tokio::task::yield_now().await;
        answer = call(router, "Snapshot", framed(&[]), PATIENCE).await;
    }
    let (code, pieces) = answer;
    let Some(spec) = info.store.map(|store| proto::convert::store(store).expect("its own")) else {
        assert_eq!(code, Some(Code::Unavailable));
        return;
    };
    assert_eq!(code, Some(Code::Ok));
    let piece = |bytes: &Bytes| v1::SnapshotReply::decode(bytes.clone()).expect("its own").piece;
    let file: Vec<u8> = pieces.iter().flat_map(piece).collect();
    let mut input = file.as_slice();
    let (_, holds) = SlotDirectory::read_snapshot_head(&mut input).expect("a snapshot has a head");
    assert_eq!(holds.options, spec.options);
    let restored = Store::restore(small::INCARNATION, Storage::in_memory(), &mut input);
    let (mut store, recovered) = restored.expect("a snapshot can be restored");
    assert!(recovered.is_whole(), "{recovered:?}");
    let items = small::contents(&store).len() as u64;
    let status = info.shard.expect("a shard reports its status");
    assert_eq!(items, status.tables.iter().map(|table| table.items).sum::<u64>());
    if spec.options == small::options() {
        small::put_to_use(&mut store);
    }
}

async fn info(router: &mut ReplayRouter) -> v1::InfoReply {
    let (code, replies) = call(router, "Info", framed(&[]), PATIENCE).await;
    assert_eq!(code, Some(Code::Ok), "a shard always says where it stands");
    v1::InfoReply::decode(replies[0].clone()).expect("its own")
}

/// Makes one call to its end: the status, if it came in time, and the replies.
async fn call(
    router: &mut ReplayRouter,
    method: &str,
    body: Vec<u8>,
    patience: Duration,
) -> (Option<Code>, Vec<Bytes>) {
    let mut replies = Vec::new();
    let request = http::Request::post(format!("/quiver.v1.Replay/{method}"))
        .header("content-type", "application/grpc")
        .body(Body::new(Full::<Bytes>::from(body)))
        .expect("a request");
    let answer = async {
        let (head, body) = router.call(request).await.expect("a status at worst").into_parts();
        let body = body.collect().await.expect("nothing breaks in memory");
        let status = body.trailers().map_or_else(|| status(&head.headers), status);
        let mut bytes = body.to_bytes();
        while bytes.len() >= 5 {
            assert_eq!(bytes.get_u8(), 0, "nothing is compressed");
            let length = bytes.get_u32() as usize;
            replies.push(bytes.split_to(length));
        }
        status
    };
    let code = timeout(patience, answer).await.ok().map(|status| status.expect("an answer has a status"));
    (code, replies)
}

pub(crate) fn status(headers: &http::HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()))
}

/// A message as it travels.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// The message with this shard's incarnation where a seed has a stand-in, and with the right checksum if `sealed`.
fn own(method: usize, message: &[u8], incarnation: u32, sealed: bool) -> Vec<u8> {
    let own = |given: &mut u32| {
        if *given == OWN_INCARNATION {
            *given = incarnation;
        }
    };
    match METHODS[method] {
        "Insert" if sealed => rewritten(message, |request: &mut v1::InsertRequest| {
            if let Some(Request::Chunk(chunk)) = &mut request.message {
                chunk.frames_crc32c = crc32c::crc32c(&chunk.frames);
            }
        }),
        "Sample" => rewritten(message, |request: &mut v1::SampleRequest| {
            request.updates.iter_mut().for_each(|updates| own(&mut updates.shard_incarnation));
            request.allowance.iter_mut().for_each(|allowance| own(&mut allowance.shard_incarnation));
        }),
        "UpdatePriorities" => rewritten(message, |request: &mut v1::UpdatePrioritiesRequest| {
            request.updates.iter_mut().for_each(|updates| own(&mut updates.shard_incarnation));
        }),
        "Grant" => rewritten(message, |request: &mut v1::GrantRequest| {
            request.allowance.iter_mut().for_each(|allowance| own(&mut allowance.shard_incarnation));
        }),
        "GetItem" => rewritten(message, |request: &mut v1::GetItemRequest| {
            request.key.iter_mut().for_each(|key| own(&mut key.shard_incarnation));
        }),
        _ => message.to_vec(),
    }
}

/// A message changed, or as it is if it is none.
fn rewritten<M: Message + Default>(message: &[u8], change: impl FnOnce(&mut M)) -> Vec<u8> {
    match M::decode(message) {
        Ok(mut decoded) => {
            change(&mut decoded);
            decoded.encode_to_vec()
        }
        Err(_) => message.to_vec(),
    }
}

fn grant() -> v1::GrantRequest {
    let spec = proto::StoreSpec { options: small::options(), codec: replay::codec::Codec::Delta, actions: 4 };
    v1::GrantRequest {
        caller: Some(proto::caller("run")),
        learner_incarnation: 1,
        store: Some(proto::convert::store_message(&spec)),
        ticket_key: ticket_key().as_bytes().to_vec().into(),
        ..v1::GrantRequest::default()
    }
}

fn ticket_key() -> TicketKey {
    TicketKey::from_bytes(&[7; 32]).expect("the length of a key")
}

pub fn seeds() -> Vec<Vec<u8>> {
    let hello = v1::InsertHello {
        caller: Some(proto::caller("run")),
        actor: 0,
        incarnation: 1,
        codec: "delta".into(),
        frame_bytes: small::FRAME_BYTES as u32,
        stack: small::STACK as u32,
        ticket: Identity { run: "run", role: TicketRole::Actor, index: 0, incarnation: 1 }
            .ticket(&ticket_key())
            .into(),
        ..v1::InsertHello::default()
    };
    let mut lane = FuzzLane::new(0, 1, 0);
    let request = |message| v1::InsertRequest { message: Some(message) }.encode_to_vec();
    let mut inserts = vec![request(Request::Hello(hello))];
    inserts.extend(
        (1..9).map(|steps| request(Request::Chunk(proto::convert::chunk_message(lane.chunk(steps))))),
    );
    let inserts = one(INSERT, &inserts);
    let own = OWN_INCARNATION;
    let updates = v1::Updates {
        shard_incarnation: own,
        slots: vec![0, 1, 2],
        generations: vec![0, 1, 2],
        priorities: vec![0.5, 1.5, 4.0],
        removed_slots: vec![3],
        removed_generations: vec![3],
        ..v1::Updates::default()
    };
    let caller = || Some(proto::caller("run"));
    let sample = v1::SampleRequest {
        caller: caller(),
        learner_incarnation: 1,
        points: vec![0.1, 0.5, 0.9],
        updates: Some(updates.clone()),
        ..v1::SampleRequest::default()
    };
    let sample = one(1, &[sample.encode_to_vec(), v1::SampleRequest { table: 1, ..sample }.encode_to_vec()]);
    let update =
        v1::UpdatePrioritiesRequest { caller: caller(), learner_incarnation: 1, updates: Some(updates) };
    let update = one(2, &[update.encode_to_vec()]);
    let allowance = Some(v1::Allowance { shard_incarnation: own, inserts: 100 });
    let granted = one(3, &[v1::GrantRequest { allowance, ..grant() }.encode_to_vec()]);
    let configure =
        v1::ConfigureRequest { table: "main".into(), capacity: Some(20), priority_exponent: Some(0.9) };
    let configure = one(4, &[configure.encode_to_vec()]);
    let look = v1::ItemKey { shard_incarnation: own, slot: 1, generation: 1 };
    let look = one(7, &[v1::GetItemRequest { table: String::new(), key: Some(look) }.encode_to_vec()]);
    let top = one(6, &[v1::InspectRequest { table: "other".into(), top: 3 }.encode_to_vec()]);
    let rest = [one(5, &[Vec::new()]), top, look, one(8, &[Vec::new()])].concat();
    vec![
        [vec![1], inserts.clone()].concat(),
        [vec![1], inserts.clone(), sample.clone(), update.clone(), rest.clone()].concat(),
        [vec![1], inserts.clone(), configure, sample, rest].concat(),
        [vec![0], granted.clone(), inserts, update].concat(),
        [vec![0], granted].concat(),
    ]
}

/// A call as [`run`] reads it.
fn one(method: usize, messages: &[Vec<u8>]) -> Vec<u8> {
    let head = [method as u8 | SEALED, messages.len() as u8];
    [&head[..], &messages.iter().flat_map(|message| piece(message)).collect::<Vec<u8>>()].concat()
}
