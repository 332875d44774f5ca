//! An actor's or evaluator's place in a run: joins, follows the newest weights, reports.
//!
//! One task holds the watch stream. When the learner is gone it joins again for as long as it takes, with the same index
//! and incarnation, so that lanes go on; a learner that came back has a newer incarnation and its weights replace all
//! older ones, whatever their number.

use std::sync::Arc;
use std::time::Duration;

use proto::limits::{OTHER_BYTES_MAX, WEIGHTS_BYTES_MAX};
use proto::play::report_message;
use proto::v1::learner_client::LearnerClient;
use proto::v1::watch_weights_reply::News as Message;
use proto::{PROTOCOL, Report, Weights, caller, v1};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};
use tracing::{info, warn};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::channel::{Channel, Credentials};
use crate::place::Place;
use crate::role::Role;
use crate::shard::{describe, is_refusal};

/// How long the learner may take to answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// The learner says where it stands every second. One that is silent for this long hangs.
const NEWS_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often a log line repeats that the learner can't be reached.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Reports that may wait to be sent. Games end far less often than that.
const REPORTS_MAX: usize = 256;

/// Why an actor can't be part of a run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The newest that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Agent steps of the whole run.
    pub agent_steps: u64,
    /// The newest weights.
    pub weights: Option<Arc<Weights>>,
    /// The run has ended.
    pub finished: bool,
    /// The learner will not have this process any more, and why.
    pub refused: Option<String>,
    /// Whether the learner answers at the moment.
    pub connected: bool,
    /// The shards, by number.
    pub shards: Vec<Place>,
}

/// A place in a run.
#[derive(Debug)]
pub struct Membership {
    /// What the learner said.
    pub joined: v1::JoinReply,
    /// What has happened since.
    pub news: watch::Receiver<News>,
    reports: mpsc::Sender<Report>,
    following: Option<AbortHandle>,
}

impl Drop for Membership {
    /// Nobody listens any more, and the place is free for someone else.
    fn drop(&mut self) {
        self.following.iter().for_each(AbortHandle::abort);
    }
}

/// Joins the run of the learner at `address`, waiting for it as long as it takes.
pub async fn join(
    address: Address,
    credentials: &Credentials,
    role: v1::Role,
    index: Option<u32>,
    seed: u64,
) -> Result<Membership, Refused> {
    let client = LearnerClient::new(credentials.channel(Role::Learner, &address))
        .max_decoding_message_size(WEIGHTS_BYTES_MAX)
        .max_encoding_message_size(OTHER_BYTES_MAX);
    let (news, receiver) = watch::channel(News::default());
    let (reports, outgoing) = mpsc::channel(REPORTS_MAX);
    let credentials = credentials.clone();
    let mut follower =
        Follower { address, credentials, client, role, backoff: Backoff::new(seed), complained: None, news };
    let request =
        v1::JoinRequest { protocol: PROTOCOL, role: role.into(), index, ..v1::JoinRequest::default() };
    let joined = follower.join(request).await?;
    let shards = places(&joined.shards).map_err(Refused)?;
    follower.news.send_modify(|news| news.shards = shards);
    let following = if joined.finished {
        follower.news.send_modify(|news| news.finished = true);
        None
    } else {
        // Ends by itself when the last report is sent.
        tokio::spawn(send_reports(follower.client.clone(), membership(&joined, role), outgoing));
        Some(tokio::spawn(follower.follow(joined.clone())).abort_handle())
    };
    Ok(Membership { joined, news: receiver, reports, following })
}

impl Membership {
    /// Sends a report in the background. False if too many wait already: the report is dropped.
    pub fn report(&self, report: Report) -> bool {
        self.reports.try_send(report).is_ok()
    }

