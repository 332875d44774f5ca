//! How many insert streams there may be: in all, of one actor, and without a hello.
//!
//! A stream has no identity before its hello. Then there is no telling whose it is, so if there are too many of these,
//! the oldest makes room: an honest writer sends its hello with the call and is past this state within milliseconds.
//! An actor's streams are bounded, so that one actor cannot keep the others out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use crate::insert_budget::actor_budget;
use crate::refusal::Refusal;

/// The most streams without a hello.
const PENDING_MAX: usize = 256;
/// The most streams of one actor. An actor of Quiver has one to each shard, and for some seconds a broken one that the
/// shard has not noticed. A Python process has one for each of its writers, which are one actor.
const ACTOR_STREAMS_MAX: usize = 256;

/// The insert streams of a shard. Clones share them.
#[derive(Clone)]
pub(crate) struct InsertStreams(Arc<Shared>);

struct Shared {
    /// The most streams with a hello.
    most: usize,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    next: u64,
    /// Streams without a hello, oldest first. Sending ends one.
    pending: VecDeque<(u64, oneshot::Sender<()>)>,
    identified: usize,
    actors: BTreeMap<u32, ActorStreams>,
}

struct ActorStreams {
    count: usize,
    budget: Arc<Semaphore>,
}

impl InsertStreams {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, streams: Mutex::default() }))
    }

    /// A new stream, which has not sent its hello. If there are too many of these, ends the oldest.
    pub fn enter(&self) -> PendingStream {
        let (end, ended) = oneshot::channel();
        let mut streams = self.lock();
        if streams.pending.len() >= PENDING_MAX
            && let Some((_, oldest)) = streams.pending.pop_front()
        {
            // If this fails, the stream has just ended.
            let _ = oldest.send(());
        }
        let number = streams.next;
        streams.next += 1;
        streams.pending.push_back((number, end));
        drop(streams);
        PendingStream { streams: self.clone(), number, ended }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream without a hello.
pub(crate) struct PendingStream {
    streams: InsertStreams,
    number: u64,
    ended: oneshot::Receiver<()>,
}

impl PendingStream {
    /// Resolves when a newer stream has taken the place of this one.
    pub async fn ended(&mut self) -> Refusal {
        match (&mut self.ended).await {
            Ok(()) => Refusal::PendingStreams { most: PENDING_MAX },
            // Only dropping this removes the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Turns it into a stream of an actor, unless there are too many.
    pub fn identify(self, actor: u32) -> Result<ActorStream, Refusal> {
        let mut streams = self.streams.lock();
        if streams.identified >= self.streams.0.most {
            let remedy = "use fewer actors or more shards";
            return Err(Refusal::TooManyStreams { kind: "insert", most: self.streams.0.most, remedy });
        }
        let fresh = || ActorStreams { count: 0, budget: actor_budget() };
        let of_actor = streams.actors.entry(actor).or_insert_with(fresh);
        if of_actor.count >= ACTOR_STREAMS_MAX {
            return Err(Refusal::ActorStreams { actor, most: ACTOR_STREAMS_MAX });
        }
        of_actor.count += 1;
        let budget = of_actor.budget.clone();
        streams.identified += 1;
        drop(streams);
        Ok(ActorStream { streams: self.streams.clone(), actor, budget })
    }
}

impl Drop for PendingStream {
    fn drop(&mut self) {
        self.streams.lock().pending.retain(|(number, _)| *number != self.number);
    }
}

/// A stream of an actor. Its place is free again when this is dropped.
pub(crate) struct ActorStream {
    streams: InsertStreams,
    actor: u32,
    /// What all streams of the actor may hold together.
    pub budget: Arc<Semaphore>,
}

impl Drop for ActorStream {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        streams.identified -= 1;
        if let Some(of_actor) = streams.actors.get_mut(&self.actor) {
            of_actor.count -= 1;
            if of_actor.count == 0 {
                streams.actors.remove(&self.actor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn silent_streams_cannot_keep_out_a_writer_that_says_hello() {
        let streams = InsertStreams::new(4);
        let mut silent: Vec<PendingStream> = (0..PENDING_MAX).map(|_| streams.enter()).collect();
        let honest = streams.enter().identify(1).unwrap();
        assert_eq!(silent[0].ended().await, Refusal::PendingStreams { most: PENDING_MAX });
        assert_eq!(streams.lock().pending.len(), PENDING_MAX - 1);
        drop((silent, honest));
        let left = streams.lock();
        assert!(left.pending.is_empty() && left.actors.is_empty() && left.identified == 0);
    }

    #[test]
    fn one_actor_cannot_take_all_streams() {
        let streams = InsertStreams::new(ACTOR_STREAMS_MAX + 1);
        let mut held: Vec<ActorStream> =
            (0..ACTOR_STREAMS_MAX).map(|_| streams.enter().identify(7).unwrap()).collect();
        let refused = streams.enter().identify(7).err();
        assert_eq!(refused, Some(Refusal::ActorStreams { actor: 7, most: ACTOR_STREAMS_MAX }));
        held.push(streams.enter().identify(8).unwrap());
        assert!(matches!(streams.enter().identify(9).err(), Some(Refusal::TooManyStreams { .. })));
        held.remove(0);
        assert!(streams.enter().identify(7).is_ok());
    }
}
