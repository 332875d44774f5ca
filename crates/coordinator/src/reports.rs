//! Reports of members on their way to the training thread, bounded for whatever a member sends.
//!
//! A member has at most one report in the queue, so its next one is accepted when the training thread has handled the
//! last. A full queue refuses; it never makes a call wait, which would hold a request slot of the server. Evaluations have
//! a queue of their own: a flood of episodes must not keep a run from its end. The training thread takes a bounded number
//! of episodes in a turn, however many arrive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use proto::{EpisodeReport, PlayerScores, Report};
use tokio::sync::mpsc;

use crate::members::MemberRole;

/// Reports of episodes in the queue: 1.6 MB when all are full.
const EPISODE_REPORTS_MAX: usize = 256;
/// Reports of evaluations in the queue. A run has a few evaluators, which play for minutes.
const EVALUATION_REPORTS_MAX: usize = 8;
/// Episodes after which a turn of the training thread ends. Recording one takes about a microsecond, a turn milliseconds.
/// At fifty turns a second a run has room for thousands of episodes a second.
const TURN_EPISODES: usize = 256;
/// Evaluations in a turn of the training thread.
const TURN_EVALUATIONS: usize = 2;

/// The report can't be taken now: retry later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("the learner has not handled this member's last report yet: retry later")]
    Pending,
    #[error("too many reports are queued: retry later")]
    Full,
}

/// Members with a report in a queue.
type Pending = Arc<Mutex<BTreeSet<(MemberRole, u32)>>>;

/// A report in a queue. Dropping it lets the member send the next.
#[derive(Debug)]
struct Queued<T> {
    content: T,
    _place: Arc<Place>,
}

/// The place of a member in the queues, free when its last report is dropped.
#[derive(Debug)]
struct Place {
    pending: Pending,
    member: (MemberRole, u32),
}

impl Place {
    fn take(pending: &Pending, member: (MemberRole, u32)) -> Option<Arc<Self>> {
        let is_new = pending.lock().unwrap_or_else(PoisonError::into_inner).insert(member);
        is_new.then(|| Arc::new(Self { pending: pending.clone(), member }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.member);
    }
}

/// The scores of an evaluation request.
pub type EvaluationScores = (u64, Vec<PlayerScores>);

/// The service's end of the queues.
#[derive(Debug)]
pub struct ReportSender {
    episodes: mpsc::Sender<Queued<Vec<EpisodeReport>>>,
    evaluations: mpsc::Sender<Queued<EvaluationScores>>,
    pending: Pending,
}

/// The training thread's end of the queues.
#[derive(Debug)]
pub struct Reports {
    episodes: mpsc::Receiver<Queued<Vec<EpisodeReport>>>,
    evaluations: mpsc::Receiver<Queued<EvaluationScores>>,
}

/// Two empty queues.
pub fn queues() -> (ReportSender, Reports) {
    let (episodes, episodes_received) = mpsc::channel(EPISODE_REPORTS_MAX);
    let (evaluations, evaluations_received) = mpsc::channel(EVALUATION_REPORTS_MAX);
    let sender = ReportSender { episodes, evaluations, pending: Pending::default() };
    (sender, Reports { episodes: episodes_received, evaluations: evaluations_received })
}

impl ReportSender {
    /// Queues all reports of one message, or none.
    pub fn send(&self, member: (MemberRole, u32), reports: Vec<Report>) -> Result<(), Busy> {
        let place = Place::take(&self.pending, member).ok_or(Busy::Pending)?;
        let is_evaluation = |report: &Report| matches!(report, Report::Evaluation { .. });
        let (evaluations, episodes) = reports.into_iter().partition::<Vec<_>, _>(is_evaluation);
        let reserved = (self.episodes.try_reserve_many(episodes.len()))
            .and_then(|episodes| Ok((episodes, self.evaluations.try_reserve_many(evaluations.len())?)));
        let Ok((episode_permits, evaluation_permits)) = reserved else { return Err(Busy::Full) };
        for (permit, report) in episode_permits.zip(episodes) {
            let Report::Episodes(content) = report else { continue };
            permit.send(Queued { content, _place: place.clone() });
        }
        for (permit, report) in evaluation_permits.zip(evaluations) {
            let Report::Evaluation { number, players } = report else { continue };
            permit.send(Queued { content: (number, players), _place: place.clone() });
        }
        Ok(())
    }
}

impl Reports {
    /// The episodes of this turn of the training thread, oldest first: fewer than `TURN_EPISODES` and one more report.
    pub fn take_episodes(&mut self) -> Vec<EpisodeReport> {
        let mut taken = Vec::new();
        while taken.len() < TURN_EPISODES
            && let Ok(report) = self.episodes.try_recv()
        {
            taken.extend(report.content);
        }
        taken
    }

