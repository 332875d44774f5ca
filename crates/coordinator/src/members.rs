//! The members of a run: which actor or evaluator holds which index, and since when.
//!
//! State only, without channels or a clock of its own: [`crate::Hub`] locks it and passes the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Why a caller can't be a member of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A newer incarnation holds its index.
    #[error("{role} {index} incarnation {incarnation} was replaced by {newest}: join again as a new member")]
    Replaced {
        role: &'static str,
        index: u32,
        incarnation: u64,
        /// The incarnation that holds the index now.
        newest: u64,
    },
    /// It has not joined this start of the learner.
    #[error("{role} {index} has not joined: call Join first")]
    Unknown { role: &'static str, index: u32 },
    /// Another member has the requested index.
    #[error(
        "{role} index {index} is taken by a member that is connected, or was so seconds ago: stop that one, or leave \
         --index out"
    )]
    Held { role: &'static str, index: u32 },
    /// The learner has just started, and does not know yet which indices are taken.
    #[error("the learner has restarted, and the actors of its former start rejoin first")]
    Reserved,
    /// The requested index is too large.
    #[error("{role} index {index} is too large: --index must be less than {most}")]
    IndexTooLarge { role: &'static str, index: u32, most: u32 },
    /// All indices are taken.
    #[error("the run has {most} members already: start fewer actors or evaluators")]
    Full {
        /// The largest possible number of members.
        most: u32,
    },
}

/// The largest number of members of each role: as many as the settings allow actors.
pub const MEMBERS_MAX: u32 = 8192;

/// How long an index is reserved for a member that has not opened its stream yet. Members open it at once.
const STREAM_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long the index of a member that lost its connection is reserved for it, and all indices after a restart of the
/// learner. Members retry at least every 2 s. A process that replaces a dead member waits as long.
const RECONNECT_WAIT: Duration = Duration::from_secs(3);

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberRole {
    /// Plays and writes experience to the shards.
    Actor,
    /// Plays for scores only.
    Evaluator,
}

impl MemberRole {
    /// The role's name, for people and metrics.
    pub fn name(self) -> &'static str {
        match self {
            MemberRole::Actor => "actor",
            MemberRole::Evaluator => "evaluator",
        }
    }
}

/// The members of a run.
#[derive(Debug)]
pub struct Members {
    /// The learner's incarnation: the upper half of every member incarnation assigned.
    learner_incarnation: u32,
    by_index: BTreeMap<(MemberRole, u32), MemberRecord>,
    /// Until then, only actors of the learner's former start may join.
    reserved_until: Option<Instant>,
    joined: u32,
    joins: BTreeMap<MemberRole, u64>,
}

#[derive(Clone, Copy, Debug)]
struct MemberRecord {
    incarnation: u64,
    streams: u32,
    /// Without a stream, the index is taken until then.
    held_until: Instant,
}

impl Members {
    /// No members, at the start of the learner with this incarnation.
    pub fn new(learner_incarnation: u32) -> Self {
        Self {
            learner_incarnation,
            by_index: BTreeMap::new(),
            reserved_until: None,
            joined: 0,
            joins: BTreeMap::new(),
        }
    }

    /// Reserves all indices of actors for those of the learner's former start. They come back with their tickets; a new
    /// actor at one of their indices would fence them.
    pub fn await_former(&mut self, now: Instant) {
        self.reserved_until = Some(now + RECONNECT_WAIT);
    }

    /// Adds a member at the index it requests, or at the lowest free index. Returns the index and the incarnation. Never
    /// takes an index from another member.
    pub fn join(
        &mut self,
        role: MemberRole,
        requested: Option<u32>,
        now: Instant,
    ) -> Result<(u32, u64), Denied> {
        if let Some(index) = requested {
            check_index(role, index)?;
        }
        if role == MemberRole::Actor && self.reserved_until.is_some_and(|until| now < until) {
            return Err(Denied::Reserved);
        }
        let taken = |index: &u32| {
            let holds = |member: &MemberRecord| member.streams > 0 || now < member.held_until;
            self.by_index.get(&(role, *index)).is_some_and(holds)
        };
        let index = match requested {
            Some(index) if taken(&index) => return Err(Denied::Held { role: role.name(), index }),
            Some(index) => index,
            None => (0..MEMBERS_MAX).find(|index| !taken(index)).ok_or(Denied::Full { most: MEMBERS_MAX })?,
        };
        Ok((index, self.assign(role, index, now)))
    }

