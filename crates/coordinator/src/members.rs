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
    joined: u32,
    joins: BTreeMap<MemberRole, u64>,
}

#[derive(Clone, Copy, Debug)]
struct MemberRecord {
    incarnation: u64,
    streams: u32,
    joined: Instant,
}

impl Members {
    /// No members, at the start of the learner with this incarnation.
    pub fn new(learner_incarnation: u32) -> Self {
        Self { learner_incarnation, by_index: BTreeMap::new(), joined: 0, joins: BTreeMap::new() }
    }

    /// Adds a member at the index it requests, whose current holder is fenced, or at the lowest free index. Returns the
    /// index and the incarnation.
    pub fn join(
        &mut self,
        role: MemberRole,
        requested: Option<u32>,
        now: Instant,
    ) -> Result<(u32, u64), Denied> {
        let taken = |index: &u32| {
            let reserved =
                |member: &MemberRecord| now.saturating_duration_since(member.joined) < STREAM_WAIT_MAX;
            let holds = |member: &MemberRecord| member.streams > 0 || reserved(member);
            self.by_index.get(&(role, *index)).is_some_and(holds)
        };
        let index = requested.or_else(|| (0..MEMBERS_MAX).find(|index| !taken(index)));
        let index = index.ok_or(Denied::Full { most: MEMBERS_MAX })?;
        check_index(role, index)?;
        // Unique and increasing over all starts of the learner, which the run directory counts.
        self.joined += 1;
        *self.joins.entry(role).or_default() += 1;
        let incarnation = u64::from(self.learner_incarnation) << 32 | u64::from(self.joined);
        self.by_index.insert((role, index), MemberRecord { incarnation, streams: 0, joined: now });
        Ok((index, incarnation))
    }

    /// Readmits a member that joined an earlier start of the learner.
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
                self.by_index.insert((role, index), MemberRecord { incarnation, streams: 0, joined: now });
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
    pub fn count_stream(&mut self, role: MemberRole, index: u32, incarnation: u64, change: i32) -> bool {
        if let Some(member) = self.by_index.get_mut(&(role, index))
            && member.incarnation == incarnation
        {
            member.streams = member.streams.saturating_add_signed(change);
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
        members.count_stream(MemberRole::Actor, first, incarnation, 1);
        assert_eq!(members.join(MemberRole::Actor, None, now).unwrap().0, 1);
        assert_eq!(
            members.join(MemberRole::Evaluator, None, now).unwrap().0,
            0,
            "evaluators have their own indices"
        );
        assert_eq!((members.present(MemberRole::Actor), members.present(MemberRole::Evaluator)), (1, 0));
        members.count_stream(MemberRole::Actor, first, incarnation, -1);
        assert_eq!(
            members.join(MemberRole::Actor, None, now).unwrap().0,
            2,
            "an index is reserved for a moment"
        );
        assert_eq!(members.join(MemberRole::Actor, None, now + STREAM_WAIT_MAX).unwrap().0, 0);
        assert_eq!((members.joins(MemberRole::Actor), members.joins(MemberRole::Evaluator)), (4, 1));
    }

    #[test]
    fn a_member_that_takes_an_index_fences_its_former_holder() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let (_, old) = members.join(MemberRole::Actor, Some(3), now).unwrap();
        let (_, new) = members.join(MemberRole::Actor, Some(3), now).unwrap();
        assert!(new > old);
        assert!(members.check(MemberRole::Actor, 3, new).is_ok());
        assert!(matches!(members.check(MemberRole::Actor, 3, old), Err(Denied::Replaced { .. })));
        assert!(matches!(members.rejoin(MemberRole::Actor, 3, old, now), Err(Denied::Replaced { .. })));
    }

    #[test]
    fn a_member_of_an_earlier_learner_rejoins_and_new_members_have_larger_incarnations() {
        let now = Instant::now();
        let (_, old) = Members::new(1).join(MemberRole::Actor, Some(0), now).unwrap();
        let mut later = Members::new(2);
        assert!(matches!(later.check(MemberRole::Actor, 0, old), Err(Denied::Unknown { .. })));
        later.rejoin(MemberRole::Actor, 0, old, now).unwrap();
        assert!(later.check(MemberRole::Actor, 0, old).is_ok());
        assert!(later.join(MemberRole::Actor, Some(0), now).unwrap().1 > old);
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
