//! What the learner's service and its training share: who is in the run, what is published, what was reported.
//!
//! Publications are watch channels: a reader sees the newest and misses what lay between, and a slow one holds nobody
//! up. Weights are serialised once, and all streams share the bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::{Report, Weights};
use rpc::place::Place;
use run::adjusted::{self, Changes};
use settings::Resolved;
use tokio::sync::{mpsc, watch};

use crate::adjust::{self, Held};

/// Reports that may wait for the training thread, which looks for them several times a second.
pub const REPORTS_MAX: usize = 1024;

/// What never changes while this learner lives.
#[derive(Clone, Debug)]
pub struct Charter {
    /// The run's name, unique over all runs.
    pub run: String,
    /// Which start of the learner.
    pub incarnation: u32,
    /// The run's configuration as JSON.
    pub config: String,
    /// The network's shape as JSON.
    pub architecture: String,
}

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
const MEMBERS_MAX: u32 = 8192;

/// How long a place is kept for a newcomer that has not opened its stream: it does so at once.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);

/// Shared by the service and the training thread.
#[derive(Debug)]
pub struct Hub {
    /// What never changes.
    pub charter: Charter,
    members: Mutex<Members>,
    /// The newest weights, for actors.
    pub weights: watch::Sender<Option<Arc<Weights>>>,
    /// The newest weights that wait to be evaluated.
    pub evaluation: watch::Sender<Option<Arc<Weights>>>,
    /// Agent steps of the whole run.
    pub agent_steps: watch::Sender<u64>,
    /// The run has ended.
    pub finished: watch::Sender<bool>,
    /// Where the shards are, by number.
    pub shards: watch::Sender<Vec<Place>>,
    /// Items in the replay, and the bytes that they take.
    pub held: watch::Sender<(u64, u64)>,
    /// The run's settings, with what was changed since its start.
    pub resolved: watch::Sender<Resolved>,
    /// Where the run is kept.
    pub directory: PathBuf,
    reports: mpsc::Sender<Report>,
}

#[derive(Debug, Default)]
struct Members {
    by_place: BTreeMap<(Role, u32), Member>,
    joined: u32,
    joins: BTreeMap<Role, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    incarnation: u64,
    streams: u32,
    joined: Instant,
}

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

