//! Membership of an actor or evaluator in a run: joins, follows the newest weights, sends reports.
//!
//! One task holds the watch stream. If the learner goes away, the task retries forever and rejoins with the same index
//! and incarnation, so that lanes continue. A restarted learner has a newer incarnation, and its weights replace all
//! older ones, whatever their number.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use proto::limits::{EPISODES_MAX, OTHER_BYTES_MAX};
use proto::play::report_message;
use proto::v1::learner_client::LearnerClient;
use proto::v1::watch_weights_reply::Update as Message;
use proto::{PROTOCOL, Report, Weights, WeightsAssembly, caller, v1};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status};
use tracing::{info, warn};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::channel::{Channel, Credentials};
use crate::role::Role;
use crate::shard::{describe, is_refusal, is_shortage};
use crate::shard_entry::ShardEntry;

/// Timeout of an answer from the learner.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// The learner sends an update every second. A learner that is silent for this long hangs. So does one that sends updates,
/// but for this long no segment of the weights that it has begun.
const UPDATE_WAIT_MAX: Duration = Duration::from_secs(15);

/// Interval of the log line about an unreachable learner.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of queued reports. Episodes end far less often than the learner takes reports.
const REPORTS_MAX: usize = 256;

/// Why the learner refuses a member.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The newest known state of a run, as the learner publishes it.
#[derive(Clone, Debug, Default)]
pub struct WeightsUpdate {
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    pub weights: Option<Arc<Weights>>,
    /// The run has ended.
    pub finished: bool,
    /// Set if the learner no longer accepts this member: the reason.
    pub refused: Option<String>,
    /// Whether the learner currently answers.
    pub connected: bool,
    /// The shard directory, by shard number.
    pub shards: Vec<ShardEntry>,
}

/// Waits until the run has a shard that it does not do without. Returns the shard directory then. Cancel-safe.
pub async fn shards_in_use(updates: &mut watch::Receiver<WeightsUpdate>) -> Vec<ShardEntry> {
    let is_used = |update: &WeightsUpdate| update.shards.iter().any(|entry| !entry.excluded);
    match updates.wait_for(is_used).await {
        Ok(update) => update.shards.clone(),
        // The membership has ended, which its owner finds out by itself.
        Err(_) => std::future::pending().await,
    }
}

/// Handle of a member that has joined a run. Dropping it leaves the run.
#[derive(Debug)]
pub struct Membership {
    /// The learner's reply to the join request.
    pub joined: v1::JoinReply,
    /// The newest update from the learner.
    pub updates: watch::Receiver<WeightsUpdate>,
    reports: mpsc::Sender<Report>,
    following: Option<AbortHandle>,
}

impl Drop for Membership {
    /// Closes the watch stream, which frees the index for another member.
    fn drop(&mut self) {
        self.following.iter().for_each(AbortHandle::abort);
    }
}

/// The request of a new member, at this index once it is free, or at the lowest free one.
pub fn new_member(role: v1::Role, index: Option<u32>) -> v1::JoinRequest {
    v1::JoinRequest { protocol: PROTOCOL, role: role.into(), index, ..v1::JoinRequest::default() }
}

/// Joins the run of the learner at `address`. Retries until the learner answers with an index; only a refusal is an error.
pub async fn join(
    address: Address,
    credentials: &Credentials,
    request: v1::JoinRequest,
    seed: u64,
) -> Result<Membership, Refused> {
    let role = request.role();
    let client = LearnerClient::new(credentials.channel(Role::Learner, &address))
        .max_decoding_message_size(OTHER_BYTES_MAX)
        .max_encoding_message_size(OTHER_BYTES_MAX);
    let (update, updates) = watch::channel(WeightsUpdate::default());
    let (reports, outgoing) = mpsc::channel(REPORTS_MAX);
    let credentials = credentials.clone();
    let mut follower =
        Follower { address, credentials, client, role, backoff: Backoff::new(seed), warned_at: None, update };
    let joined = follower.join(request).await?;
    let shards = shard_entries(&joined.shards).map_err(Refused)?;
    follower.update.send_modify(|update| update.shards = shards);
    let following = if joined.finished {
        follower.update.send_modify(|update| update.finished = true);
        None
    } else {
        // This task ends by itself after the `Membership` is dropped and the last report is sent.
        tokio::spawn(send_reports(follower.client.clone(), membership(&joined, role), outgoing, seed));
        Some(tokio::spawn(follower.follow(joined.clone())).abort_handle())
    };
    Ok(Membership { joined, updates, reports, following })
}

