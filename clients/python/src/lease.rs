//! Which lanes of which actors this process writes.
//!
//! A shard takes one incarnation of an actor at a time, and of each lane its chunks in order. So all lanes of an actor in
//! this process share one incarnation, one writer has a lane at a time, and the next one goes on where it ended.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use replay::LaneKey;

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mark {
    pub sequence: u64,
    pub next_step: u64,
}

#[derive(Default)]
struct Actor {
    incarnation: u64,
    /// `None` while a writer has it.
    lanes: HashMap<u32, Option<Mark>>,
    /// Someone newer writes as this actor.
    replaced: bool,
}

type Actors = HashMap<(String, u32), Actor>;

static ACTORS: LazyLock<Mutex<Actors>> = LazyLock::new(Mutex::default);

fn actors() -> MutexGuard<'static, Actors> {
    ACTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lane of this process, held by one writer.
#[derive(Debug)]
pub struct Lease {
    address: String,
    pub key: LaneKey,
    pub from: Mark,
}

impl Lease {
    /// Takes a lane, unless a writer has it. With an incarnation of its own it is nobody else's business.
    pub fn take(address: &str, actor: u32, lane: u32, incarnation: Option<u64>) -> Option<Self> {
        let address = address.to_owned();
        if let Some(incarnation) = incarnation {
            return Some(Self { address, key: LaneKey { actor, incarnation, lane }, from: Mark::default() });
        }
        let mut actors = actors();
        let known = actors.entry((address.clone(), actor)).or_default();
        let idle = known.lanes.values().all(Option::is_some);
        if known.incarnation == 0 || known.replaced && idle {
            let clock = SystemTime::now().duration_since(UNIX_EPOCH);
            let clock = clock.map_or(1, |time| time.as_nanos() as u64);
            *known = Actor { incarnation: clock.max(known.incarnation + 1), ..Actor::default() };
        }
        let from = match known.lanes.insert(lane, None) {
            None => Mark::default(),
            Some(Some(mark)) => mark,
            Some(None) => return None,
        };
        Some(Self { address, key: LaneKey { actor, incarnation: known.incarnation, lane }, from })
    }

    /// Gives it back, for whoever comes next.
    pub fn give_back(&self, mark: Mark, replaced: bool) {
        let mut actors = actors();
        let Some(known) = actors.get_mut(&(self.address.clone(), self.key.actor)) else { return };
        if known.incarnation == self.key.incarnation {
            known.lanes.insert(self.key.lane, Some(mark));
            known.replaced |= replaced;
        }
    }
}
