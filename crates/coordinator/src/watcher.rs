//! A member's stream of weights, and what all of them together may hold.
//!
//! A member that reads slowly, or not at all, must not hold memory for ever: a stream ends when a message is not taken in
//! time, and when a version takes too long. A member has one such task; its next stream ends the last.
#![allow(clippy::disallowed_methods, reason = "a stream owns its deadlines")]

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use proto::v1::watch_weights_reply::Update;
use proto::{Segments, Weights, v1};
use rpc::shard_entry::ShardEntry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_stream::Stream;
use tonic::Status;

use crate::hub::{Connected, Hub};
use crate::members::MemberRole;

/// Time between two progress messages to a member, which are also heartbeats: a member that misses several considers
/// the learner dead.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How long a member may take to read a message of at most 128 KiB. It considers a learner dead that is silent for 15 s.
const TAKE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The slowest link that a version may be sent over: with 64 KiB/s, a version of 6.8 MB takes less than two minutes.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Open streams of one member: the one that it reads, and one of a connection whose end the server has not noticed yet.
const STREAMS_OF_MEMBER_MAX: usize = 2;

/// Open streams of all members: as many as the server accepts connections.
const STREAMS_MAX: usize = 4096;

/// Different versions of the weights that are sent to actors at the same time. Slow readers share them: without this
/// bound, each could hold a version of its own in memory.
const VERSIONS_MAX: usize = 8;

/// A member: role, index, incarnation.
pub(crate) type Member = (MemberRole, u32, u64);
pub(crate) type Reply = Result<v1::WatchWeightsReply, Status>;

/// Why a stream can't be opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("this member has {STREAMS_OF_MEMBER_MAX} streams of weights already: close one, or retry later")]
    OfMember,
    #[error("the learner serves {STREAMS_MAX} streams of weights at most: retry later")]
    InAll,
}

/// The open streams, and the versions that they send.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Arc<Semaphore>,
    open: Arc<Mutex<BTreeMap<Member, usize>>>,
    /// The task of each index, whichever incarnation holds it.
    tasks: Mutex<BTreeMap<(MemberRole, u32), AbortHandle>>,
    /// Versions that may be in transit to actors, oldest first.
    versions: Mutex<Vec<Weak<Weights>>>,
}

impl Streams {
    pub fn new() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(STREAMS_MAX)),
            open: Arc::default(),
            tasks: Mutex::default(),
            versions: Mutex::default(),
        }
    }

    /// A slot for a stream of this member.
    pub fn open(&self, member: Member) -> Result<StreamSlot, TooMany> {
        let permit = self.slots.clone().try_acquire_owned().map_err(|_| TooMany::InAll)?;
        let mut open = lock(&self.open);
        let count = open.entry(member).or_default();
        if *count == STREAMS_OF_MEMBER_MAX {
            return Err(TooMany::OfMember);
        }
        *count += 1;
        Ok(StreamSlot { open: self.open.clone(), member, _permit: permit })
    }

    /// Ends the task that an earlier stream of this index has.
    pub fn replace_task(&self, (role, index, _): Member, task: AbortHandle) {
        let mut tasks = lock(&self.tasks);
        tasks.retain(|_, task| !task.is_finished());
        if let Some(former) = tasks.insert((role, index), task) {
            former.abort();
        }
    }

    /// The version to send to an actor: the newest, or the newest of those in transit if they are too many.
    fn version(&self, newest: Arc<Weights>) -> Arc<Weights> {
        let mut versions = lock(&self.versions);
        versions.retain(|version| version.strong_count() > 0);
        let held = versions.last().and_then(Weak::upgrade);
        match held {
            Some(held) if held.version >= newest.version || versions.len() >= VERSIONS_MAX => held,
            _ => {
                versions.push(Arc::downgrade(&newest));
                newest
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of an open stream. The body of the response holds it, not the task: a body that is not read stays in memory
/// after its task has ended.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    open: Arc<Mutex<BTreeMap<Member, usize>>>,
    member: Member,
    _permit: OwnedSemaphorePermit,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(&self.member) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.member);
            }
        }
    }
}

/// The messages of a stream, with its slot.
#[derive(Debug)]
pub(crate) struct Replies {
    pub messages: mpsc::Receiver<Reply>,
    pub _slot: StreamSlot,
}

impl Stream for Replies {
    type Item = Reply;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Reply>> {
        self.messages.poll_recv(cx)
    }
}

/// A version in transit.
struct Sending {
    segments: Segments,
    /// When the member must have all of it.
    until: Instant,
}

/// One member's stream of weights.
pub(crate) struct Watcher {
    hub: Arc<Hub>,
    member: Member,
    weights: watch::Receiver<Option<Arc<Weights>>>,
    /// The rest of the version in transit. It is sent to its end before a newer one begins: on a link that takes longer
    /// for a version than the learner takes for the next, the member would otherwise never complete one.
    sending: Option<Sending>,
    /// The last version that was begun.
    begun: Option<replay::WeightsVersion>,
    shards: watch::Receiver<Vec<ShardEntry>>,
    replies: mpsc::Sender<Reply>,
    _connected: Connected,
}

