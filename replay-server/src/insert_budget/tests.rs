use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

/// A body that is read within the budget, and the sender of its frames.
fn body(budget: &Arc<StreamBudget>) -> (mpsc::Sender<Bytes>, Body) {
    let (frames, stream) = mpsc::channel(1000);
    let stream = ReceiverStream::new(stream).map(|bytes| Ok::<_, Status>(frame(bytes)));
    (frames, bounded(Body::new(StreamBody::new(stream)), budget.clone()))
}

fn frame(bytes: Bytes) -> http_body::Frame<Bytes> {
    http_body::Frame::data(bytes)
}

/// A message of this size, in frames of 64 KiB.
fn message(bytes: usize) -> Vec<Bytes> {
    let header = [&[0][..], &(bytes as u32).to_be_bytes()].concat();
    let whole = Bytes::from([header, vec![7; bytes]].concat());
    (0..whole.len()).step_by(64 << 10).map(|at| whole.slice(at..whole.len().min(at + (64 << 10)))).collect()
}

/// Reads until this many bytes of messages have arrived.
async fn read(body: &mut Body, bytes: usize) -> Result<(), Status> {
    let mut missing = bytes + HEADER_BYTES;
    while missing > 0 {
        let frame = body.frame().await.expect("the stream is open")?;
        missing -= frame.into_data().unwrap().len();
    }
    Ok(())
}

async fn send(frames: &mpsc::Sender<Bytes>, message: &[Bytes]) {
    for frame in message {
        frames.send(frame.clone()).await.unwrap();
    }
}

/// Whether a read is blocked, however long it waits.
async fn is_blocked(body: &mut Body) -> bool {
    tokio::time::timeout(Duration::from_secs(3600), body.frame()).await.is_err()
}

fn stream_of(actor: &Arc<Semaphore>, shard: &Arc<Semaphore>) -> Arc<StreamBudget> {
    let budget = StreamBudget::new(shard.clone());
    budget.set_actor(actor.clone());
    budget
}

#[tokio::test(start_paused = true)]
async fn an_actor_holds_no_more_bytes_than_its_budget_and_others_are_not_delayed() {
    let (actor, shard) = (actor_budget(), shard_budget());
    let large = message(INSERT_BYTES_MAX);
    let mut held = Vec::new();
    for _ in 0..4 {
        let (frames, mut body) = body(&stream_of(&actor, &shard));
        send(&frames, &large).await;
        read(&mut body, INSERT_BYTES_MAX).await.unwrap();
        held.push((frames, body));
    }
    assert_eq!(actor.available_permits(), 0);
    // The fifth is read no further than its first frame.
    let (frames, mut fifth) = body(&stream_of(&actor, &shard));
    send(&frames, &large).await;
    fifth.frame().await.unwrap().unwrap();
    assert!(is_blocked(&mut fifth).await);
    // Small messages of the same actor, and large ones of another, are read.
    let (small_frames, mut small) = body(&stream_of(&actor, &shard));
    send(&small_frames, &message(FREE_BYTES)).await;
    read(&mut small, FREE_BYTES).await.unwrap();
    let (other_frames, mut other) = body(&stream_of(&actor_budget(), &shard));
    send(&other_frames, &large).await;
    read(&mut other, INSERT_BYTES_MAX).await.unwrap();
    // A stream that reads on has stored its chunk.
    let (frames, mut first) = held.remove(0);
    send(&frames, &message(1)).await;
    read(&mut first, 1).await.unwrap();
    read(&mut fifth, INSERT_BYTES_MAX - large[0].len()).await.unwrap();
    // A stream that ends gives back what it holds.
    drop((held, first, fifth, other));
    assert_eq!(shard.available_permits(), SHARD_BYTES_MAX / PERMIT_BYTES);
}

#[tokio::test(start_paused = true)]
async fn all_actors_together_hold_no_more_than_the_budget_of_the_shard() {
    let shard = shard_budget();
    let large = message(INSERT_BYTES_MAX);
    let mut held = Vec::new();
    for _ in 0..SHARD_BYTES_MAX / INSERT_BYTES_MAX {
        let (frames, mut body) = body(&stream_of(&actor_budget(), &shard));
        send(&frames, &large).await;
        read(&mut body, INSERT_BYTES_MAX).await.unwrap();
        held.push((frames, body));
    }
    let (frames, mut next) = body(&stream_of(&actor_budget(), &shard));
    send(&frames, &large).await;
    next.frame().await.unwrap().unwrap();
    assert!(is_blocked(&mut next).await);
    held.pop();
    read(&mut next, INSERT_BYTES_MAX - large[0].len()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_message_that_does_not_arrive_is_cut_off() {
    let (actor, shard) = (actor_budget(), shard_budget());
    let (frames, mut body) = body(&stream_of(&actor, &shard));
    send(&frames, &message(INSERT_BYTES_MAX)[..2]).await;
    let cut_off = read(&mut body, INSERT_BYTES_MAX).await.unwrap_err();
    assert_eq!(cut_off.code(), tonic::Code::DeadlineExceeded);
    drop(body);
    assert_eq!(actor.available_permits(), ACTOR_BYTES_MAX / PERMIT_BYTES);
}

#[tokio::test]
async fn a_stream_without_a_hello_sends_nothing_large() {
    let budget = StreamBudget::new(shard_budget());
    let (frames, mut body) = body(&budget);
    send(&frames, &message(FREE_BYTES + 1)).await;
    let refused = read(&mut body, FREE_BYTES + 1).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[test]
fn messages_are_found_however_they_are_cut() {
    let whole: Vec<u8> = [3, 0, 300_000, 1].iter().flat_map(|&bytes| message(bytes).concat()).collect();
    for step in [1, 4, 5, 7, 1000, whole.len()] {
        let mut found = Message::default();
        let mut longest = 0;
        for piece in whole.chunks(step) {
            found.advance(&Bytes::copy_from_slice(piece));
            longest = longest.max(found.length);
        }
        assert!(found.is_complete() && found.header_bytes == 0 && found.length == 1);
        assert_eq!(longest, if step == whole.len() { 1 } else { 300_000 });
    }
}