impl Membership {
    /// The request of this member for a new incarnation at its index.
    pub fn renewal(&self, role: v1::Role) -> v1::JoinRequest {
        v1::JoinRequest { renew: true, ..same_member(&self.joined, role) }
    }

    /// Queues a report. False if the queue is full; the report is then dropped.
    pub fn report(&self, report: Report) -> bool {
        self.reports.try_send(report).is_ok()
    }

    /// Queues a report, waiting for room in the queue.
    pub async fn report_and_wait(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    /// Waits until all queued reports are sent, at most `patience`. Call before exit.
    pub async fn flush(&self, patience: Duration) {
        let _ = timeout(patience, self.reports.reserve_many(REPORTS_MAX)).await;
    }
}

/// The request of a member to keep its index and incarnation, which the ticket proves.
fn same_member(joined: &v1::JoinReply, role: v1::Role) -> v1::JoinRequest {
    v1::JoinRequest {
        run: joined.run.clone(),
        incarnation: joined.incarnation,
        ticket: joined.ticket.clone(),
        ..new_member(role, Some(joined.index))
    }
}

/// The fields that identify a member in each of its messages.
fn membership(joined: &v1::JoinReply, role: v1::Role) -> v1::ReportRequest {
    v1::ReportRequest {
        caller: Some(caller(&joined.run)),
        role: role.into(),
        index: joined.index,
        incarnation: joined.incarnation,
        ticket: joined.ticket.clone(),
        ..v1::ReportRequest::default()
    }
}

struct Follower {
    address: Address,
    credentials: Credentials,
    client: LearnerClient<Channel>,
    role: v1::Role,
    backoff: Backoff,
    warned_at: Option<Instant>,
    update: watch::Sender<WeightsUpdate>,
}

impl Follower {
    /// Retries until the learner answers; only a refusal is an error.
    async fn join(&mut self, request: v1::JoinRequest) -> Result<v1::JoinReply, Refused> {
        loop {
            let answer = timeout(ANSWER_WAIT_MAX, self.client.join(request.clone())).await;
            let status = match answer.unwrap_or_else(|_| Err(late())) {
                Ok(reply) => {
                    if self.warned_at.take().is_some() {
                        info!(learner = %self.address, "learner reachable again");
                    }
                    return Ok(reply.into_inner());
                }
                Err(status) => status,
            };
            if is_refusal(&status) {
                return Err(Refused(format!("the learner refuses this process: {}", status.message())));
            }
            self.wait(&status).await;
        }
    }

    async fn wait(&mut self, status: &Status) {
        self.update.send_if_modified(|update| std::mem::replace(&mut update.connected, false));
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned_at = Some(Instant::now());
            if status.code() == Code::AlreadyExists {
                info!(learner = %self.address, reason = status.message(), "waiting for an index of the run");
            } else {
                let error = self.credentials.describe(&self.address, status);
                warn!(learner = %self.address, error, "learner unreachable, retrying");
            }
        }
        sleep(self.backoff.next()).await;
    }

    async fn follow(mut self, mut joined: v1::JoinReply) {
        loop {
            let status = match self.watch(&joined).await {
                Ok(()) => return,
                Err(status) => status,
            };
            // A restarted learner answers FAILED_PRECONDITION because it does not know the member yet: join again.
            if is_refusal(&status) && status.code() != Code::FailedPrecondition {
                return self.refuse(describe(&status));
            }
            self.wait(&status).await;
            joined = match self.join(same_member(&joined, self.role)).await {
                Ok(reply) => reply,
                Err(Refused(reason)) => return self.refuse(reason),
            };
            if joined.finished {
                self.update.send_modify(|update| update.finished = true);
                return;
            }
            match shard_entries(&joined.shards) {
                Ok(shards) => self.update.send_modify(|update| update.shards = shards),
                Err(reason) => return self.refuse(reason),
            }
        }
    }

    fn refuse(&self, reason: String) {
        self.update.send_modify(|update| update.refused = Some(reason));
    }