impl Hub {
    /// A run with nobody in it yet.
    pub fn new(
        charter: Charter,
        resolved: Resolved,
        directory: PathBuf,
        shards: Vec<Place>,
    ) -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (reports, receiver) = mpsc::channel(REPORTS_MAX);
        let hub = Self {
            charter,
            members: Mutex::default(),
            weights: watch::Sender::new(None),
            evaluation: watch::Sender::new(None),
            agent_steps: watch::Sender::new(0),
            finished: watch::Sender::new(false),
            shards: watch::Sender::new(shards),
            held: watch::Sender::new((0, 0)),
            resolved: watch::Sender::new(resolved),
            directory,
            reports,
        };
        (Arc::new(hub), receiver)
    }

    /// Changes settings of the run, if all of the change can be.
    pub fn adjust(&self, changes: &Changes) -> Result<Resolved, String> {
        let mut outcome = Err("nothing was asked for".to_owned());
        let (items, bytes) = *self.held.borrow();
        let held = Held { shards: self.shards.borrow().len(), items, bytes };
        self.resolved.send_if_modified(|resolved| {
            // Kept first: a learner that dies now comes back with it.
            outcome = adjust::changed(resolved, changes, held).and_then(|changed| {
                adjusted::keep(&self.directory, changes).map_err(|error| error.to_string())?;
                Ok(changed)
            });
            let Ok(changed) = &outcome else { return false };
            *resolved = changed.clone();
            true
        });
        outcome
    }

    /// Gives a newcomer a place: the one it wishes for, whose former owner is fenced, or the lowest that nobody uses.
    pub fn join(&self, role: Role, wish: Option<u32>) -> Result<(u32, u64), Denied> {
        let mut members = self.members();
        let taken = |index: &u32| {
            let holds = |member: &Member| member.streams > 0 || member.joined.elapsed() < STREAM_PATIENCE;
            members.by_place.get(&(role, *index)).is_some_and(holds)
        };
        let index = wish.or_else(|| (0..MEMBERS_MAX).find(|index| !taken(index)));
        let index = index.filter(|&index| index < MEMBERS_MAX).ok_or(Denied::Full { most: MEMBERS_MAX })?;
        // Unique and growing over all starts of the learner, which are counted in the run's directory.
        members.joined += 1;
        *members.joins.entry(role).or_default() += 1;
        let incarnation = u64::from(self.charter.incarnation) << 32 | u64::from(members.joined);
        members.by_place.insert((role, index), Member { incarnation, streams: 0, joined: Instant::now() });
        Ok((index, incarnation))
    }

    /// Takes back a member of before: this learner may be a later one than it had joined.
    pub fn rejoin(&self, role: Role, index: u32, incarnation: u64) -> Result<(), Denied> {
        let mut members = self.members();
        let newest = members.by_place.get(&(role, index)).map(|member| member.incarnation);
        match newest {
            Some(newest) if newest > incarnation => {
                Err(Denied::Replaced { role: role.name(), index, incarnation, newest })
            }
            Some(newest) if newest == incarnation => Ok(()),
            _ if index >= MEMBERS_MAX => Err(Denied::Full { most: MEMBERS_MAX }),
            _ => {
                members
                    .by_place
                    .insert((role, index), Member { incarnation, streams: 0, joined: Instant::now() });
                Ok(())
            }
        }
    }

    /// Checks that whoever calls has its place still.
    pub fn check(&self, role: Role, index: u32, incarnation: u64) -> Result<(), Denied> {
        let members = self.members();
        let name = role.name();
        let newest =
            members.by_place.get(&(role, index)).ok_or(Denied::Unknown { role: name, index })?.incarnation;
        match newest == incarnation {
            true => Ok(()),
            false => Err(Denied::Replaced { role: name, index, incarnation, newest }),
        }
    }

    /// Counts a stream of a member for as long as the guard lives.
    pub fn connected(self: &Arc<Self>, role: Role, index: u32, incarnation: u64) -> Connected {
        self.count_stream((role, index), incarnation, 1);
        Connected { hub: self.clone(), place: (role, index), incarnation }
    }

    /// Members that joined as new ones, in this learner's life.
    pub fn joins(&self, role: Role) -> u64 {
        self.members().joins.get(&role).copied().unwrap_or_default()
    }

    /// Members that are connected now.
    pub fn present(&self, role: Role) -> u32 {
        let members = self.members();
        let present = |(place, member): &(&(Role, u32), &Member)| place.0 == role && member.streams > 0;
        members.by_place.iter().filter(present).count() as u32
    }

    /// Hands a report to the training thread; waits while it is busy.
    pub async fn report(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    fn count_stream(&self, place: (Role, u32), incarnation: u64, change: i32) {
        if let Some(member) = self.members().by_place.get_mut(&place)
            && member.incarnation == incarnation
        {
            member.streams = member.streams.saturating_add_signed(change);
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member's open stream.
#[derive(Debug)]
pub struct Connected {
    hub: Arc<Hub>,
    place: (Role, u32),
    incarnation: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.hub.count_stream(self.place, self.incarnation, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(incarnation: u32) -> Arc<Hub> {
        hub_in(PathBuf::new(), incarnation)
    }

    fn hub_in(directory: PathBuf, incarnation: u32) -> Arc<Hub> {
        let charter =
            Charter { run: "run".into(), incarnation, config: String::new(), architecture: String::new() };
        let resolved = settings::resolve::Layers::default().resolve(Some("cartpole")).unwrap();
        let shard = Place::unheard("shard:1".parse().unwrap());
        Hub::new(charter, resolved, directory, vec![shard]).0
    }

    #[test]
    fn a_change_is_done_and_kept_or_neither() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub_in(folder.path().to_owned(), 1);
        let heard = hub.resolved.subscribe();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert!(hub.adjust(&one("capacity", "1")).is_err());
        assert!(!heard.has_changed().unwrap());
        assert_eq!(adjusted::kept(folder.path()).unwrap(), Changes::new());
        hub.adjust(&one("samples_per_insert", "4")).unwrap();
        assert_eq!(heard.borrow().settings.samples_per_insert.0, Some(4.0));
        assert_eq!(adjusted::kept(folder.path()).unwrap(), one("samples_per_insert", "4"));
    }

    #[test]
    fn newcomers_get_the_lowest_free_place() {
        let hub = hub(1);
        let (first, incarnation) = hub.join(Role::Actor, None).unwrap();
        let stream = hub.connected(Role::Actor, first, incarnation);
        assert_eq!(hub.join(Role::Actor, None).unwrap().0, 1);
        assert_eq!(hub.join(Role::Evaluator, None).unwrap().0, 0, "evaluators have places of their own");
        assert_eq!((hub.present(Role::Actor), hub.present(Role::Evaluator)), (1, 0));
        drop(stream);
        assert_eq!(hub.join(Role::Actor, None).unwrap().0, 2, "a place is kept for a moment");
        hub.members().by_place.get_mut(&(Role::Actor, 0)).unwrap().joined -= STREAM_PATIENCE;
        assert_eq!(hub.join(Role::Actor, None).unwrap().0, 0);
        assert_eq!((hub.joins(Role::Actor), hub.joins(Role::Evaluator)), (4, 1));
    }

    #[test]
    fn whoever_takes_a_place_fences_its_former_owner() {
        let hub = hub(1);
        let (_, old) = hub.join(Role::Actor, Some(3)).unwrap();
        let (_, new) = hub.join(Role::Actor, Some(3)).unwrap();
        assert!(new > old);
        assert!(hub.check(Role::Actor, 3, new).is_ok());
        assert!(matches!(hub.check(Role::Actor, 3, old), Err(Denied::Replaced { .. })));
        assert!(matches!(hub.rejoin(Role::Actor, 3, old), Err(Denied::Replaced { .. })));
    }

    #[test]
    fn a_member_of_a_former_learner_goes_on_and_newcomers_are_newer() {
        let (_, old) = hub(1).join(Role::Actor, Some(0)).unwrap();
        let later = hub(2);
        assert!(matches!(later.check(Role::Actor, 0, old), Err(Denied::Unknown { .. })));
        later.rejoin(Role::Actor, 0, old).unwrap();
        assert!(later.check(Role::Actor, 0, old).is_ok());
        assert!(later.join(Role::Actor, Some(0)).unwrap().1 > old);
    }

    #[test]
    fn there_is_an_end_to_how_many_can_join() {
        let hub = hub(1);
        assert_eq!(hub.join(Role::Actor, Some(MEMBERS_MAX)), Err(Denied::Full { most: MEMBERS_MAX }));
        assert!(hub.rejoin(Role::Actor, u32::MAX, 5).is_err());
    }
}