    /// Sends a report in the background, waiting for room.
    pub async fn report_surely(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    /// Waits until everything reported so far is sent. For the end.
    pub async fn flush(&self, patience: Duration) {
        let _ = timeout(patience, self.reports.reserve_many(REPORTS_MAX)).await;
    }
}

/// What every message of a member says of it.
fn membership(joined: &v1::JoinReply, role: v1::Role) -> v1::ReportRequest {
    v1::ReportRequest {
        caller: Some(caller(&joined.run)),
        role: role.into(),
        index: joined.index,
        incarnation: joined.incarnation,
        ..v1::ReportRequest::default()
    }
}

struct Follower {
    address: Address,
    credentials: Credentials,
    client: LearnerClient<Channel>,
    role: v1::Role,
    backoff: Backoff,
    complained: Option<Instant>,
    news: watch::Sender<News>,
}

impl Follower {
    /// Asks until there is an answer; only a refusal ends it.
    async fn join(&mut self, request: v1::JoinRequest) -> Result<v1::JoinReply, Refused> {
        loop {
            let answer = timeout(ANSWER_WAIT_MAX, self.client.join(request.clone())).await;
            let status = match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
                Ok(reply) => {
                    if self.complained.take().is_some() {
                        info!(learner = %self.address, "the learner is there");
                    }
                    self.backoff.reset();
                    return Ok(reply.into_inner());
                }
                Err(status) => status,
            };
            if is_refusal(&status) {
                return Err(Refused(format!("the learner refuses: {}", status.message())));
            }
            self.wait(&status).await;
        }
    }

    async fn wait(&mut self, status: &Status) {
        self.news.send_if_modified(|news| std::mem::replace(&mut news.connected, false));
        if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            let reason = self.credentials.describe(&self.address, status);
            warn!(learner = %self.address, reason, "waiting for the learner");
        }
        sleep(self.backoff.next()).await;
    }

    async fn follow(mut self, mut joined: v1::JoinReply) {
        loop {
            let status = match self.watch(&joined).await {
                Ok(()) => return,
                Err(status) => status,
            };
            if is_refusal(&status) && status.code() != Code::FailedPrecondition {
                return self.refuse(describe(&status));
            }
            self.wait(&status).await;
            let again = v1::JoinRequest {
                protocol: PROTOCOL,
                run: joined.run.clone(),
                role: self.role.into(),
                index: Some(joined.index),
                incarnation: joined.incarnation,
            };
            joined = match self.join(again).await {
                Ok(reply) => reply,
                Err(Refused(reason)) => return self.refuse(reason),
            };
            if joined.finished {
                self.news.send_modify(|news| news.finished = true);
                return;
            }
            match places(&joined.shards) {
                Ok(shards) => self.news.send_modify(|news| news.shards = shards),
                Err(reason) => return self.refuse(reason),
            }
        }
    }

    fn refuse(&self, reason: String) {
        self.news.send_modify(|news| news.refused = Some(reason));
    }

    /// Follows the weights until the run has ended.
    async fn watch(&mut self, joined: &v1::JoinReply) -> Result<(), Status> {
        let request = v1::WatchWeightsRequest {
            caller: Some(caller(&joined.run)),
            role: self.role.into(),
            index: joined.index,
            incarnation: joined.incarnation,
        };
        let silent = |_| Status::deadline_exceeded("the learner is silent");
        let answer = timeout(ANSWER_WAIT_MAX, self.client.watch_weights(request)).await.map_err(silent)?;
        let mut stream = answer?.into_inner();
        loop {
            let message = timeout(NEWS_WAIT_MAX, stream.message()).await.map_err(silent)??;
            let message = message.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            self.complained = None;
            self.news.send_modify(|news| take(news, message));
            if self.news.borrow().finished {
                return Ok(());
            }
        }
    }
}

/// The shards as the learner names them.
fn places(shards: &[v1::ShardAddress]) -> Result<Vec<Place>, String> {
    let place = |shard: &v1::ShardAddress| {
        Place::try_from(shard.clone())
            .map_err(|error| format!("the learner names a shard at {:?}: {error}", shard.address))
    };
    shards.iter().map(place).collect()
}