    /// Follows the weights until the run has ended.
    async fn watch(&mut self, joined: &v1::JoinReply) -> Result<(), Status> {
        let request = v1::WatchWeightsRequest {
            caller: Some(caller(&joined.run)),
            role: self.role.into(),
            index: joined.index,
            incarnation: joined.incarnation,
            ticket: joined.ticket.clone(),
        };
        let answer =
            timeout(ANSWER_WAIT_MAX, self.client.watch_weights(request)).await.map_err(|_| silent())?;
        let messages = answer?.into_inner();
        // Not after a join: a learner that has no stream to spare admits members all the same.
        self.backoff.reset();
        receive(messages, &self.update, &mut self.warned_at).await
    }
}

/// Applies the learner's messages until the run has ended.
async fn receive(
    mut messages: impl Stream<Item = Result<v1::WatchWeightsReply, Status>> + Unpin,
    update: &watch::Sender<WeightsUpdate>,
    warned_at: &mut Option<Instant>,
) -> Result<(), Status> {
    let mut assembly = WeightsAssembly::default();
    let mut segment_at = Instant::now();
    loop {
        let message = timeout(UPDATE_WAIT_MAX, messages.next()).await.map_err(|_| silent())?;
        let message = message.unwrap_or_else(|| Err(Status::unavailable("the learner closed the stream")))?;
        *warned_at = None;
        let mut weights = None;
        if let Some(Message::Segment(segment)) = &message.update {
            segment_at = Instant::now();
            weights = assembly.add(segment).map_err(|invalid| {
                Status::data_loss(format!("the learner sent an invalid segment of weights: {invalid}"))
            })?;
        } else if assembly.is_incomplete() && segment_at.elapsed() >= UPDATE_WAIT_MAX {
            return Err(Status::deadline_exceeded("the learner does not complete the weights that it began"));
        }
        update.send_modify(|update| apply(update, &message, weights));
        if update.borrow().finished {
            return Ok(());
        }
    }
}

fn silent() -> Status {
    Status::deadline_exceeded("the learner is silent")
}

fn late() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))
}

/// The learner's shard directory.
fn shard_entries(shards: &[v1::ShardEntry]) -> Result<Vec<ShardEntry>, String> {
    let entry = |shard: &v1::ShardEntry| {
        ShardEntry::try_from(shard.clone()).map_err(|error| {
            format!("the learner sent an invalid shard address {:?}: {error}", shard.address)
        })
    };
    shards.iter().map(entry).collect()
}

/// Applies a message, and the weights that it completes. Weights that are not newer are skipped.
fn apply(update: &mut WeightsUpdate, message: &v1::WatchWeightsReply, weights: Option<Weights>) {
    update.agent_steps = message.agent_steps;
    update.connected = true;
    // An empty directory means that no shard has moved. An invalid one, or one of another length, is ignored.
    if let Ok(shards) = shard_entries(&message.shards)
        && shards.len() == update.shards.len()
        && !shards.is_empty()
    {
        update.shards = shards;
    }
    update.finished |= matches!(message.update, Some(Message::Finished(_)));
    if let Some(weights) = weights {
        // A later evaluation request may carry the same weights, if no update happened in between.
        let age = |weights: &Weights| (weights.version, weights.evaluation.map(|request| request.number));
        if update.weights.as_ref().is_none_or(|known| age(known) < age(&weights)) {
            update.weights = Some(Arc::new(weights));
        }
    }
}

/// Sends queued reports. Episodes that wait are sent together: the learner takes a member's next report when it has
/// handled the last.
async fn send_reports(
    mut client: LearnerClient<Channel>,
    member: v1::ReportRequest,
    mut reports: mpsc::Receiver<Report>,
    seed: u64,
) {
    let (mut queued, mut backoff) = (VecDeque::new(), Backoff::new(seed));
    while let Some(report) = reports.recv().await {
        queued.push_back(report);
        queued.extend(std::iter::from_fn(|| reports.try_recv().ok()));
        while let Some(report) = next_report(&mut queued) {
            send_report(&mut client, report_message(report, member.clone()), &mut backoff).await;
        }
    }
}

