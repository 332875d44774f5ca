//! What the learner's gRPC service and its trainer share: members, publications, reports, settings.
//!
//! Publications are watch channels behind methods: a reader sees the newest value and misses what lay between, and a slow
//! reader holds nobody up. Weights are serialised once, and all streams share the bytes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::{Report, Weights};
use replay::ReplayStatus;
use rpc::place::Place;
use run::adjusted::{self, Changes};
use settings::Resolved;
use tokio::sync::{mpsc, watch};

use crate::adjust;
use crate::clock::Clock;
use crate::members::{Denied, Members, Role};

/// Reports that may wait for the training thread, which reads them several times a second.
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

/// What others of the learner publish and the service reads.
#[derive(Debug)]
pub struct Sources {
    /// Where the shards are, by number.
    pub places: watch::Receiver<Vec<Place>>,
    /// What the replay holds.
    pub replay: watch::Receiver<ReplayStatus>,
}

/// Newest weights, shared by all streams that send them.
type Published = watch::Sender<Option<Arc<Weights>>>;

/// Shared by the service and the training thread.
#[derive(Debug)]
pub struct Hub {
    charter: Charter,
    clock: Clock,
    /// Where the run is kept.
    directory: PathBuf,
    members: Mutex<Members>,
    sources: Sources,
    /// For actors.
    weights: Published,
    /// For evaluators: the newest weights that wait for an evaluation.
    evaluation: Published,
    finished: watch::Sender<bool>,
    /// The run's settings, with what an operator has changed since the start.
    resolved: watch::Sender<Resolved>,
    reports: mpsc::Sender<Report>,
}