/// Takes in a message; weights that are not newer are passed over.
fn take(news: &mut News, message: v1::WatchWeightsReply) {
    news.agent_steps = message.agent_steps;
    news.connected = true;
    // What makes no sense is no news; none at all means that none has moved.
    if let Ok(shards) = places(&message.shards)
        && shards.len() == news.shards.len()
        && !shards.is_empty()
    {
        news.shards = shards;
    }
    match message.news {
        None => {}
        Some(Message::Finished(_)) => news.finished = true,
        Some(Message::Weights(weights)) => {
            // A later order may come with the same weights: nothing was learned between.
            let Ok(weights) = Weights::try_from(weights) else { return };
            let age = |weights: &Weights| (weights.version, weights.order.map(|order| order.number));
            if news.weights.as_ref().is_none_or(|known| age(known) < age(&weights)) {
                news.weights = Some(Arc::new(weights));
            }
        }
    }
}

async fn send_reports(
    mut client: LearnerClient<Channel>,
    member: v1::ReportRequest,
    mut reports: mpsc::Receiver<Report>,
) {
    while let Some(report) = reports.recv().await {
        // Games are sent once and lost with the learner; an evaluation is sent until the learner has it.
        let keep = matches!(report, Report::Evaluation { .. });
        let request = report_message(report, member.clone());
        loop {
            let answer = timeout(ANSWER_WAIT_MAX, client.report(request.clone())).await;
            match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
                Ok(_) => break,
                Err(status) if !keep || is_refusal(&status) => {
                    warn!(reason = describe(&status), "a report was lost");
                    break;
                }
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(incarnation: u32, number: u64) -> v1::WatchWeightsReply {
        let version = Some(v1::WeightsVersion { incarnation, number });
        let weights = v1::Weights { version, ..v1::Weights::default() };
        v1::WatchWeightsReply { news: Some(Message::Weights(weights)), ..Default::default() }
    }

    #[test]
    fn a_restarted_learners_weights_replace_newer_numbered_ones() {
        let mut news = News::default();
        let mut after = |incarnation, number| {
            take(&mut news, weights(incarnation, number));
            let version = news.weights.as_ref().unwrap().version;
            (version.incarnation, version.number)
        };
        assert_eq!(after(1, 500), (1, 500));
        assert_eq!(after(1, 400), (1, 500), "older ones of the same life are passed over");
        assert_eq!(after(2, 3), (2, 3), "a newer life wins, whatever the number");
        assert_eq!(after(1, 600), (2, 3), "and the former life is over");
    }

    #[test]
    fn a_shard_that_moved_is_found_at_its_new_place() {
        let shard = |address: &str| v1::ShardAddress { address: address.into(), ..Default::default() };
        let mut news = News { shards: places(&[shard("a:1"), shard("b:1")]).unwrap(), ..News::default() };
        let mut after = |shards: Vec<v1::ShardAddress>| {
            take(&mut news, v1::WatchWeightsReply { shards, ..Default::default() });
            news.shards.iter().map(|place| place.address.to_string()).collect::<Vec<_>>()
        };
        let swapped = ["http://b:1", "http://a:1"];
        assert_eq!(after(vec![shard("b:1"), shard("a:1")]), swapped);
        for nonsense in [vec![], vec![shard("a:1")], vec![shard("a:1"), shard("")]] {
            assert_eq!(after(nonsense), swapped);
        }
    }

    #[test]
    fn a_second_order_for_the_same_weights_is_news() {
        let mut news = News::default();
        let mut after = |number| {
            let mut message = weights(1, 7);
            if let Some(Message::Weights(weights)) = &mut message.news {
                weights.evaluation = Some(v1::EvaluationOrder { number, ..Default::default() });
            }
            take(&mut news, message);
            news.weights.as_ref().unwrap().order.unwrap().number
        };
        assert_eq!([after(5), after(6), after(5)], [5, 6, 6]);
    }
}
