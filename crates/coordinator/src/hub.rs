//! State shared by the learner's gRPC service and its training thread: members, published weights, reports, settings.
//!
//! Published values are watch channels behind methods: a reader sees the newest value, may miss those before it, and
//! never blocks the publisher. A version of the weights is one file, whose bytes all streams share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::{Report, Weights};
use replay::{ReplayStatus, TicketKey};
use rpc::shard_entry::ShardEntry;
use rpc::ticket::{Identity, TicketRole};
use run::adjusted::{self, Changes};
use settings::Resolved;
use tokio::sync::watch;
use tracing::info;

use crate::adjust;
use crate::clock::Clock;
use crate::members::{Denied, MemberRole, Members};
use crate::reports::{self, Busy, ReportSender, Reports};
use crate::watcher::Streams;

/// What never changes during one start of the learner.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// The run's name, unique over all runs.
    pub run: String,
    pub incarnation: u32,
    /// The number of this start of the learner.
    pub start: u32,
    /// Whether the run had members before this start, which may reconnect.
    pub resumed: bool,
    /// The key of the tickets of the run's members.
    pub ticket_key: TicketKey,
    /// The run's configuration as JSON.
    pub config: String,
    /// The network's architecture as JSON.
    pub architecture: String,
}

#[cfg(test)]
impl RunInfo {
    /// The first start of a run.
    pub(crate) fn for_tests() -> Self {
        Self {
            run: "run".into(),
            incarnation: 1,
            start: 1,
            resumed: false,
            ticket_key: TicketKey::from_bytes(&[7; 32]).unwrap(),
            config: String::new(),
            architecture: String::new(),
        }
    }
}

/// Published by the prefetcher, read by the service.
#[derive(Debug)]
pub struct HubInputs {
    /// The shard directory, by number.
    pub shards: watch::Receiver<Vec<ShardEntry>>,
    /// What the replay holds.
    pub replay: watch::Receiver<ReplayStatus>,
}

/// The newest weights, shared by all streams that send them.
type Published = watch::Sender<Option<Arc<Weights>>>;

/// State shared by the service and the training thread.
#[derive(Debug)]
pub struct Hub {
    run_info: RunInfo,
    clock: Clock,
    directory: PathBuf,
    members: Mutex<Members>,
    inputs: HubInputs,
    weights: Published,
    /// For evaluators: the newest weights whose evaluation was requested.
    evaluation: Published,
    finished: watch::Sender<bool>,
    /// The run's settings, including an operator's changes.
    resolved: watch::Sender<Resolved>,
    reports: ReportSender,
    streams: Streams,
}

impl Hub {
    /// A hub without members, and the queues of reports.
    pub fn new(
        run_info: RunInfo,
        resolved: Resolved,
        directory: PathBuf,
        inputs: HubInputs,
        clock: Clock,
    ) -> (Arc<Self>, Reports) {
        let (reports, receiver) = reports::queues();
        let mut members = Members::new(run_info.incarnation);
        if run_info.resumed {
            members.await_former(clock.now());
        }
        let hub = Self {
            members: Mutex::new(members),
            run_info,
            clock,
            directory,
            inputs,
            weights: watch::Sender::new(None),
            evaluation: watch::Sender::new(None),
            finished: watch::Sender::new(false),
            resolved: watch::Sender::new(resolved),
            reports,
            streams: Streams::new(),
        };
        (Arc::new(hub), receiver)
    }