/// Removes the next report: an evaluation, or as many episodes as a report may have.
fn next_report(queued: &mut VecDeque<Report>) -> Option<Report> {
    let mut episodes = match queued.pop_front()? {
        Report::Episodes(episodes) => episodes,
        evaluation @ Report::Evaluation { .. } => return Some(evaluation),
    };
    while episodes.len() < EPISODES_MAX
        && let Some(Report::Episodes(_)) = queued.front()
        && let Some(Report::Episodes(more)) = queued.pop_front()
    {
        episodes.extend(more);
    }
    if episodes.len() > EPISODES_MAX {
        queued.push_front(Report::Episodes(episodes.split_off(EPISODES_MAX)));
    }
    Some(Report::Episodes(episodes))
}

/// Sends a report until the learner has it. An episode report is lost if the connection breaks, because it may have arrived;
/// an evaluation report is sent again, because the learner drops duplicates.
async fn send_report(client: &mut LearnerClient<Channel>, request: v1::ReportRequest, backoff: &mut Backoff) {
    let is_evaluation = request.evaluation.is_some();
    loop {
        let answer = timeout(ANSWER_WAIT_MAX, client.report(request.clone())).await;
        let Err(status) = answer.unwrap_or_else(|_| Err(late())) else {
            return backoff.reset();
        };
        if is_refusal(&status) || !is_evaluation && !is_shortage(&status) {
            let kind = if is_evaluation { "evaluation" } else { "episodes" };
            warn!(kind, error = describe(&status), "report dropped");
            return;
        }
        sleep(backoff.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::limits::SEGMENT_BYTES;
    use proto::{EvaluationRequest, Segments};
    use replay::WeightsVersion;
    use tokio_stream::wrappers::ReceiverStream;

    fn weights(incarnation: u32, number: u64) -> Weights {
        let version = WeightsVersion { incarnation, number };
        Weights { version, safetensors: vec![number as u8; 3 * SEGMENT_BYTES].into(), evaluation: None }
    }

    /// The messages of a version.
    fn messages(number: u64) -> Vec<v1::WatchWeightsReply> {
        let segments = Segments::new(Arc::new(weights(1, number)));
        let reply = |segment| v1::WatchWeightsReply {
            update: Some(Message::Segment(segment)),
            ..v1::WatchWeightsReply::default()
        };
        segments.map(reply).collect()
    }

    type Messages = Vec<(Duration, v1::WatchWeightsReply)>;

    /// Receives messages, each after a pause, and then a learner that is silent. Returns the numbers of the versions that
    /// were complete, the error, and the time until it.
    async fn received(messages: Messages) -> (Vec<u64>, String, Duration) {
        let (sender, receiver) = mpsc::channel(1);
        let sending = tokio::spawn(async move {
            for (pause, message) in messages {
                sleep(pause).await;
                if sender.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            sender.closed().await;
        });
        let (update, mut updates) = watch::channel(WeightsUpdate::default());
        let collecting = tokio::spawn(async move {
            let mut numbers = Vec::new();
            while updates.changed().await.is_ok() {
                let newest = updates.borrow_and_update().weights.clone();
                numbers.extend(newest.map(|weights| weights.version.number));
                numbers.dedup();
            }
            numbers
        });
        let started = Instant::now();
        let error = receive(ReceiverStream::new(receiver), &update, &mut None).await.unwrap_err();
        let elapsed = started.elapsed();
        drop(update);
        sending.await.unwrap();
        (collecting.await.unwrap(), error.message().to_owned(), elapsed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_takes_minutes_arrives_without_a_timeout() {
        let slow = UPDATE_WAIT_MAX - Duration::from_secs(1);
        let slowly = |number| messages(number).into_iter().map(move |message| (slow, message));
        let (numbers, error, elapsed) = received(slowly(1).chain(slowly(2)).collect()).await;
        assert_eq!((numbers, error.as_str()), (vec![1, 2], "the learner is silent"));
        assert_eq!(elapsed, 6 * slow + UPDATE_WAIT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_progress_do_not_excuse_a_version_that_stops() {
        let second = Duration::from_secs(1);
        let mut endless: Messages =
            messages(1)[..2].iter().map(|message| (Duration::ZERO, message.clone())).collect();
        endless.extend(vec![(second, v1::WatchWeightsReply::default()); 60]);
        let (numbers, error, elapsed) = received(endless).await;
        assert_eq!(error, "the learner does not complete the weights that it began");
        assert!(numbers.is_empty() && elapsed == UPDATE_WAIT_MAX, "{numbers:?} {elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_segment_ends_the_stream() {
        let mut wrong = messages(1);
        wrong.swap(1, 2);
        let wrong = wrong.into_iter().map(|message| (Duration::ZERO, message)).collect();
        let (numbers, error, _) = received(wrong).await;
        assert!(error.starts_with("the learner sent an invalid segment of weights: offset is "), "{error}");
        assert!(numbers.is_empty());
    }

    #[test]
    fn a_restarted_learners_weights_replace_newer_numbered_ones() {
        let mut update = WeightsUpdate::default();
        let mut after = |incarnation, number| {
            apply(&mut update, &v1::WatchWeightsReply::default(), Some(weights(incarnation, number)));
            let version = update.weights.as_ref().unwrap().version;
            (version.incarnation, version.number)
        };
        assert_eq!(after(1, 500), (1, 500));
        assert_eq!(after(1, 400), (1, 500), "older weights of the same incarnation are skipped");
        assert_eq!(after(2, 3), (2, 3), "a newer incarnation wins, whatever the number");
        assert_eq!(after(1, 600), (2, 3), "the former incarnation is fenced");
    }

    #[tokio::test]
    async fn a_member_waits_while_all_shards_are_excluded() {
        let entry = |excluded| ShardEntry { excluded, ..ShardEntry::unnamed("shard:1".parse().unwrap()) };
        let excluded = WeightsUpdate { shards: vec![entry(true); 2], ..WeightsUpdate::default() };
        let (update, mut updates) = watch::channel(excluded);
        let wait = timeout(Duration::from_millis(20), shards_in_use(&mut updates));
        assert!(wait.await.is_err());
        update.send_modify(|update| update.shards[1].excluded = false);
        assert_eq!(shards_in_use(&mut updates).await, [entry(true), entry(false)]);
    }

    #[test]
    fn a_shard_that_moved_is_found_at_its_new_address() {
        let shard = |address: &str| v1::ShardEntry { address: address.into(), ..Default::default() };
        let mut update = WeightsUpdate {
            shards: shard_entries(&[shard("a:1"), shard("b:1")]).unwrap(),
            ..WeightsUpdate::default()
        };
        let mut after = |shards: Vec<v1::ShardEntry>| {
            apply(&mut update, &v1::WatchWeightsReply { shards, ..Default::default() }, None);
            update.shards.iter().map(|entry| entry.address.to_string()).collect::<Vec<_>>()
        };
        let swapped = ["b:1", "a:1"];
        assert_eq!(after(vec![shard("b:1"), shard("a:1")]), swapped);
        for nonsense in [vec![], vec![shard("a:1")], vec![shard("a:1"), shard("")]] {
            assert_eq!(after(nonsense), swapped);
        }
    }

    #[test]
    fn a_second_evaluation_request_for_the_same_weights_is_applied() {
        let mut update = WeightsUpdate::default();
        let mut after = |number| {
            let request =
                EvaluationRequest { number, frames: 40, updates: 10, episodes: 8, baselines: false };
            let weights = Weights { evaluation: Some(request), ..weights(1, 7) };
            apply(&mut update, &v1::WatchWeightsReply::default(), Some(weights));
            update.weights.as_ref().unwrap().evaluation.unwrap().number
        };
        assert_eq!([after(5), after(6), after(5)], [5, 6, 6]);
    }

    #[test]
    fn queued_episodes_are_sent_together_in_reports_of_bounded_size() {
        let episode = |steps| proto::EpisodeReport { score: 0.0, steps, truncated: false };
        let games = |count: usize| Report::Episodes(vec![episode(count as u64); count]);
        let evaluation = Report::Evaluation { number: 1, players: Vec::new() };
        let mut queued = VecDeque::from([
            games(3),
            games(4),
            evaluation,
            games(EPISODES_MAX),
            games(2 * EPISODES_MAX + 1),
        ]);
        let mut sent = Vec::new();
        while let Some(report) = next_report(&mut queued) {
            sent.push(match report {
                Report::Episodes(episodes) => episodes.len(),
                Report::Evaluation { .. } => 0,
            });
        }
        assert_eq!(sent, [7, 0, EPISODES_MAX, EPISODES_MAX, EPISODES_MAX, 1]);
    }
}
