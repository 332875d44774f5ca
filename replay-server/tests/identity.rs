//! Identities are proven: what the holder of an actor's token can and cannot do in another actor's name.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::*;
use proto::v1;
use proto::v1::insert_reply::Reply;
use tonic::{Code, Status};

/// Opens a stream with this hello, writes a chunk, and returns the status with which the stream ends.
async fn refusal(client: &mut Client, hello: v1::InsertHello, chunk: v1::Chunk) -> Status {
    let writing = Writing::open(client, hello).await;
    // If it can't be sent, the stream has ended already.
    let request = v1::InsertRequest { message: Some(v1::insert_request::Message::Chunk(chunk)) };
    let _ = writing.requests.send(request).await;
    writing.refusal().await
}

/// The hello of an identity with the ticket of another.
fn forged(actor: u32, incarnation: u64, ticket: Vec<u8>) -> v1::InsertHello {
    v1::InsertHello { ticket: ticket.into(), ..hello(actor, incarnation) }
}

const UNPROVEN: &str = "the ticket does not prove actor";

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_cannot_write_in_the_name_of_another() {
    let (running, mut client) = Running::granted(1000).await;
    let mut victim = write(&mut client, 0..1).await;
    let before = state(&mut client).await;
    let own = || ticket(RUN, 5, 1);
    let tickets = [own(), Vec::new(), vec![0; 32], ticket("run-2", 0, 1), ticket(RUN, 0, 1)[1..].to_vec()];
    for ticket in tickets {
        let status = refusal(&mut client, forged(0, 1, ticket), chunk(0, 1, 0, 1)).await;
        assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    }
    assert_eq!(running.refused("identity"), 5.0);
    assert_eq!(state(&mut client).await, before, "nothing was stored");
    assert!(!victim.write(chunk(0, 1, 0, 1)).await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_cannot_choose_an_incarnation_that_fences_another() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    grant_inserts(&mut client, 1000).await;
    drop(write(&mut client, 0..1).await);
    for incarnation in [2, u64::MAX] {
        for ticket in [ticket(RUN, 0, 1), ticket(RUN, 5, incarnation)] {
            let chunk = chunk(0, incarnation, 0, 0);
            let status = refusal(&mut client, forged(0, incarnation, ticket), chunk).await;
            assert_status(&status, Code::FailedPrecondition, UNPROVEN);
        }
    }
    assert!(!write(&mut client, 1..2).await.write(chunk(0, 1, 0, 2)).await.duplicate);
    running.stop().await;
    // Nor does the shard remember it.
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    grant_inserts(&mut client, 1000).await;
    let mut victim = Writing::open(&mut client, hello(0, 1)).await;
    assert!(!victim.write(chunk(0, 1, 0, 3)).await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_sequence_number_does_not_turn_later_chunks_into_duplicates() {
    let (_running, mut client) = Running::granted(1000).await;
    let mut victim = write(&mut client, 0..1).await;
    let far = chunk(0, 1, 0, 1 << 40);
    let status = refusal(&mut client, forged(0, 1, ticket(RUN, 5, 1)), far).await;
    assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    for sequence in 1..4 {
        let stored = victim.write(chunk(0, 1, 0, sequence)).await;
        assert_eq!((stored.duplicate, stored.items, stored.chunks_lost), (false, 4, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_writes_only_as_the_identity_of_its_hello() {
    let (_running, mut client) = Running::granted(1000).await;
    let before = state(&mut client).await;
    for other in [chunk(1, 1, 0, 0), chunk(0, 2, 0, 0)] {
        let status = refusal(&mut client, hello(0, 1), other).await;
        assert_status(&status, Code::InvalidArgument, "on the stream of another writer");
    }
    let writing = Writing::open(&mut client, hello(0, 1)).await;
    let again = v1::insert_request::Message::Hello(hello(1, 1));
    writing.requests.send(v1::InsertRequest { message: Some(again) }).await.unwrap();
    assert_status(&writing.refusal().await, Code::InvalidArgument, "the first message must be the hello");
    assert_eq!(state(&mut client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_acknowledged_only_with_the_stored_content() {
    let (running, mut client) = Running::granted(1000).await;
    let mut writing = write(&mut client, 0..3).await;
    for sequence in 0..3 {
        assert!(writing.write(chunk(0, 1, 0, sequence)).await.duplicate, "the honest retry");
    }
    let mut other_frames = chunk(0, 1, 0, 1);
    set_frames(&mut other_frames, &(0..STEPS).map(|step| frame(9, 9, step)).collect::<Vec<_>>());
    let mut other_rewards = chunk(0, 1, 0, 1);
    other_rewards.steps.as_mut().unwrap().rewards[2] += 1.0;
    let mut other_items = chunk(0, 1, 0, 1);
    other_items.item_firsts[1] = other_items.item_firsts[0];
    let mut fewer_steps = chunk(0, 1, 0, 1);
    fewer_steps.first_step += 1;
    for other in [other_frames, other_rewards, other_items, fewer_steps] {
        let status = refusal(&mut client, hello(0, 1), other).await;
        assert_status(
            &status,
            Code::InvalidArgument,
            "chunk 1 of lane 0 was stored before with other content",
        );
    }
    assert_eq!(running.refused("conflict"), 4.0);
    assert!(!writing.write(chunk(0, 1, 0, 3)).await.duplicate, "the lane continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_shard_verifies_before_and_after_its_first_grant() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    grant_inserts(&mut client, 1000).await;
    drop(write(&mut client, 0..1).await);
    running.stop().await;
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    let status = refusal(&mut client, forged(0, 1, ticket(RUN, 5, 1)), chunk(0, 1, 0, 1)).await;
    assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    let mut honest = Writing::open(&mut client, hello(0, 1)).await;
    honest.send(chunk(0, 1, 0, 1)).await;
    assert!(matches!(honest.reply().await, Ok(Some(Reply::Blocked(_)))), "it waits for the allowance");
    grant_inserts(&mut client, 1000).await;
    assert!(!honest.stored().await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_without_files_keeps_writers_waiting_until_it_can_verify_them() {
    let running = Running::start().await;
    let mut client = running.client();
    let mut honest = Writing::open(&mut client, hello(0, 1)).await;
    let forger = Writing::open(&mut client, forged(0, 2, ticket(RUN, 5, 2))).await;
    assert!(matches!(honest.reply().await, Ok(Some(Reply::Blocked(_)))));
    grant_inserts(&mut client, 1000).await;
    assert_status(&forger.refusal().await, Code::FailedPrecondition, UNPROVEN);
    assert!(!honest.write(chunk(0, 1, 0, 0)).await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_learner_with_the_same_key_disturbs_no_chunk_in_flight() {
    let (running, mut client) = Running::granted(4).await;
    let mut writing = write(&mut client, 0..2).await;
    writing.send(chunk(0, 1, 0, 2)).await;
    assert!(matches!(writing.reply().await, Ok(Some(Reply::Blocked(_)))));
    patiently(client.grant(grant(2, running.allowance(1000)))).await.unwrap();
    assert!(!writing.stored().await.duplicate, "the stream is still open");
    let mut again = Writing::open(&mut client, hello(0, 1)).await;
    assert!(again.write(chunk(0, 1, 0, 2)).await.duplicate, "a ticket of the former start is valid");
    assert!(!again.write(chunk(0, 1, 0, 3)).await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_with_another_key_makes_older_tickets_invalid() {
    let (running, mut client) = Running::granted(1000).await;
    let mut open = write(&mut client, 0..1).await;
    let ticket_key = vec![8; 32].into();
    patiently(client.grant(v1::GrantRequest { ticket_key, ..grant(2, running.allowance(1000)) }))
        .await
        .unwrap();
    assert!(!open.write(chunk(0, 1, 0, 1)).await.duplicate, "an open stream continues");
    let status = refusal(&mut client, hello(0, 1), chunk(0, 1, 0, 2)).await;
    assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    // A learner that was replaced cannot set its key.
    refused(client.grant(grant(1, None)).await, Code::FailedPrecondition, "was replaced by 2");
    let status = refusal(&mut client, hello(0, 1), chunk(0, 1, 0, 2)).await;
    assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    let ticket_key = vec![8; 31].into();
    let request = v1::GrantRequest { ticket_key, ..grant(2, None) };
    refused(client.grant(request).await, Code::InvalidArgument, "length of ticket_key is 31");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_learner_the_shard_issues_tickets_with_a_key_of_its_own() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    let request =
        |run: &str| v1::IssueTicketRequest { caller: Some(proto::caller(run)), actor: 3, incarnation: 9 };
    refused(client.issue_ticket(request(RUN)).await, Code::Unavailable, "retry later");
    let keyless = |allowance| v1::GrantRequest { ticket_key: Vec::new().into(), ..grant(1, allowance) };
    patiently(client.grant(keyless(running.allowance(1000)))).await.unwrap();
    refused(client.issue_ticket(request("run-2")).await, Code::FailedPrecondition, "belongs to run");
    let issued = client.issue_ticket(request(RUN)).await.unwrap().into_inner().ticket;
    assert_ne!(issued, ticket(RUN, 3, 9), "the key is random");
    let own = v1::InsertHello { ticket: issued.clone(), ..hello(3, 9) };
    assert!(!Writing::open(&mut client, own.clone()).await.write(chunk(3, 9, 0, 0)).await.duplicate);
    let status = refusal(&mut client, forged(4, 9, issued.to_vec()), chunk(4, 9, 0, 0)).await;
    assert_status(&status, Code::FailedPrecondition, UNPROVEN);
    // Another grant without a key, and a restart, keep it.
    patiently(client.grant(keyless(None))).await.unwrap();
    running.stop().await;
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    patiently(client.grant(keyless(running.allowance(1000)))).await.unwrap();
    assert!(!Writing::open(&mut client, own).await.write(chunk(3, 9, 0, 1)).await.duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_in_no_answer_and_only_the_owner_can_read_its_file() {
    let data = tempfile::tempdir().unwrap();
    let running = Running::start_at("127.0.0.1:0", Some(data.path())).await;
    let mut client = running.client();
    grant_inserts(&mut client, 1000).await;
    drop(write(&mut client, 0..1).await);
    let (raw, hex) = (ticket_key().as_bytes().to_vec(), ticket_key().to_hex());
    let file = data.path().join("slot-0/shard.json");
    assert!(fs::read_to_string(&file).unwrap().contains(&hex), "a restarted shard needs it");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut snapshot = client.snapshot(v1::SnapshotRequest {}).await.unwrap().into_inner();
    let mut answers = Vec::new();
    while let Some(piece) = snapshot.message().await.unwrap() {
        answers.extend_from_slice(&piece.piece);
    }
    let info = client.info(v1::InfoRequest {}).await.unwrap().into_inner();
    let inspected = client.inspect(v1::InspectRequest { table: String::new(), top: 9 }).await.unwrap();
    let text = format!("{info:?}{:?}{:?}", inspected.into_inner(), grant(1, None));
    answers.extend_from_slice(text.as_bytes());
    let contains = |part: &[u8]| answers.windows(part.len()).any(|window| window == part);
    assert!(contains(RUN.as_bytes()), "the snapshot names its run");
    assert!(!contains(&raw) && !contains(hex.as_bytes()) && !text.contains(r"\x07\x07"));
}
