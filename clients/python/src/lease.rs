//! Leases: which lanes of which actors this process writes.
//!
//! A shard accepts one incarnation of an actor at a time, and the chunks of each lane in order. So all lanes of an
//! actor in this process share one incarnation, a lane has one writer at a time, and its next writer continues where it
//! ended.
#![allow(clippy::disallowed_methods, reason = "Python callers wait in wall-clock time")]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use replay::LaneKey;

/// The next chunk and step of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LanePosition {
    pub sequence: u64,
    pub next_step: u64,
}

#[derive(Default)]
struct Actor {
    incarnation: u64,
    /// Position of each lane; `None` while a writer holds it.
    lanes: HashMap<u32, Option<LanePosition>>,
    /// A newer incarnation writes as this actor.
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
    /// Where the writer continues.
    pub from: LanePosition,
}

impl Lease {
    /// Takes a lane; `None` if a writer holds it. An explicit incarnation is independent of all other leases.
    pub fn take(address: &str, actor: u32, lane: u32, incarnation: Option<u64>) -> Option<Self> {
        let address = address.to_owned();
        if let Some(incarnation) = incarnation {
            return Some(Self {
                address,
                key: LaneKey { actor, incarnation, lane },
                from: LanePosition::default(),
            });
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
            None => LanePosition::default(),
            Some(Some(position)) => position,
            Some(None) => return None,
        };
        Some(Self { address, key: LaneKey { actor, incarnation: known.incarnation, lane }, from })
    }

    /// Releases the lane for its next writer.
    pub fn release(&self, position: LanePosition, replaced: bool) {
        let mut actors = actors();
        let Some(known) = actors.get_mut(&(self.address.clone(), self.key.actor)) else { return };
        if known.incarnation == self.key.incarnation {
            known.lanes.insert(self.key.lane, Some(position));
            known.replaced |= replaced;
        }
    }
}