impl Hub {
    /// A run without members, and the reports that members will send.
    pub fn new(
        charter: Charter,
        resolved: Resolved,
        directory: PathBuf,
        sources: Sources,
        clock: Clock,
    ) -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (reports, receiver) = mpsc::channel(REPORTS_MAX);
        let hub = Self {
            members: Mutex::new(Members::new(charter.incarnation)),
            charter,
            clock,
            directory,
            sources,
            weights: watch::Sender::new(None),
            evaluation: watch::Sender::new(None),
            finished: watch::Sender::new(false),
            resolved: watch::Sender::new(resolved),
            reports,
        };
        (Arc::new(hub), receiver)
    }

    /// What never changes.
    pub fn charter(&self) -> &Charter {
        &self.charter
    }

    /// Where the run is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The run's settings as they are now.
    pub fn settings(&self) -> Resolved {
        self.resolved.borrow().clone()
    }

    /// The run's settings, whenever an operator changes them.
    pub fn watch_settings(&self) -> watch::Receiver<Resolved> {
        self.resolved.subscribe()
    }

    /// Changes settings of the run: all of the change or none of it.
    pub fn adjust(&self, changes: &Changes) -> Result<Resolved, String> {
        let mut outcome = Err("nothing was asked for".to_owned());
        let (held, shards) = (self.replay_status(), self.sources.places.borrow().len());
        self.resolved.send_if_modified(|resolved| {
            // Written first: a learner that dies now restarts with the change.
            outcome = adjust::changed(resolved, changes, shards, &held).and_then(|changed| {
                adjusted::keep(&self.directory, changes).map_err(|error| error.to_string())?;
                Ok(changed)
            });
            let Ok(changed) = &outcome else { return false };
            *resolved = changed.clone();
            true
        });
        outcome
    }

    /// What the replay holds.
    pub fn replay_status(&self) -> ReplayStatus {
        self.sources.replay.borrow().clone()
    }

    /// Where the shards are now.
    pub fn places(&self) -> Vec<Place> {
        self.sources.places.borrow().clone()
    }

    /// Where the shards are, whenever that changes.
    pub fn watch_places(&self) -> watch::Receiver<Vec<Place>> {
        self.sources.places.clone()
    }

    /// Publishes weights to all actors.
    pub fn publish(&self, weights: Arc<Weights>) {
        self.weights.send_replace(Some(weights));
    }

    /// Asks an evaluator to play weights; they carry the order. Replaces an order that no evaluator has taken.
    pub fn order_evaluation(&self, weights: Arc<Weights>) {
        self.evaluation.send_replace(Some(weights));
    }

    /// Withdraws an order that was reported, so that an evaluator that joins now does not play it again.
    pub fn withdraw_evaluation(&self, number: u64) {
        self.evaluation.send_if_modified(|waiting| {
            let order = waiting.as_ref().and_then(|weights| weights.order);
            if order.is_some_and(|order| order.number == number) {
                *waiting = None;
            }
            false
        });
    }

    /// The weights that a member of this role follows.
    pub fn watch_weights(&self, role: Role) -> watch::Receiver<Option<Arc<Weights>>> {
        match role {
            Role::Actor => self.weights.subscribe(),
            Role::Evaluator => self.evaluation.subscribe(),
        }
    }

    /// Announces that the run has ended.
    pub fn finish(&self) {
        self.finished.send_replace(true);
    }

    /// Whether the run has ended.
    pub fn is_finished(&self) -> bool {
        *self.finished.borrow()
    }

    /// Whether the run has ended, whenever that changes.
    pub fn watch_finished(&self) -> watch::Receiver<bool> {
        self.finished.subscribe()
    }

    /// [`Members::join`] now.
    pub fn join(&self, role: Role, wish: Option<u32>) -> Result<(u32, u64), Denied> {
        self.members().join(role, wish, self.clock.now())
    }

    /// [`Members::rejoin`] now.
    pub fn rejoin(&self, role: Role, index: u32, incarnation: u64) -> Result<(), Denied> {
        self.members().rejoin(role, index, incarnation, self.clock.now())
    }

    /// [`Members::check`].
    pub fn check(&self, role: Role, index: u32, incarnation: u64) -> Result<(), Denied> {
        self.members().check(role, index, incarnation)
    }

    /// Counts a stream of a member for as long as the guard lives.
    pub fn connected(self: &Arc<Self>, role: Role, index: u32, incarnation: u64) -> Connected {
        self.members().count_stream(role, index, incarnation, 1);
        Connected { hub: self.clone(), role, index, incarnation }
    }

    /// [`Members::joins`].
    pub fn joins(&self, role: Role) -> u64 {
        self.members().joins(role)
    }

    /// [`Members::present`].
    pub fn present(&self, role: Role) -> u32 {
        self.members().present(role)
    }

    /// Hands a report to the training thread; waits while its queue is full.
    pub async fn report(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member's open stream.
#[derive(Debug)]
pub struct Connected {
    hub: Arc<Hub>,
    role: Role,
    index: u32,
    incarnation: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.hub.members().count_stream(self.role, self.index, self.incarnation, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(directory: PathBuf) -> Arc<Hub> {
        let charter =
            Charter { run: "run".into(), incarnation: 1, config: String::new(), architecture: String::new() };
        let resolved = settings::Layers::default().resolve(Some("cartpole")).unwrap();
        let shard = Place::unheard("shard:1".parse().unwrap());
        let sources = Sources {
            places: watch::channel(vec![shard]).1,
            replay: watch::channel(ReplayStatus::default()).1,
        };
        Hub::new(charter, resolved, directory, sources, Clock::system()).0
    }

    #[test]
    fn a_change_is_done_and_kept_or_neither() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path().to_owned());
        let heard = hub.watch_settings();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert!(hub.adjust(&one("capacity", "1")).is_err());
        assert!(!heard.has_changed().unwrap());
        assert_eq!(adjusted::kept(folder.path()).unwrap(), Changes::new());
        hub.adjust(&one("samples_per_insert", "4")).unwrap();
        assert_eq!(heard.borrow().settings.samples_per_insert.0, Some(4.0));
        assert_eq!(adjusted::kept(folder.path()).unwrap(), one("samples_per_insert", "4"));
    }

    #[test]
    fn a_member_is_present_while_its_stream_is_open() {
        let hub = hub(PathBuf::new());
        let (index, incarnation) = hub.join(Role::Actor, None).unwrap();
        assert_eq!((hub.present(Role::Actor), hub.joins(Role::Actor)), (0, 1));
        let stream = hub.connected(Role::Actor, index, incarnation);
        assert_eq!(hub.present(Role::Actor), 1);
        drop(stream);
        assert_eq!(hub.present(Role::Actor), 0);
    }
}