    /// Gives the holder of an index a new incarnation, which fences its old one.
    pub fn renew(
        &mut self,
        role: MemberRole,
        index: u32,
        incarnation: u64,
        now: Instant,
    ) -> Result<u64, Denied> {
        self.rejoin(role, index, incarnation, now)?;
        Ok(self.assign(role, index, now))
    }

    /// Assigns an index to a new incarnation.
    fn assign(&mut self, role: MemberRole, index: u32, now: Instant) -> u64 {
        // Unique and increasing over all starts of the learner, which the run directory counts.
        self.joined += 1;
        *self.joins.entry(role).or_default() += 1;
        let incarnation = u64::from(self.learner_incarnation) << 32 | u64::from(self.joined);
        self.insert(role, index, incarnation, now);
        incarnation
    }

    fn insert(&mut self, role: MemberRole, index: u32, incarnation: u64, now: Instant) {
        let held_until = now + STREAM_WAIT_MAX;
        self.by_index.insert((role, index), MemberRecord { incarnation, streams: 0, held_until });
    }

    /// Readmits a member that has proven its incarnation, also of an earlier start of the learner.
    pub fn rejoin(
        &mut self,
        role: MemberRole,
        index: u32,
        incarnation: u64,
        now: Instant,
    ) -> Result<(), Denied> {
        let newest = self.by_index.get(&(role, index)).map(|member| member.incarnation);
        match newest {
            Some(newest) if newest > incarnation => {
                Err(Denied::Replaced { role: role.name(), index, incarnation, newest })
            }
            Some(newest) if newest == incarnation => Ok(()),
            _ => {
                check_index(role, index)?;
                self.insert(role, index, incarnation, now);
                Ok(())
            }
        }
    }

    /// Checks that the caller still holds its index.
    pub fn check(&self, role: MemberRole, index: u32, incarnation: u64) -> Result<(), Denied> {
        let name = role.name();
        let holder = self.by_index.get(&(role, index)).ok_or(Denied::Unknown { role: name, index })?;
        match holder.incarnation {
            newest if newest == incarnation => Ok(()),
            newest => Err(Denied::Replaced { role: name, index, incarnation, newest }),
        }
    }

    /// Counts a stream that a member opened (1) or closed (-1). Returns whether the member has none left.
    pub fn count_stream(
        &mut self,
        role: MemberRole,
        index: u32,
        incarnation: u64,
        change: i32,
        now: Instant,
    ) -> bool {
        if let Some(member) = self.by_index.get_mut(&(role, index))
            && member.incarnation == incarnation
        {
            member.streams = member.streams.saturating_add_signed(change);
            member.held_until = now + RECONNECT_WAIT;
            return member.streams == 0;
        }
        false
    }

    /// Number of new members since this start of the learner.
    pub fn joins(&self, role: MemberRole) -> u64 {
        self.joins.get(&role).copied().unwrap_or_default()
    }

    /// Number of connected members.
    pub fn present(&self, role: MemberRole) -> u32 {
        let present =
            |(index, member): &(&(MemberRole, u32), &MemberRecord)| index.0 == role && member.streams > 0;
        self.by_index.iter().filter(present).count() as u32
    }
}

