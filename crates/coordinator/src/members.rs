//! Who is in a run: which actor or evaluator holds which index, and since when.
//!
//! State only, no channels and no clock of its own: [`crate::Hub`] locks it and passes the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Why someone can't be part of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Someone newer has its place.
    #[error("{role} {index} incarnation {incarnation} was replaced by {newest}: join again as a new one")]
    Replaced {
        /// What it is.
        role: &'static str,
        /// Its place.
        index: u32,
        /// Its incarnation.
        incarnation: u64,
        /// Who has the place now.
        newest: u64,
    },
    /// It never joined this learner.
    #[error("{role} {index} has not joined: call Join first")]
    Unknown {
        /// What it is.
        role: &'static str,
        /// Its place.
        index: u32,
    },
    /// There are too many.
    #[error("the run has {most} members already: start fewer actors")]
    Full {
        /// As many as there can be.
        most: u32,
    },
}

/// Members that a run can have: as many as the settings allow actors, and evaluators beside them.
pub const MEMBERS_MAX: u32 = 8192;

/// How long an index is reserved for a member that has not opened its stream yet: it does so at once.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Plays to learn.
    Actor,
    /// Plays for scores.
    Evaluator,
}

impl Role {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Role::Actor => "actor",
            Role::Evaluator => "evaluator",
        }
    }
}

/// The members of a run.
#[derive(Debug)]
pub struct Members {
    /// Which start of the learner: the upper half of every incarnation that is given out.
    learner_incarnation: u32,
    by_index: BTreeMap<(Role, u32), Member>,
    joined: u32,
    joins: BTreeMap<Role, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    incarnation: u64,
    streams: u32,
    joined: Instant,
}

impl Members {
    /// No members yet, at this start of the learner.
    pub fn new(learner_incarnation: u32) -> Self {
        Self { learner_incarnation, by_index: BTreeMap::new(), joined: 0, joins: BTreeMap::new() }
    }

    /// Adds a member at the index it asks for, whose former holder is fenced, or at the lowest free index. Returns index
    /// and incarnation.
    pub fn join(&mut self, role: Role, wish: Option<u32>, now: Instant) -> Result<(u32, u64), Denied> {
        let taken = |index: &u32| {
            let reserved = |member: &Member| now.saturating_duration_since(member.joined) < STREAM_PATIENCE;
            let holds = |member: &Member| member.streams > 0 || reserved(member);
            self.by_index.get(&(role, *index)).is_some_and(holds)
        };
        let index = wish.or_else(|| (0..MEMBERS_MAX).find(|index| !taken(index)));
        let index = index.filter(|&index| index < MEMBERS_MAX).ok_or(Denied::Full { most: MEMBERS_MAX })?;
        // Unique and growing over all starts of the learner, which are counted in the run's directory.
        self.joined += 1;
        *self.joins.entry(role).or_default() += 1;
        let incarnation = u64::from(self.learner_incarnation) << 32 | u64::from(self.joined);
        self.by_index.insert((role, index), Member { incarnation, streams: 0, joined: now });
        Ok((index, incarnation))
    }

    /// Takes back a member that joined an earlier start of the learner.
    pub fn rejoin(&mut self, role: Role, index: u32, incarnation: u64, now: Instant) -> Result<(), Denied> {
        let newest = self.by_index.get(&(role, index)).map(|member| member.incarnation);
        match newest {
            Some(newest) if newest > incarnation => {
                Err(Denied::Replaced { role: role.name(), index, incarnation, newest })
            }
            Some(newest) if newest == incarnation => Ok(()),
            _ if index >= MEMBERS_MAX => Err(Denied::Full { most: MEMBERS_MAX }),
            _ => {
                self.by_index.insert((role, index), Member { incarnation, streams: 0, joined: now });
                Ok(())
            }
        }
    }

    /// Checks that a caller still holds its index.
    pub fn check(&self, role: Role, index: u32, incarnation: u64) -> Result<(), Denied> {
        let name = role.name();
        let holder = self.by_index.get(&(role, index)).ok_or(Denied::Unknown { role: name, index })?;
        match holder.incarnation {
            newest if newest == incarnation => Ok(()),
            newest => Err(Denied::Replaced { role: name, index, incarnation, newest }),
        }
    }

    /// Counts a stream that a member opened (1) or closed (-1).
    pub fn count_stream(&mut self, role: Role, index: u32, incarnation: u64, change: i32) {
        if let Some(member) = self.by_index.get_mut(&(role, index))
            && member.incarnation == incarnation
        {
            member.streams = member.streams.saturating_add_signed(change);
        }
    }

    /// Members that joined as new ones since this start of the learner.
    pub fn joins(&self, role: Role) -> u64 {
        self.joins.get(&role).copied().unwrap_or_default()
    }

    /// Members that are connected now.
    pub fn present(&self, role: Role) -> u32 {
        let present = |(index, member): &(&(Role, u32), &Member)| index.0 == role && member.streams > 0;
        self.by_index.iter().filter(present).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_get_the_lowest_free_index() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let (first, incarnation) = members.join(Role::Actor, None, now).unwrap();
        members.count_stream(Role::Actor, first, incarnation, 1);
        assert_eq!(members.join(Role::Actor, None, now).unwrap().0, 1);
        assert_eq!(
            members.join(Role::Evaluator, None, now).unwrap().0,
            0,
            "evaluators have indices of their own"
        );
        assert_eq!((members.present(Role::Actor), members.present(Role::Evaluator)), (1, 0));
        members.count_stream(Role::Actor, first, incarnation, -1);
        assert_eq!(members.join(Role::Actor, None, now).unwrap().0, 2, "an index is reserved for a moment");
        assert_eq!(members.join(Role::Actor, None, now + STREAM_PATIENCE).unwrap().0, 0);
        assert_eq!((members.joins(Role::Actor), members.joins(Role::Evaluator)), (4, 1));
    }

    #[test]
    fn whoever_takes_an_index_fences_its_former_holder() {
        let (mut members, now) = (Members::new(1), Instant::now());
        let (_, old) = members.join(Role::Actor, Some(3), now).unwrap();
        let (_, new) = members.join(Role::Actor, Some(3), now).unwrap();
        assert!(new > old);
        assert!(members.check(Role::Actor, 3, new).is_ok());
        assert!(matches!(members.check(Role::Actor, 3, old), Err(Denied::Replaced { .. })));
        assert!(matches!(members.rejoin(Role::Actor, 3, old, now), Err(Denied::Replaced { .. })));
    }

    #[test]
    fn a_member_of_a_former_learner_resumes_and_newcomers_are_newer() {
        let now = Instant::now();
        let (_, old) = Members::new(1).join(Role::Actor, Some(0), now).unwrap();
        let mut later = Members::new(2);
        assert!(matches!(later.check(Role::Actor, 0, old), Err(Denied::Unknown { .. })));
        later.rejoin(Role::Actor, 0, old, now).unwrap();
        assert!(later.check(Role::Actor, 0, old).is_ok());
        assert!(later.join(Role::Actor, Some(0), now).unwrap().1 > old);
    }

    #[test]
    fn the_number_of_members_is_bounded() {
        let (mut members, now) = (Members::new(1), Instant::now());
        assert_eq!(
            members.join(Role::Actor, Some(MEMBERS_MAX), now),
            Err(Denied::Full { most: MEMBERS_MAX })
        );
        assert!(members.rejoin(Role::Actor, u32::MAX, 5, now).is_err());
    }
}