impl Watcher {
    pub fn new(hub: &Arc<Hub>, member: Member, replies: mpsc::Sender<Reply>) -> Self {
        let (role, index, incarnation) = member;
        Self {
            hub: hub.clone(),
            member,
            weights: hub.watch_weights(role),
            sending: None,
            begun: None,
            shards: hub.watch_shards(),
            replies,
            _connected: hub.connected(role, index, incarnation),
        }
    }

    pub async fn run(mut self) {
        let mut finished = self.hub.watch_finished();
        let mut progress = interval(PROGRESS_EVERY);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.weights.mark_changed();
        // A shard may have moved since the member joined.
        self.shards.mark_changed();
        while let Some(update) = self.next_update(&mut finished, &mut progress).await {
            let reply = self.reply(update);
            let ends = reply.as_ref().map_or(true, |reply| matches!(reply.update, Some(Update::Finished(_))));
            let taken = timeout(TAKE_WAIT_MAX, self.replies.send(reply)).await;
            if ends || !matches!(taken, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The message with this update, or the status that ends the stream.
    fn reply(&mut self, update: Option<Update>) -> Reply {
        let (role, index, incarnation) = self.member;
        self.hub
            .check(role, index, incarnation)
            .map_err(|denied| Status::failed_precondition(denied.to_string()))?;
        if self.sending.as_ref().is_some_and(|sending| Instant::now() > sending.until) {
            return Err(Status::unavailable("the weights were read too slowly: read faster, or retry later"));
        }
        let agent_steps = self.hub.replay_status().agent_steps;
        let moved = self.shards.has_changed().unwrap_or(false);
        let shards =
            if moved { self.shards.borrow_and_update().iter().map(Into::into).collect() } else { Vec::new() };
        Ok(v1::WatchWeightsReply { agent_steps, update, shards })
    }

    /// Begins to send the newest version that the member does not have.
    fn begin(&mut self, newest: Option<Arc<Weights>>) {
        let is_actor = self.member.0 == MemberRole::Actor;
        let Some(mut weights) = newest else { return };
        if is_actor {
            weights = self.hub.streams().version(weights);
            if self.begun >= Some(weights.version) {
                return;
            }
        }
        self.begun = Some(weights.version);
        let seconds = weights.safetensors.len() as u64 / BYTES_PER_SECOND_MIN;
        let until = Instant::now() + TAKE_WAIT_MAX + Duration::from_secs(seconds);
        self.sending = Some(Sending { segments: Segments::new(weights), until });
    }

    /// Waits for something to send: the end of the run, the next segment of weights, or `Some(None)`, which is a message
    /// of progress. `None` if the stream has ended.
    async fn next_update(
        &mut self,
        finished: &mut watch::Receiver<bool>,
        progress: &mut Interval,
    ) -> Option<Option<Update>> {
        loop {
            if *finished.borrow() {
                return Some(Some(Update::Finished(v1::Finished {})));
            }
            if let Some(segment) = self.sending.as_mut().and_then(|sending| sending.segments.next()) {
                return Some(Some(Update::Segment(segment)));
            }
            self.sending = None;
            tokio::select! {
                biased;
                _ = finished.wait_for(|finished| *finished) => {}
                changed = self.weights.changed() => {
                    changed.ok()?;
                    let newest = self.weights.borrow_and_update().clone();
                    self.begin(newest);
                }
                _ = self.shards.changed() => {
                    // Read by the caller, after the check that the member still holds its index.
                    self.shards.mark_changed();
                    return Some(None);
                }
                _ = progress.tick() => return Some(None),
                () = self.replies.closed() => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::WeightsVersion;

    const MEMBER: Member = (MemberRole::Actor, 3, 7);

    #[test]
    fn a_member_has_two_streams_at_most_and_all_members_a_bounded_number() {
        let streams = Streams::new();
        let first = streams.open(MEMBER).unwrap();
        let _second = streams.open(MEMBER).unwrap();
        assert_eq!(streams.open(MEMBER).unwrap_err(), TooMany::OfMember);
        drop(first);
        let _third = streams.open(MEMBER).unwrap();
        let others: Vec<_> =
            (0..).map_while(|index| streams.open((MemberRole::Actor, 10 + index, 1)).ok()).collect();
        assert_eq!(others.len(), STREAMS_MAX - 2);
        assert_eq!(streams.open((MemberRole::Actor, 1, 1)).unwrap_err(), TooMany::InAll);
        drop(others);
        assert_eq!(lock(&streams.open).len(), 1, "nothing is kept of closed streams");
    }

    #[test]
    fn slow_readers_share_a_bounded_number_of_versions() {
        let streams = Streams::new();
        let weights = |number| {
            let version = WeightsVersion { incarnation: 1, number };
            Arc::new(Weights { version, safetensors: vec![0; 9].into(), evaluation: None })
        };
        let held: Vec<_> = (1..100).map(|number| streams.version(weights(number))).collect();
        let mut different: Vec<u64> = held.iter().map(|weights| weights.version.number).collect();
        different.dedup();
        assert_eq!(different.len(), VERSIONS_MAX);
        drop(held);
        assert_eq!(streams.version(weights(100)).version.number, 100, "the others have ended");
    }
}