    pub fn run_info(&self) -> &RunInfo {
        &self.run_info
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The current settings of the run.
    pub fn settings(&self) -> Resolved {
        self.resolved.borrow().clone()
    }

    /// The current settings, updated whenever an operator changes them.
    pub fn watch_settings(&self) -> watch::Receiver<Resolved> {
        self.resolved.subscribe()
    }

    /// Changes settings of the run: all of the changes are applied and saved, or none.
    pub fn adjust(&self, changes: &Changes) -> Result<Resolved, String> {
        let mut outcome = Err("no settings to change: name at least one".to_owned());
        let (held, shards) = (self.replay_status(), self.shards());
        self.resolved.send_if_modified(|resolved| {
            // Saved before it takes effect: a learner that dies now restarts with the change.
            outcome = adjust::changed(resolved, changes, shards.len(), &held).and_then(|changed| {
                adjust::check_remaining(&resolved.settings, &changed.settings, &shards, &held.reachable)?;
                adjusted::save(&self.directory, changes).map_err(|error| error.to_string())?;
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
        self.inputs.replay.borrow().clone()
    }

    /// The current shard directory, by number.
    pub fn shards(&self) -> Vec<ShardEntry> {
        self.inputs.shards.borrow().clone()
    }

    /// The shard directory, updated whenever it changes.
    pub fn watch_shards(&self) -> watch::Receiver<Vec<ShardEntry>> {
        self.inputs.shards.clone()
    }

    /// Publishes weights to all actors.
    pub fn publish(&self, weights: Arc<Weights>) {
        self.weights.send_replace(Some(weights));
    }

    /// Requests an evaluation of weights, which carry the request. Replaces a request that no evaluator has started.
    pub fn request_evaluation(&self, weights: Arc<Weights>) {
        self.evaluation.send_replace(Some(weights));
    }

    /// Withdraws a request that was reported, so that an evaluator that joins later does not play it again.
    pub fn withdraw_evaluation(&self, number: u64) {
        self.evaluation.send_if_modified(|waiting| {
            let request = waiting.as_ref().and_then(|weights| weights.evaluation);
            if request.is_some_and(|request| request.number == number) {
                *waiting = None;
            }
            // Evaluators have no reason to wake up.
            false
        });
    }

    /// The weights that members of this role receive.
    pub fn watch_weights(&self, role: MemberRole) -> watch::Receiver<Option<Arc<Weights>>> {
        match role {
            MemberRole::Actor => self.weights.subscribe(),
            MemberRole::Evaluator => self.evaluation.subscribe(),
        }
    }

    /// Publishes that the run has finished.
    pub fn finish(&self) {
        self.finished.send_replace(true);
    }

    /// Whether the run has finished.
    pub fn is_finished(&self) -> bool {
        *self.finished.borrow()
    }

    /// Whether the run has finished, updated when it does.
    pub fn watch_finished(&self) -> watch::Receiver<bool> {
        self.finished.subscribe()
    }

    /// [`Members::join`] at the current time.
    pub fn join(&self, role: MemberRole, requested: Option<u32>) -> Result<(u32, u64), Denied> {
        self.members().join(role, requested, self.clock.now())
    }

    /// [`Members::rejoin`] at the current time.
    pub fn rejoin(&self, role: MemberRole, index: u32, incarnation: u64) -> Result<(), Denied> {
        self.members().rejoin(role, index, incarnation, self.clock.now())
    }

    /// [`Members::renew`] at the current time.
    pub fn renew(&self, role: MemberRole, index: u32, incarnation: u64) -> Result<u64, Denied> {
        self.members().renew(role, index, incarnation, self.clock.now())
    }

    /// The ticket of a member.
    pub fn ticket(&self, role: MemberRole, index: u32, incarnation: u64) -> Vec<u8> {
        self.identity(role, index, incarnation).ticket(&self.run_info.ticket_key)
    }

    /// Whether a ticket proves a member of this run, of this start of the learner or a former one.
    pub fn is_proven(&self, role: MemberRole, index: u32, incarnation: u64, ticket: &[u8]) -> bool {
        self.identity(role, index, incarnation).is_proven(&self.run_info.ticket_key, ticket)
    }

    fn identity(&self, role: MemberRole, index: u32, incarnation: u64) -> Identity<'_> {
        let role = match role {
            MemberRole::Actor => TicketRole::Actor,
            MemberRole::Evaluator => TicketRole::Evaluator,
        };
        Identity { run: &self.run_info.run, role, index, incarnation }
    }

    /// [`Members::check`].
    pub fn check(&self, role: MemberRole, index: u32, incarnation: u64) -> Result<(), Denied> {
        self.members().check(role, index, incarnation)
    }

    /// Counts a member's stream until the guard is dropped.
    pub fn connected(self: &Arc<Self>, role: MemberRole, index: u32, incarnation: u64) -> Connected {
        self.members().count_stream(role, index, incarnation, 1, self.clock.now());
        Connected { hub: self.clone(), role, index, incarnation }
    }

    /// [`Members::joins`].
    pub fn joins(&self, role: MemberRole) -> u64 {
        self.members().joins(role)
    }

    /// [`Members::present`].
    pub fn present(&self, role: MemberRole) -> u32 {
        self.members().present(role)
    }

    /// Queues the reports of one message for the training thread, or none of them.
    pub fn report(&self, role: MemberRole, index: u32, reports: Vec<Report>) -> Result<(), Busy> {
        self.reports.send((role, index), reports)
    }

    /// The streams of weights.
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a member's open stream.
#[derive(Debug)]
pub struct Connected {
    hub: Arc<Hub>,
    role: MemberRole,
    index: u32,
    incarnation: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let &mut Self { role, index, incarnation, .. } = self;
        let now = self.hub.clock.now();
        if self.hub.members().count_stream(role, index, incarnation, -1, now) {
            info!(role = role.name(), index, incarnation, "member disconnected");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(directory: PathBuf) -> Arc<Hub> {
        let run_info = RunInfo::for_tests();
        let resolved = settings::Layers::default().resolve(Some("cartpole")).unwrap();
        let shard = ShardEntry::unnamed("shard:1".parse().unwrap());
        let inputs = HubInputs {
            shards: watch::channel(vec![shard]).1,
            replay: watch::channel(ReplayStatus::default()).1,
        };
        Hub::new(run_info, resolved, directory, inputs, Clock::system()).0
    }

    #[test]
    fn a_change_is_applied_and_saved_or_neither() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path().to_owned());
        let settings = hub.watch_settings();
        let one = |key: &str, text: &str| Changes::from([(key.to_owned(), text.to_owned())]);
        assert!(hub.adjust(&one("capacity", "1")).is_err());
        assert!(!settings.has_changed().unwrap());
        assert_eq!(adjusted::load(folder.path()).unwrap(), Changes::new());
        hub.adjust(&one("samples_per_insert", "4")).unwrap();
        assert_eq!(settings.borrow().settings.samples_per_insert.0, Some(4.0));
        assert_eq!(adjusted::load(folder.path()).unwrap(), one("samples_per_insert", "4"));
    }

    #[test]
    fn a_member_is_present_while_its_stream_is_open() {
        let hub = hub(PathBuf::new());
        let (index, incarnation) = hub.join(MemberRole::Actor, None).unwrap();
        assert_eq!((hub.present(MemberRole::Actor), hub.joins(MemberRole::Actor)), (0, 1));
        let stream = hub.connected(MemberRole::Actor, index, incarnation);
        assert_eq!(hub.present(MemberRole::Actor), 1);
        drop(stream);
        assert_eq!(hub.present(MemberRole::Actor), 0);
    }
}