    /// The evaluations of this turn.
    pub fn take_evaluations(&mut self) -> Vec<EvaluationScores> {
        let next = || self.evaluations.try_recv().ok().map(|report| report.content);
        std::iter::from_fn(next).take(TURN_EVALUATIONS).collect()
    }

    /// The next evaluation. Cancel-safe.
    pub async fn next_evaluation(&mut self) -> Option<EvaluationScores> {
        self.evaluations.recv().await.map(|report| report.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::limits::EPISODES_MAX;

    const ACTOR: (MemberRole, u32) = (MemberRole::Actor, 0);
    const EVALUATOR: (MemberRole, u32) = (MemberRole::Evaluator, 0);

    fn games(count: usize) -> Vec<Report> {
        vec![Report::Episodes(vec![EpisodeReport { score: 1.0, steps: 9, truncated: false }; count])]
    }

    fn evaluation(number: u64) -> Vec<Report> {
        vec![Report::Evaluation { number, players: Vec::new() }]
    }

    #[test]
    fn a_member_has_one_report_in_the_queue() {
        let (sender, mut reports) = queues();
        sender.send(ACTOR, games(3)).unwrap();
        assert_eq!(sender.send(ACTOR, games(3)), Err(Busy::Pending));
        sender.send((MemberRole::Actor, 1), games(2)).unwrap();
        assert_eq!(reports.take_episodes().len(), 5);
        sender.send(ACTOR, games(3)).unwrap();
    }

    #[test]
    fn a_flood_of_episodes_takes_bounded_work_in_a_turn_and_bounded_memory() {
        let (sender, mut reports) = queues();
        let is_sent = |index: &u32| sender.send((MemberRole::Actor, *index), games(EPISODES_MAX)).is_ok();
        let send = || (0..2_000).filter(is_sent).count();
        assert_eq!(send(), EPISODE_REPORTS_MAX);
        assert_eq!(sender.send((MemberRole::Actor, 5_000), games(1)), Err(Busy::Full));
        for _ in 0..100 {
            assert!(reports.take_episodes().len() < TURN_EPISODES + EPISODES_MAX);
            send();
        }
    }

    #[test]
    fn a_flood_of_episodes_does_not_keep_an_evaluation_out() {
        let (sender, mut reports) = queues();
        for index in 0..2_000 {
            let _ = sender.send((MemberRole::Actor, index), games(1));
        }
        sender.send(EVALUATOR, evaluation(7)).unwrap();
        assert_eq!(reports.take_evaluations(), [(7, Vec::new())]);
    }

    #[test]
    fn a_message_is_queued_whole_or_not_at_all() {
        let (sender, mut reports) = queues();
        for index in 0..EVALUATION_REPORTS_MAX {
            sender.send((MemberRole::Evaluator, index as u32), evaluation(1)).unwrap();
        }
        let both = || [games(1), evaluation(2)].concat();
        let late = (MemberRole::Evaluator, 99);
        assert_eq!(sender.send(late, both()), Err(Busy::Full));
        assert!(reports.take_episodes().is_empty(), "nothing of it was queued");
        assert_eq!(reports.take_evaluations().len(), TURN_EVALUATIONS);
        sender.send(late, both()).unwrap();
        reports.take_episodes();
        assert_eq!(sender.send(late, games(1)), Err(Busy::Pending), "a part of it is still queued");
    }
}