fn check_index(role: MemberRole, index: u32) -> Result<(), Denied> {
    if index < MEMBERS_MAX {
        return Ok(());
    }
    Err(Denied::IndexTooLarge { role: role.name(), index, most: MEMBERS_MAX })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the test needs points in time to compute with")]

    use super::*;

    #[test]
    fn new_members_get_the_lowest_free_index() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let (first, incarnation) = members.join(MemberRole::Actor, None, now).unwrap();
        members.count_stream(MemberRole::Actor, first, incarnation, 1, now);
        assert_eq!(members.join(MemberRole::Actor, None, now).unwrap().0, 1);
        assert_eq!(
            members.join(MemberRole::Evaluator, None, now).unwrap().0,
            0,
            "evaluators have their own indices"
        );
        assert_eq!((members.present(MemberRole::Actor), members.present(MemberRole::Evaluator)), (1, 0));
        members.count_stream(MemberRole::Actor, first, incarnation, -1, now);
        assert_eq!(
            members.join(MemberRole::Actor, None, now).unwrap().0,
            2,
            "an index is reserved for a moment"
        );
        assert_eq!(members.join(MemberRole::Actor, None, now + RECONNECT_WAIT).unwrap().0, 0);
        assert_eq!((members.joins(MemberRole::Actor), members.joins(MemberRole::Evaluator)), (4, 1));
    }

    #[test]
    fn a_stranger_cannot_take_the_index_of_a_member() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let join = |members: &mut Members, now| members.join(MemberRole::Actor, Some(3), now);
        let held = Err(Denied::Held { role: "actor", index: 3 });
        let (_, old) = join(&mut members, now).unwrap();
        assert_eq!(join(&mut members, now), held, "it has yet to open its stream");
        members.count_stream(MemberRole::Actor, 3, old, 1, now);
        let later = now + 100 * STREAM_WAIT_MAX;
        assert_eq!(join(&mut members, later), held, "it is connected");
        members.count_stream(MemberRole::Actor, 3, old, -1, later);
        assert_eq!(join(&mut members, later), held, "it may reconnect");
        assert!(members.check(MemberRole::Actor, 3, old).is_ok(), "it was not fenced");
        let (_, new) = join(&mut members, later + RECONNECT_WAIT).unwrap();
        assert!(new > old);
        assert!(members.check(MemberRole::Actor, 3, new).is_ok());
        assert!(matches!(members.check(MemberRole::Actor, 3, old), Err(Denied::Replaced { .. })));
        assert!(matches!(members.rejoin(MemberRole::Actor, 3, old, now), Err(Denied::Replaced { .. })));
    }

    #[test]
    fn the_holder_of_an_index_gets_a_new_incarnation_at_once() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let (index, old) = members.join(MemberRole::Actor, None, now).unwrap();
        members.count_stream(MemberRole::Actor, index, old, 1, now);
        let new = members.renew(MemberRole::Actor, index, old, now).unwrap();
        assert!(new > old && members.check(MemberRole::Actor, index, new).is_ok());
        let late = members.renew(MemberRole::Actor, index, old, now);
        assert!(matches!(late, Err(Denied::Replaced { .. })), "it is no longer the holder");
    }

    #[test]
    fn after_a_restart_new_actors_wait_for_those_of_the_former_start() {
        let now = Instant::now();
        let (_, former) = Members::new(1).join(MemberRole::Actor, Some(0), now).unwrap();
        let mut members = Members::new(2);
        members.await_former(now);
        for requested in [None, Some(0)] {
            assert_eq!(members.join(MemberRole::Actor, requested, now), Err(Denied::Reserved));
        }
        members.join(MemberRole::Evaluator, None, now).unwrap();
        members.rejoin(MemberRole::Actor, 0, former, now).unwrap();
        assert_eq!(members.join(MemberRole::Actor, None, now + RECONNECT_WAIT).unwrap().0, 1);
        assert!(members.check(MemberRole::Actor, 0, former).is_ok());
    }

    #[test]
    fn a_member_of_an_earlier_learner_rejoins_and_new_members_have_larger_incarnations() {
        let now = Instant::now();
        let (_, old) = Members::new(1).join(MemberRole::Actor, Some(0), now).unwrap();
        let mut later = Members::new(2);
        assert!(matches!(later.check(MemberRole::Actor, 0, old), Err(Denied::Unknown { .. })));
        later.rejoin(MemberRole::Actor, 0, old, now).unwrap();
        assert!(later.check(MemberRole::Actor, 0, old).is_ok());
        assert!(later.join(MemberRole::Actor, Some(1), now).unwrap().1 > old);
        assert!(later.renew(MemberRole::Actor, 0, old, now).unwrap() > old);
    }

    #[test]
    fn the_number_of_members_is_bounded() {
        let (mut members, now) = (Members::new(1), Instant::now());
        assert_eq!(
            members.join(MemberRole::Actor, Some(MEMBERS_MAX), now),
            Err(Denied::IndexTooLarge { role: "actor", index: MEMBERS_MAX, most: MEMBERS_MAX })
        );
        assert!(members.rejoin(MemberRole::Actor, u32::MAX, 5, now).is_err());
    }
}
